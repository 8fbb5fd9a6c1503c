#include "io/huggingface/generation_config.h"

#include "io/gguf/writer.h"

namespace ingot {
namespace {

constexpr int kMaxTopK = 1 << 24, kMaxWindow = 1 << 24;

struct Number {
  const char* hf_key;
  const char* gguf_key;
  std::optional<float> GenerationConfig::*value;
  double low, high;
  bool low_allowed;
};

constexpr Number kNumbers[] = {
    {"temperature", "general.sampling.temp", &GenerationConfig::temperature, 0, 100, true},
    {"top_p", "general.sampling.top_p", &GenerationConfig::top_p, 0, 1, false},
    {"min_p", "general.sampling.min_p", &GenerationConfig::min_p, 0, 1, true},
    {"typical_p", nullptr, &GenerationConfig::typical_p, 0, 1, false},
    {"repetition_penalty", "general.sampling.penalty_repeat", &GenerationConfig::repetition_penalty, 0, 100, false},
};

// These comparisons make NaN out of range.
bool in_range(const Number& row, double value) {
  return value <= row.high && (value > row.low || (row.low_allowed && value == row.low));
}

std::string expected(const Number& row) {
  return fmt::format("expected a number {} {} and at most {}", row.low_allowed ? "of at least" : "above", row.low,
                     row.high);
}

}  // namespace

GenerationConfig read_generation_config(const HfDirectory& directory) {
  GenerationConfig config;
  const auto document = directory.find_document("generation_config.json");
  if (!document) return config;
  const Json root = document->root();
  for (const Number& row : kNumbers) {
    const auto value = root.find(row.hf_key);
    if (!value) continue;
    if (!in_range(row, value->number())) throw value->error("{} is out of range: {}", value->number(), expected(row));
    config.*row.value = static_cast<float>(value->number());
  }
  if (const auto top_k = root.find("top_k")) config.top_k = static_cast<int>(top_k->integer(0, kMaxTopK));
  if (const auto sample = root.find("do_sample"); sample && !sample->boolean()) config.temperature = 0;
  return config;
}

GenerationConfig read_generation_config(const Metadata& metadata) {
  GenerationConfig config;
  for (const Number& row : kNumbers) {
    if (row.gguf_key == nullptr) continue;
    const auto value = metadata.find_f32(row.gguf_key);
    if (!value) continue;
    if (!in_range(row, *value)) throw metadata.error(row.gguf_key, "{} is out of range: {}", *value, expected(row));
    config.*row.value = *value;
  }
  auto integer = [&](const char* key, int low, int high) -> std::optional<int> {
    const auto value = metadata.find_i32(key);
    if (!value) return std::nullopt;
    if (*value < low || *value > high)
      throw metadata.error(key, "{} is out of range: expected {} to {}", *value, low, high);
    return *value;
  };
  config.top_k = integer("general.sampling.top_k", 0, kMaxTopK);
  config.penalty_window = integer("general.sampling.penalty_last_n", -1, kMaxWindow);
  return config;
}

void write_generation_config(const GenerationConfig& config, GgufWriter& writer) {
  for (const Number& row : kNumbers)
    if (row.gguf_key != nullptr && config.*row.value) writer.set(row.gguf_key, *(config.*row.value));
  if (config.top_k) writer.set("general.sampling.top_k", static_cast<int32_t>(*config.top_k));
  if (config.penalty_window)
    writer.set("general.sampling.penalty_last_n", static_cast<int32_t>(*config.penalty_window));
}

}  // namespace ingot
