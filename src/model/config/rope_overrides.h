// Values of the user in place of the file's: how positions are scaled. The names are those of llama.cpp's flags.
#pragma once
#include <optional>
#include <string>

#include "model/config/config.h"

namespace ingot {

struct RopeOverrides {
  std::string scaling;            // "none", "linear" or "yarn"; empty: as the file says
  std::optional<float> scale;     // the context grows by this factor
  std::optional<float> freq_base;
  std::optional<int> original_context;
  std::optional<float> ext_factor, attn_factor, beta_slow, beta_fast;

  bool is_of_yarn() const { return original_context || ext_factor || attn_factor || beta_slow || beta_fast; }
  explicit operator bool() const {
    return !scaling.empty() || scale || freq_base || is_of_yarn();
  }
};

// Throws UsageError if a value does not suit the kind of scaling.
void apply(const RopeOverrides& overrides, Config& config);

}  // namespace ingot
