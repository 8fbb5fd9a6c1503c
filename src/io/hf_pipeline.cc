#include "io/hf_pipeline.h"

#include <algorithm>

#include "text/oniguruma.h"
#include "text/pretokenizer_table.h"

namespace ingot {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr int64_t kMaxId = 1 << 24;

[[noreturn]] void refuse(const Json& step, const char* what) {
  throw step.error("{} '{}' is not supported here: use a GGUF file of this model", what, printable(step.at("type").string(), 64));
}

// The steps in their order: none for null, those inside a Sequence.
void add_steps(const std::optional<Json>& step, const char* list, std::vector<Json>& steps) {
  if (!step) return;
  if (step->at("type").string() != "Sequence") {
    steps.push_back(*step);
    return;
  }
  for (const Json& inner : step->at(list).elements()) add_steps(inner, list, steps);
}

std::vector<Json> steps_of(const Json& root, const char* key, const char* list) {
  std::vector<Json> steps;
  add_steps(root.find(key), list, steps);
  return steps;
}

bool is_type(const Json& step, std::string_view type) { return step.at("type").string() == type; }

bool flag_or(const Json& step, const char* key, bool fallback) {
  const auto value = step.find(key);
  return value ? value->boolean() : fallback;
}

bool is_text(const Json& step, const char* key, std::string_view text) {
  const auto value = step.find(key);
  return value && value->string() == text;
}

bool is_space_pattern(const Json& step) { return is_text(step.at("pattern"), "String", " "); }

// ---- byte-level BPE: every step that cuts words becomes an expression

std::string split_pattern(const Json& step) {
  const std::string_view behavior = step.at("behavior").string();
  const bool invert = flag_or(step, "invert", false);
  // "Removed" with invert keeps the matches alone; with expressions that match everything, as these do, nothing is lost.
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
    throw step.error("the behavior '{}'{} is not supported: use a GGUF file of this model", printable(behavior, 32),
                     invert ? " with invert" : "");
  const Json pattern = step.at("pattern");
  if (const auto text = pattern.find("String")) return pcre2_from_literal(text->string());
  const Json regex = pattern.at("Regex");
  try {
    return pcre2_from_oniguruma(regex.string());
  } catch (const Error& error) {
    throw regex.error("{}", error.what());
  }
}

std::string punctuation_pattern(const Json& step) {
  constexpr const char* kPunctuation = R"([\p{P}!-/:-@\[-`{-~])";
  if (is_text(step, "behavior", "Contiguous")) return std::string(kPunctuation) + "+";
  if (!is_text(step, "behavior", "Isolated")) throw step.at("behavior").error("is not supported: use a GGUF file of this model");
  return kPunctuation;
}

void read_words(const std::vector<Json>& steps, TokenizerSpec& spec) {
  std::vector<std::string> patterns;
  for (const Json& step : steps) {
    if (is_type(step, "Split")) {
      patterns.push_back(split_pattern(step));
    } else if (is_type(step, "Digits")) {
      patterns.push_back(flag_or(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (is_type(step, "Punctuation")) {
      patterns.push_back(punctuation_pattern(step));
    } else if (is_type(step, "ByteLevel")) {
      if (flag_or(step, "add_prefix_space", true)) throw step.error("'add_prefix_space' is not supported: use a GGUF file of this model");
      if (flag_or(step, "use_regex", true)) patterns.emplace_back(find_pretokenizer("gpt-2").patterns.front());
      if (step.offset() != steps.back().offset()) refuse(steps.back(), "after ByteLevel, the pre_tokenizer");
    } else {
      refuse(step, "the pre_tokenizer");
    }
  }
  if (patterns.empty()) patterns.emplace_back(R"((?s).+)");  // the whole text is one word
  spec.patterns = std::move(patterns);
  spec.pre = "tokenizer.json";
}

void read_byte_level(const Json& root, const std::vector<Json>& cutters, TokenizerSpec& spec) {
  spec.model = kByteLevelBpe;
  for (const Json& step : steps_of(root, "normalizer", "normalizers")) {
    if (!is_type(step, "NFC")) refuse(step, "the normalizer");
    spec.nfc = true;
  }
  read_words(cutters, spec);
  for (const Json& step : steps_of(root, "decoder", "decoders"))
    if (!is_type(step, "ByteLevel")) refuse(step, "the decoder");
}

// ---- SentencePiece BPE: spaces become U+2581, one may be put in front, and nothing is cut

// Does U+2581 only begin tokens? Then merges never reach over one, cut there or not.
bool marks_only_lead(const TokenizerSpec& spec) {
  return std::all_of(spec.tokens.begin(), spec.tokens.end(),
                     [](std::string_view token) { return token.find(kSpaceMark, 1) == token.npos; });
}

void read_metaspace(const Json& step, TokenizerSpec& spec) {
  if (!is_text(step, "replacement", kSpaceMark)) throw step.error("'replacement' is not '{}', which is not supported", kSpaceMark);
  if (flag_or(step, "split", true) && !marks_only_lead(spec))
    throw step.error("'split', with tokens of several words, is not supported: use a GGUF file of this model");
  const auto scheme = step.find("prepend_scheme");
  const std::string_view prepend = scheme ? scheme->string() : flag_or(step, "add_prefix_space", true) ? "always" : "never";
  if (prepend != "always" && prepend != "first" && prepend != "never")
    throw scheme->error("'{}' is none of always, first and never", printable(prepend, 32));
  spec.add_space_prefix = prepend != "never";
  spec.prefix_rule = prepend == "first" ? PrefixRule::kFirstUnlessSpace : PrefixRule::kUnlessSpace;
}

void read_sentencepiece(const Json& root, const std::vector<Json>& cutters, TokenizerSpec& spec) {
  spec.model = kSentencePieceBpe;
  spec.add_space_prefix = false;
  bool marks_spaces = false;
  for (const Json& step : steps_of(root, "normalizer", "normalizers")) {
    if (is_type(step, "Prepend") && is_text(step, "prepend", kSpaceMark)) {
      spec.add_space_prefix = true;
    } else if (is_type(step, "Replace") && is_space_pattern(step) && is_text(step, "content", kSpaceMark)) {
      marks_spaces = true;
    } else if (is_type(step, "NFC")) {
      spec.nfc = true;
    } else {
      refuse(step, "the normalizer");
    }
  }
  for (const Json& step : cutters) {
    if (is_type(step, "Metaspace") && !marks_spaces) {
      read_metaspace(step, spec);
      marks_spaces = true;
    } else if (!(is_type(step, "Split") && marks_spaces && is_space_pattern(step))) {  // no space is left to split at
      refuse(step, "the pre_tokenizer");
    }
  }
  if (!marks_spaces) throw root.error("the tokenizer does not write spaces as U+2581: use a GGUF file of this model");
  for (const Json& step : steps_of(root, "decoder", "decoders")) {
    const bool known = is_type(step, "ByteFallback") || is_type(step, "Fuse") || is_type(step, "Metaspace") ||
                       (is_type(step, "Strip") && is_text(step, "content", " ")) ||
                       (is_type(step, "Replace") && is_text(step, "content", " "));
    if (!known) refuse(step, "the decoder");
  }
}

// ---- what is put around a text

int64_t template_id(const Json& processor, const Json& token) {
  const std::string_view name = token.at("id").string();
  const Json ids = processor.at("special_tokens").at(name).at("ids");
  if (ids.elements().size() != 1) throw ids.error("expected one id for '{}'", printable(name, 64));
  return ids.elements().front().integer(0, kMaxId);
}

void read_template(const Json& processor, TokenizerSpec& spec) {
  std::vector<int64_t> before, after;
  bool in_front = true;
  for (const Json& piece : processor.at("single").elements()) {
    if (const auto token = piece.find("SpecialToken")) {
      (in_front ? before : after).push_back(template_id(processor, *token));
    } else {
      piece.at("Sequence");
      in_front = false;
    }
  }
  if (before.size() > 1 || after.size() > 1)
    throw processor.error("adds {} tokens before a text and {} after it: at most one each is supported", before.size(), after.size());
  if (!before.empty()) spec.bos = before.front();
  if (!after.empty()) spec.eos = after.front();
  spec.add_bos = !before.empty();
  spec.add_eos = !after.empty();
}

}  // namespace

void read_hf_pipeline(const Json& root, TokenizerSpec& spec) {
  const std::vector<Json> cutters = steps_of(root, "pre_tokenizer", "pretokenizers");
  const bool byte_level = std::any_of(cutters.begin(), cutters.end(), [](const Json& step) { return is_type(step, "ByteLevel"); });
  if (byte_level) {
    read_byte_level(root, cutters, spec);
  } else if (flag_or(root.at("model"), "byte_fallback", false)) {
    read_sentencepiece(root, cutters, spec);
  } else {
    throw root.at("model").error("is neither byte-level BPE nor BPE with byte_fallback: use a GGUF file of this model");
  }
  spec.add_bos = spec.add_eos = false;
  for (const Json& step : steps_of(root, "post_processor", "processors")) {
    if (is_type(step, "TemplateProcessing")) {
      read_template(step, spec);
    } else if (!is_type(step, "ByteLevel")) {
      refuse(step, "the post_processor");
    }
  }
}

}  // namespace ingot
