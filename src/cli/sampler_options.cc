#include "cli/sampler_options.h"

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
      {"--dry-multiplier", p.dry_multiplier, "DRY: how much a token that repeats a run of tokens loses; 0: off"},
      {"--dry-base", p.dry_base, "DRY: by how much more for each token of the run"},
      {"--xtc-probability", p.xtc_probability, "XTC: how often the likeliest tokens are left out; 0: never"},
      {"--xtc-threshold", p.xtc_threshold, "XTC: from what probability on a token is likely; above 0.5: off"},
      {"--top-nsigma,--top-n-sigma", p.top_n_sigma,
       "keep logits within this many standard deviations of the largest; 0: all"},
      {"--dynatemp-range", p.dynatemp_range, "let the temperature vary by so much with the entropy; 0: off"},
      {"--dynatemp-exp", p.dynatemp_exponent, "how the temperature follows the entropy"},
      {"--mirostat-ent,--mirostat-tau", p.mirostat_tau, "Mirostat: the surprise to aim at, in bits"},
      {"--mirostat-lr,--mirostat-eta", p.mirostat_eta, "Mirostat: how fast it adapts"},
  };
  for (const Row& row : rows) app.add_option(row.flag, row.value, row.help)->capture_default_str();
  app.add_option("--dry-allowed-length", p.dry_allowed_length, "DRY: runs of fewer tokens cost nothing")
      ->capture_default_str();
  app.add_option("--dry-penalty-last-n", p.dry_window, "DRY: how far back it looks; -1: everything")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
         "--dry-sequence-breaker", [&breakers](const std::vector<std::string>& texts) { breakers = texts; },
         "DRY: tokens with this text end a run (repeatable, in place of a new line, : \" and *; none: no text does)")
      ->allow_extra_args(false);
  app.add_option("--mirostat", p.mirostat, "2: Mirostat 2 in place of top-k, top-p and the like; 0: off")
      ->check(CLI::IsMember({0, 2}))
      ->capture_default_str();
  app.add_option_function<std::string>(
      "--samplers", [&p](const std::string& text) { p.stages = stages_of(text); },
      fmt::format("the stages of a draw in their order; those left out are off [{}]", fmt::join(kSamplerStages, ";")));
}

}  // namespace ingot
