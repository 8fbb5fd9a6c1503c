#include "model/config/rope_overrides.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {
namespace {

RopeScalingKind kind_of(const RopeOverrides& o, const RopeScaling& file) {
  if (o.scaling == "none") return RopeScalingKind::kNone;
  if (o.scaling == "linear") return RopeScalingKind::kLinear;
  if (o.scaling == "yarn") return RopeScalingKind::kYarn;
  if (!o.scaling.empty())
    throw UsageError("the scaling of ropes '{}' is not known: use none, linear or yarn", printable(o.scaling, 64));
  return o.scale && file.kind == RopeScalingKind::kNone ? RopeScalingKind::kLinear : file.kind;
}

}  // namespace

void apply(const RopeOverrides& o, Config& c) {
  if (c.rot_dim == 0) throw UsageError("the model has no rope, so settings of ropes do not suit it");
  RopeScaling& scaling = c.rope_scaling;
  const RopeScalingKind kind = kind_of(o, scaling);
  if (o.freq_base) c.rope_theta = *o.freq_base;
  if (kind != scaling.kind)
    scaling = {.kind = kind, .original_context = c.n_ctx_train, .truncate = c.arch->yarn_truncates};
  const bool is_yarn = kind == RopeScalingKind::kYarn;
  if (!is_yarn && o.is_of_yarn())
    throw UsageError("settings of YaRN need the scaling of ropes by YaRN: set it to yarn");
  if (kind != RopeScalingKind::kLinear && !is_yarn) {
    if (o.scale) throw UsageError("a factor of ropes needs their scaling for this model: set it to linear or yarn");
    return;
  }
  if (o.original_context) scaling.original_context = *o.original_context;
  if (o.scale) scaling.factor = *o.scale;
  if (o.beta_slow) scaling.beta_slow = *o.beta_slow;
  if (o.beta_fast) scaling.beta_fast = *o.beta_fast;
  if (o.ext_factor) scaling.extrapolation = *o.ext_factor;
  if (is_yarn && (o.attn_factor || o.ext_factor || !o.scaling.empty() || o.scale))
    scaling.magnitude = o.attn_factor.value_or(1.0f) * yarn_magnitude(scaling.factor, scaling.extrapolation);
  const int original = scaling.original_context > 0 ? scaling.original_context : c.n_ctx_train;
  const double longest = double{scaling.factor} * original;
  if (o.scale || o.original_context)
    c.n_ctx_train = std::max(c.n_ctx_train, static_cast<int>(std::min(longest, double{1 << 30})));
}

}  // namespace ingot
