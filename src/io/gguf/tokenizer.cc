#include "io/gguf/tokenizer.h"

#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/wordpiece.h"

namespace ingot {
namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens", kMerges[] = "tokenizer.ggml.merges";

// Some files declare these arrays as bytes. A reader that casts the elements without a check would read past the end.
void require_elements(const Metadata& metadata, std::string_view key, std::initializer_list<ValueType> allowed) {
  const Value* value = metadata.find(key);
  if (!value || !value->is_array()) return;  // the getters report a value that is not an array
  for (ValueType type : allowed)
    if (value->element == type) return;
  throw metadata.error(key, "expected an array of {}, got {}", value_type_name(*allowed.begin()), value->type_name());
}

// A flag of SentencePiece's or BERT's normalizer. Most files lack these flags.
bool flag_or(const Metadata& metadata, const char* key, bool fallback) {
  return metadata.find_bool(key).value_or(fallback);
}

std::optional<int64_t> find_separator(const Metadata& metadata) {
  // The first spelling is llama.cpp's.
  for (const char* key : {"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id"})
    if (const auto separator = metadata.find_i64(key)) return separator;
  return std::nullopt;
}

// For BERT: CLS before a text, SEP after the text.
void read_word_piece(const Metadata& metadata, TokenizerSpec& spec) {
  const bool lowercase = flag_or(metadata, "tokenizer.ggml.normalizer.lowercase", true);
  spec.normalize =
      bert_normalizer(true, true, metadata.find_bool("tokenizer.ggml.normalizer.strip_accents"), lowercase);
  spec.cuts = bert_cuts();
  if (const auto cls = metadata.find_i64("tokenizer.ggml.cls_token_id")) spec.bos = cls;
  if (const auto separator = find_separator(metadata)) spec.eos = separator;
}

void read_unigram(const Metadata& metadata, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  constexpr char kCharsmap[] = "tokenizer.ggml.precompiled_charsmap";
  require_elements(metadata, kCharsmap, {ValueType::kU8, ValueType::kI8});
  if (const auto map = metadata.find_i32s(kCharsmap); map && !map->empty()) {
    std::string bytes;
    for (const int32_t byte : *map) bytes += static_cast<char>(byte);
    spec.normalize.push_back({.kind = Kind::kCharsmap, .from = std::move(bytes)});
  }
  if (!flag_or(metadata, "tokenizer.ggml.remove_extra_whitespaces", true)) return;
  spec.normalize.push_back({.kind = Kind::kReplacePattern, .from = "^ +| +$|(?<= ) +", .to = ""});
}

// As in llama.cpp: EOS after each text, and SEP before the second text if the file asks for SEP.
void read_pair(const Metadata& metadata, TokenizerSpec& spec) {
  const bool encoder = spec.model == kWordPieceModel || spec.model == kUnigramModel;
  const bool xlm_roberta = spec.model == kUnigramModel;  // older files lack the key but need two tokens
  if (spec.eos && spec.add_eos.value_or(encoder)) spec.pair_between.push_back(*spec.eos);
  if (!metadata.find_bool("tokenizer.ggml.add_sep_token").value_or(xlm_roberta)) return;
  const auto separator = find_separator(metadata);
  if (separator || spec.eos) spec.pair_between.push_back(separator ? *separator : *spec.eos);
}

}  // namespace

TokenizerSpec tokenizer_spec(const Gguf& file) {
  const Metadata& metadata = file.metadata();
  TokenizerSpec spec;
  spec.source = file.path();
  spec.model = metadata.get_string("tokenizer.ggml.model");
  spec.pre = metadata.find_string("tokenizer.ggml.pre").value_or("");
  spec.tokens = metadata.get_strings(kTokens);
  require_elements(metadata, "tokenizer.ggml.scores", {ValueType::kF32});
  spec.scores = metadata.find_f32s("tokenizer.ggml.scores").value_or(std::vector<float>{});
  require_elements(metadata, "tokenizer.ggml.token_type", {ValueType::kI32, ValueType::kU32});
  spec.token_types = metadata.find_i32s("tokenizer.ggml.token_type").value_or(std::vector<int32_t>{});
  const bool has_merges = spec.model == kByteLevelBpe || spec.model == kSentencePieceBpeByMerges;
  spec.merges = has_merges ? metadata.get_strings(kMerges) : std::vector<std::string_view>{};
  spec.bos = metadata.find_i64("tokenizer.ggml.bos_token_id");
  spec.eos = metadata.find_i64("tokenizer.ggml.eos_token_id");
  spec.eot = metadata.find_i64("tokenizer.ggml.eot_token_id");
  spec.eom = metadata.find_i64("tokenizer.ggml.eom_token_id");
  // Byte-level files may name the unknown token of tokenizer_config.json. This token is ignored, because llama.cpp and
  // Hugging Face drop text that has no token.
  if (spec.model != kByteLevelBpe) spec.unk = metadata.find_i64("tokenizer.ggml.unknown_token_id");
  spec.pad = metadata.find_i64("tokenizer.ggml.padding_token_id");
  spec.add_bos = metadata.find_bool("tokenizer.ggml.add_bos_token");
  spec.add_eos = metadata.find_bool("tokenizer.ggml.add_eos_token");
  spec.add_space_prefix = metadata.find_bool("tokenizer.ggml.add_space_prefix");
  if (has_merges && (spec.model == kSentencePieceBpeByMerges || is_sentencepiece_like(spec.pre))) {
    spec.model = kSentencePieceBpe;
    spec.scores.clear();
    spec.add_bos = spec.add_bos.value_or(false);
    spec.add_space_prefix = spec.add_space_prefix.value_or(false);
  }
  if (spec.model == kWordPieceModel) read_word_piece(metadata, spec);
  if (spec.model == kUnigramModel) read_unigram(metadata, spec);
  read_pair(metadata, spec);
  return spec;
}

}  // namespace ingot
