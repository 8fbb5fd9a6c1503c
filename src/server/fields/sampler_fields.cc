#include "server/fields/sampler_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/token_bits.h"

namespace ingot {
namespace {

// A numeric field of SamplingParams.
struct StageField {
  const char* name;
  float SamplingParams::* member;
  double low, high;
};

constexpr StageField kStageFields[] = {
    {"dry_multiplier", &SamplingParams::dry_multiplier, 0, 100},
    {"dry_base", &SamplingParams::dry_base, 1, 100},
    {"xtc_probability", &SamplingParams::xtc_probability, 0, 1},
    {"xtc_threshold", &SamplingParams::xtc_threshold, 0, 1},
    {"dynatemp_range", &SamplingParams::dynatemp_range, 0, 100},
    {"dynatemp_exponent", &SamplingParams::dynatemp_exponent, 0, 100},
    {"mirostat_tau", &SamplingParams::mirostat_tau, 0, 100},
    {"mirostat_eta", &SamplingParams::mirostat_eta, 0, 1},
};
constexpr size_t kMaxBreakers = 64, kMaxBreakerBytes = 256;

// llama.cpp accepts a list of names or a string of their first letters. The string form is refused, because letters are
// ambiguous.
void read_order(const Fields& fields, SamplingParams& params) {
  const JsonValue* order = fields.find("samplers");
  if (!order) return;
  if (!order->is_array() || order->empty())
    fields.refuse("samplers", fmt::format("must be an array of some of {}", fmt::join(kSamplerStages, ", ")));
  for (const JsonValue& one : *order) {
    const auto stage = one.is_string() ? find_sampler_stage(one.get_ref<const std::string&>()) : std::nullopt;
    if (!stage)
      fields.refuse("samplers",
                    fmt::format("[{}] must be one of {}", params.stages.size(), fmt::join(kSamplerStages, ", ")));
    if (std::ranges::find(params.stages, *stage) != params.stages.end())
      fields.refuse("samplers", fmt::format("names {} twice", kSamplerStages[static_cast<size_t>(*stage)]));
    params.stages.push_back(*stage);
  }
}

}  // namespace

void read_stages(const Fields& fields, const ServedModel& model, SamplingParams& params) {
  for (const StageField& field : kStageFields)
    if (const auto value = fields.number(field.name, field.low, field.high))
      params.*field.member = static_cast<float>(*value);
  params.top_n_sigma = std::max(0.0f, static_cast<float>(fields.number("top_n_sigma", -1, 100).value_or(0)));
  params.dry_allowed_length = static_cast<int>(fields.integer("dry_allowed_length", 1, INT32_MAX).value_or(2));
  params.dry_window = static_cast<int>(fields.integer("dry_penalty_last_n", -1, INT32_MAX).value_or(-1));
  params.mirostat = static_cast<int>(fields.integer("mirostat", 0, 2).value_or(0));
  if (params.mirostat == 1) fields.refuse("mirostat", "must be 0 (off) or 2: this server has no Mirostat 1");
  read_order(fields, params);
  const auto breakers = fields.strings("dry_sequence_breakers", kMaxBreakers, kMaxBreakerBytes);
  if (params.dry_multiplier > 0)
    params.dry_breakers =
        tokens_with(model.tokenizer(), breakers ? *breakers : dry_default_breakers(), model.info().n_vocab);
}

}  // namespace ingot
