#include "io/huggingface/pipeline.h"

#include <algorithm>

#include "io/huggingface/normalizer.h"
#include "text/tokenizers/oniguruma.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/wordpiece.h"

namespace ingot {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr int64_t kMaxId = 1 << 24;

bool is_text(const Json& step, const char* key, std::string_view text) {
  const auto value = step.find(key);
  return value && value->string() == text;
}

bool is_space_pattern(const Json& step) { return is_text(step.at("pattern"), "String", " "); }

// ---- byte-level BPE: each splitting step becomes an expression

void check_split(const Json& step) {
  const std::string_view behavior = step.at("behavior").string();
  const bool invert = hf_flag_or(step, "invert", false);
  // "Removed" with invert drops the text between matches. These expressions match all text, so nothing is dropped.
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
    throw step.error("the behavior '{}'{} is not supported: use a GGUF file of this model", printable(behavior, 32),
                     invert ? " with invert" : "");
}

std::string split_pattern(const Json& step) {
  check_split(step);
  const Json pattern = step.at("pattern");
  if (const auto text = pattern.find("String")) return pcre2_from_literal(text->string());
  return hf_expression(pattern.at("Regex"));
}

void append_split(const Json& step, std::vector<std::string>& patterns) {
  check_split(step);
  const auto regex = step.at("pattern").find("Regex");
  const auto linear = regex ? linear_expressions(regex->string()) : std::span<const std::string_view>();
  patterns.insert(patterns.end(), linear.begin(), linear.end());
  if (linear.empty()) patterns.push_back(split_pattern(step));
}

std::string punctuation_pattern(const Json& step) {
  constexpr const char* kPunctuation = R"([\p{P}!-/:-@\[-`{-~])";
  if (is_text(step, "behavior", "Contiguous")) return std::string(kPunctuation) + "+";
  if (!is_text(step, "behavior", "Isolated"))
    throw step.at("behavior").error("is not supported: use a GGUF file of this model");
  return kPunctuation;
}

void read_words(const std::vector<Json>& steps, TokenizerSpec& spec) {
  std::vector<std::string> patterns;
  for (const Json& step : steps) {
    if (hf_is_type(step, "Split")) {
      append_split(step, patterns);
    } else if (hf_is_type(step, "Digits")) {
      patterns.push_back(hf_flag_or(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (hf_is_type(step, "Punctuation")) {
      patterns.push_back(punctuation_pattern(step));
    } else if (hf_is_type(step, "ByteLevel")) {
      if (hf_flag_or(step, "add_prefix_space", true)) {
        if (steps.size() > 1)
          throw step.error("'add_prefix_space' after other steps is not supported: use a GGUF file of this model");
        spec.prefix_space = true;
      }
      if (hf_flag_or(step, "use_regex", true)) patterns.emplace_back(find_pretokenizer("gpt-2").patterns.front());
      if (step.offset() != steps.back().offset()) hf_refuse(steps.back(), "after ByteLevel, the pre_tokenizer");
    } else {
      hf_refuse(step, "the pre_tokenizer");
    }
  }
  if (patterns.empty()) patterns.emplace_back(R"((?s).+)");  // the whole text is one word
  spec.patterns = std::move(patterns);
  spec.pre = "tokenizer.json";
}

void read_byte_level(const Json& root, const std::vector<Json>& cutters, TokenizerSpec& spec) {
  spec.model = kByteLevelBpe;
  spec.normalize = read_hf_normalizer(root);
  read_words(cutters, spec);
  for (const Json& step : hf_steps(root, "decoder", "decoders"))
    if (!hf_is_type(step, "ByteLevel")) hf_refuse(step, "the decoder");
}

// ---- SentencePiece BPE: spaces become U+2581, a leading U+2581 may be added, and the text is not split

// True if U+2581 occurs only at the start of tokens. Then no merge crosses a U+2581, and splitting there changes
// nothing.
bool marks_only_lead(const TokenizerSpec& spec) {
  return std::all_of(spec.tokens.begin(), spec.tokens.end(),
                     [](std::string_view token) { return token.find(kSpaceMark, 1) == token.npos; });
}

void read_metaspace(const Json& step, TokenizerSpec& spec) {
  if (!is_text(step, "replacement", kSpaceMark))
    throw step.error("'replacement' is not '{}', which is not supported", kSpaceMark);
  spec.split_words = hf_flag_or(step, "split", true);
  if (spec.model == kSentencePieceBpe && spec.split_words && !marks_only_lead(spec))
    throw step.error("'split', with tokens of several words, is not supported: use a GGUF file of this model");
  const auto scheme = step.find("prepend_scheme");
  const std::string_view prepend = scheme                                       ? scheme->string()
                                   : hf_flag_or(step, "add_prefix_space", true) ? "always"
                                                                                : "never";
  if (prepend != "always" && prepend != "first" && prepend != "never")
    throw scheme->error("'{}' is none of always, first and never", printable(prepend, 32));
  spec.add_space_prefix = prepend != "never";
  spec.prefix_rule = prepend == "first" ? PrefixRule::kFirstUnlessSpace : PrefixRule::kUnlessSpace;
}

void check_sentencepiece_decoder(const Json& root) {
  for (const Json& step : hf_steps(root, "decoder", "decoders")) {
    const bool known = hf_is_type(step, "ByteFallback") || hf_is_type(step, "Fuse") || hf_is_type(step, "Metaspace") ||
                       (hf_is_type(step, "Strip") && is_text(step, "content", " ")) ||
                       (hf_is_type(step, "Replace") && is_text(step, "content", " "));
    if (!known) hf_refuse(step, "the decoder");
  }
}

void read_sentencepiece(const Json& root, const std::vector<Json>& cutters, TokenizerSpec& spec) {
  spec.model = kSentencePieceBpe;
  spec.add_space_prefix = false;
  bool marks_spaces = false;
  for (const Json& step : hf_steps(root, "normalizer", "normalizers")) {
    if (hf_is_type(step, "Prepend") && is_text(step, "prepend", kSpaceMark)) {
      spec.add_space_prefix = true;
    } else if (hf_is_type(step, "Replace") && is_space_pattern(step) && is_text(step, "content", kSpaceMark)) {
      marks_spaces = true;
    } else if (hf_is_type(step, "NFC")) {
      spec.normalize.push_back({.kind = NormalizerStep::Kind::kNfc});
    } else {
      hf_refuse(step, "the normalizer");
    }
  }
  for (const Json& step : cutters) {
    if (hf_is_type(step, "Metaspace") && !marks_spaces) {
      read_metaspace(step, spec);
      marks_spaces = true;
    } else if (!(hf_is_type(step, "Split") && marks_spaces && is_space_pattern(step))) {
      // The normalizer has replaced all spaces, so this step splits nothing.
      hf_refuse(step, "the pre_tokenizer");
    }
  }
  if (!marks_spaces) throw root.error("the tokenizer does not write spaces as U+2581: use a GGUF file of this model");
  check_sentencepiece_decoder(root);
}
// ---- WordPiece and Unigram: rules that split words and may drop white space

// Empty if the step does not split.
std::vector<CutRule> cut_rules(const Json& step) {
  constexpr const char* kSpaces = R"(\s+)";
  if (hf_is_type(step, "WhitespaceSplit")) return {{kSpaces, Cut::kDropMatches}};
  if (hf_is_type(step, "BertPreTokenizer")) return bert_cuts();
  if (hf_is_type(step, "Whitespace")) {  // \w+|[^\w\s]+, with Rust's meaning of \w
    const std::string word = pcre2_from_oniguruma(R"([\w\x{200C}\x{200D}])"),
                      rest = pcre2_from_oniguruma(R"([^\w\x{200C}\x{200D}\s])");
    return {{word + "+|" + rest + "+", Cut::kDropRest}};
  }
  if (hf_is_type(step, "Split")) return {{split_pattern(step), Cut::kIsolate}};
  if (hf_is_type(step, "Punctuation")) return {{punctuation_pattern(step), Cut::kIsolate}};
  if (hf_is_type(step, "Digits"))
    return {{hf_flag_or(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", Cut::kIsolate}};
  return {};
}

void read_word_piece(const Json& root, const std::vector<Json>& cutters, TokenizerSpec& spec) {
  spec.normalize = read_hf_normalizer(root);
  for (const Json& step : cutters) {
    const std::vector<CutRule> rules = cut_rules(step);
    if (rules.empty()) hf_refuse(step, "the pre_tokenizer");
    spec.cuts.insert(spec.cuts.end(), rules.begin(), rules.end());
  }
  for (const Json& step : hf_steps(root, "decoder", "decoders")) {
    if (!hf_is_type(step, "WordPiece")) hf_refuse(step, "the decoder");
    spec.tidy_decode = hf_flag_or(step, "cleanup", true);
  }
}

void read_unigram(const Json& root, const std::vector<Json>& cutters, TokenizerSpec& spec) {
  spec.normalize = read_hf_normalizer(root);
  spec.add_space_prefix = false;
  for (const Json& step : cutters) {
    if (hf_is_type(step, "Metaspace")) {
      if (step.offset() != cutters.back().offset()) hf_refuse(cutters.back(), "after Metaspace, the pre_tokenizer");
      read_metaspace(step, spec);
      continue;
    }
    const std::vector<CutRule> rules = cut_rules(step);
    if (rules.empty()) hf_refuse(step, "the pre_tokenizer");
    spec.cuts.insert(spec.cuts.end(), rules.begin(), rules.end());
  }
  check_sentencepiece_decoder(root);
}

// ---- the tokens around a text

int64_t template_id(const Json& processor, const Json& token) {
  const std::string_view name = token.at("id").string();
  const Json ids = processor.at("special_tokens").at(name).at("ids");
  if (ids.elements().size() != 1) throw ids.error("expected one id for '{}'", printable(name, 64));
  return ids.elements().front().integer(0, kMaxId);
}

// ["[CLS]", 101]
int64_t processor_id(const Json& pair) {
  const std::vector<Json> parts = pair.elements();
  if (parts.size() != 2) throw pair.error("expected a token and its id, got {} elements", parts.size());
  return parts[1].integer(0, kMaxId);
}

// The tokens before the first text, after it (in a pair, before the second text), and after the second text.
struct Around {
  std::vector<int64_t> tokens[3];
  std::vector<int64_t> types[3];  // of texts and tokens; the last list has the second text's types
  int n_texts = 0;
};

Around read_pieces(const Json& processor, const Json& pieces) {
  Around around;
  for (const Json& piece : pieces.elements()) {
    const auto token = piece.find("SpecialToken");
    const Json part = token ? *token : piece.at("Sequence");
    if (!token && (++around.n_texts > 2 || part.at("id").string() != (around.n_texts == 1 ? "A" : "B")))
      throw piece.error("texts other than A, and B behind it, are not supported");
    if (token) around.tokens[around.n_texts].push_back(template_id(processor, *token));
    const auto type = part.find("type_id");
    around.types[around.n_texts].push_back(type ? type->integer(0, kMaxId) : 0);
  }
  return around;
}

bool all_are(const std::vector<int64_t>& types, int64_t type) {
  return std::ranges::all_of(types, [&](int64_t one) { return one == type; });
}

void read_pair(const Around& single, const Around& pair, TokenizerSpec& spec) {
  spec.pair_between = pair.tokens[1];
  spec.pair_is_known = pair.n_texts == 2 && pair.tokens[0] == single.tokens[0] && pair.tokens[2] == single.tokens[1];
  const bool begins_at_0 = all_are(pair.types[0], 0) && all_are(pair.types[1], 0);
  spec.pair_types = begins_at_0 && all_are(pair.types[2], 0)   ? PairTypes::kNone
                    : begins_at_0 && all_are(pair.types[2], 1) ? PairTypes::kSecond
                                                               : PairTypes::kOther;
}

void read_template(const Json& processor, TokenizerSpec& spec) {
  const Around single = read_pieces(processor, processor.at("single"));
  const auto& [before, after, none] = single.tokens;
  if (before.size() > 1 || after.size() > 1)
    throw processor.error("adds {} tokens before a text and {} after it: at most one each is supported", before.size(),
                          after.size());
  if (!before.empty()) spec.bos = before.front();
  if (!after.empty()) spec.eos = after.front();
  spec.add_bos = !before.empty();
  spec.add_eos = !after.empty();
  if (const auto pair = processor.find("pair")) read_pair(single, read_pieces(processor, *pair), spec);
}

}  // namespace

void read_hf_pipeline(const Json& root, TokenizerSpec& spec, bool adds_around) {
  const std::vector<Json> cutters = hf_steps(root, "pre_tokenizer", "pretokenizers");
  const bool byte_level =
      std::any_of(cutters.begin(), cutters.end(), [](const Json& step) { return hf_is_type(step, "ByteLevel"); });
  if (spec.model == kWordPieceModel) {
    read_word_piece(root, cutters, spec);
  } else if (spec.model == kUnigramModel) {
    read_unigram(root, cutters, spec);
  } else if (byte_level) {
    read_byte_level(root, cutters, spec);
  } else if (hf_flag_or(root.at("model"), "byte_fallback", false)) {
    read_sentencepiece(root, cutters, spec);
  } else {
    throw root.at("model").error("is neither byte-level BPE nor BPE with byte_fallback: use a GGUF file of this model");
  }
  spec.add_bos = spec.add_eos = false;
  if (!adds_around) return;
  for (const Json& step : hf_steps(root, "post_processor", "processors")) {
    if (hf_is_type(step, "TemplateProcessing")) {
      read_template(step, spec);
    } else if (hf_is_type(step, "BertProcessing") || hf_is_type(step, "RobertaProcessing")) {
      spec.bos = processor_id(step.at("cls"));
      spec.eos = processor_id(step.at("sep"));
      spec.add_bos = spec.add_eos = true;
      const bool roberta = hf_is_type(step, "RobertaProcessing");
      spec.pair_between.assign(roberta ? 2 : 1, *spec.eos);
      spec.pair_types = roberta ? PairTypes::kNone : PairTypes::kSecond;
    } else if (!hf_is_type(step, "ByteLevel")) {
      hf_refuse(step, "the post_processor");
    }
  }
}

}  // namespace ingot
