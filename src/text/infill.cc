#include "text/infill.h"

namespace ingot {
namespace {

struct Names {
  // If there is no middle token, the text after the gap comes first, and the answer continues the text before the gap.
  const char *before, *after, *middle;
};

constexpr Names kNames[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},        // DeepSeek
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                             // Code Llama
    {"<PRE>", "<SUF>", "<MID>"},
    {"[PREFIX]", "[SUFFIX]", nullptr},                          // Mistral
};

}  // namespace

std::optional<std::vector<int32_t>> infill_prompt(const Tokenizer& tokenizer, std::span<const int32_t> before,
                                                  std::span<const int32_t> after, bool add_special) {
  for (const Names& names : kNames) {
    const auto prefix = tokenizer.find(names.before), suffix = tokenizer.find(names.after);
    const auto middle = names.middle ? tokenizer.find(names.middle) : std::nullopt;
    if (!prefix || !suffix || (names.middle && !middle)) continue;
    std::vector<int32_t> ids;
    if (add_special && tokenizer.add_bos() && tokenizer.bos()) ids.push_back(*tokenizer.bos());
    const auto add = [&](int32_t mark, std::span<const int32_t> text) {
      ids.push_back(mark);
      ids.insert(ids.end(), text.begin(), text.end());
    };
    if (!middle) add(*suffix, after);
    add(*prefix, before);
    if (middle) {
      add(*suffix, after);
      ids.push_back(*middle);
    }
    return ids;
  }
  return {};
}

}  // namespace ingot
