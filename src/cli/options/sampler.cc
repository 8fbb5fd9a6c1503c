#include "cli/options/sampler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace ingot {
namespace {

// Parses "top_k;temperature", llama.cpp's form; commas are allowed too.
std::vector<SamplerStage> stages_of(const std::string& text) {
  std::vector<SamplerStage> stages;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(";,", begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const auto stage = find_sampler_stage(name);
    if (!stage || std::ranges::find(stages, *stage) != stages.end())
      throw CLI::ValidationError("--samplers", fmt::format("'{}' {}: the stages are {}", name,
                                                           stage ? "occurs twice" : "is not a stage",
                                                           fmt::join(kSamplerStages, ";")));
    stages.push_back(*stage);
    begin = end + 1;
  }
  return stages;
}

}  // namespace

void add_stage_options(CLI::App& app, SamplingParams& p, std::vector<std::string>& breakers) {
  struct Row {
    const char* flag;
    float& value;
    const char* help;
  };
  const Row rows[] = {
      {"--dry-multiplier", p.dry_multiplier,
       "DRY penalty of a token that would continue a repeated run of tokens; 0: off"},
      {"--dry-base", p.dry_base, "factor of the DRY penalty for each further token of the run"},
      {"--xtc-probability", p.xtc_probability, "chance per token that XTC excludes the likeliest tokens; 0: never"},
      {"--xtc-threshold", p.xtc_threshold,
       "minimum probability of the tokens that XTC counts as likely; above 0.5: off"},
      {"--top-nsigma,--top-n-sigma", p.top_n_sigma,
       "keep logits within this many standard deviations of the largest; 0: all"},
      {"--dynatemp-range", p.dynatemp_range, "vary the temperature up and down by this much, with the entropy; 0: off"},
      {"--dynatemp-exp", p.dynatemp_exponent, "exponent of the entropy in the temperature of --dynatemp-range"},
      {"--mirostat-ent,--mirostat-tau", p.mirostat_tau, "target surprise of Mirostat, in bits"},
      {"--mirostat-lr,--mirostat-eta", p.mirostat_eta, "learning rate of Mirostat"},
  };
  for (const Row& row : rows) app.add_option(row.flag, row.value, row.help)->capture_default_str();
  app.add_option("--dry-allowed-length", p.dry_allowed_length,
                 "length in tokens of the shortest repeated run that DRY penalizes")
      ->capture_default_str();
  app.add_option("--dry-penalty-last-n", p.dry_window,
                 "number of last tokens in which DRY looks for repeated runs; -1: all")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
         "--dry-sequence-breaker", [&breakers](const std::vector<std::string>& texts) { breakers = texts; },
         "end DRY runs at tokens that contain this text (repeatable; replaces the defaults newline, : \" and *; none: "
         "no text ends a run)")
      ->allow_extra_args(false);
  app.add_option("--mirostat", p.mirostat,
                 "Mirostat version; 2: Mirostat 2 instead of top-k, top-p and similar stages; 0: off")
      ->check(CLI::IsMember({0, 2}))
      ->capture_default_str();
  app.add_option_function<std::string>(
      "--samplers", [&p](const std::string& text) { p.stages = stages_of(text); },
      fmt::format("sampler stages in their order; missing stages are off [{}]", fmt::join(kSamplerStages, ";")));
}

}  // namespace ingot
