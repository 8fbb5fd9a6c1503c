#include "io/gguf/tokenizer_writer.h"

#include <algorithm>
#include <unordered_map>

#include "base/log.h"
#include "base/utf8.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/wordpiece.h"

namespace ingot {
namespace {

using Ids = std::unordered_map<std::string_view, int32_t>;

std::string pre_of(const TokenizerSpec& spec) {
  if (spec.model != kByteLevelBpe) return "default";
  if (!spec.patterns) return spec.pre;
  if (const auto name = pretokenizer_name(*spec.patterns, spec.whole_words)) return std::string(*name);
  std::string patterns;
  for (const std::string& pattern : *spec.patterns)
    patterns += fmt::format("{}'{}'", patterns.empty() ? "" : ", ", printable(pattern));
  throw Error(
      "{}: GGUF has no name (tokenizer.ggml.pre) for this pre-tokenizer: {}{}; run the directory without converting it",
      printable(spec.source), patterns, spec.whole_words ? ", with ignore_merges" : "");
}

size_t n_characters(std::string_view text) {
  size_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(std::max<size_t>(1, utf8_length(text)));
  return n;
}

// True if the token can be split into two tokens in more ways than the list of merges contains. SentencePiece would
// then merge pairs that are not in the list.
bool splits_in_other_ways(std::string_view token, const Ids& ids,
                          const std::unordered_map<std::string_view, int>& n_merges) {
  int n_splits = 0;
  for (size_t at = 1; at < token.size(); ++at)
    n_splits += ids.contains(token.substr(0, at)) && ids.contains(token.substr(at));
  const auto listed = n_merges.find(token);
  return n_splits != (listed == n_merges.end() ? 0 : listed->second);
}

// SentencePiece merges by the score of the merged token; a tokenizer.json lists the pairs, best first. Here a token's
// score is the negated position of its first pair. The tokenizers are equivalent if the list has every way to split a
// token in two, and if all pairs of a token are adjacent, as in lists made from scores.
std::vector<float> scores_from_merges(const TokenizerSpec& spec) {
  std::vector<std::string> made;  // the merged tokens, in the order of the list
  for (std::string_view merge : spec.merges) {
    const size_t space = merge.find(' ');
    made.push_back(std::string(merge.substr(0, space)) + std::string(merge.substr(std::min(merge.size(), space + 1))));
  }
  Ids ids;
  for (size_t id = 0; id < spec.tokens.size(); ++id)
    if (spec.token_types[id] == static_cast<int32_t>(TokenType::kNormal))
      ids.emplace(spec.tokens[id], static_cast<int32_t>(id));
  const float last = -static_cast<float>(made.size()) - 1;
  std::vector<float> scores(spec.tokens.size(), last);
  std::unordered_map<std::string_view, int> n_merges;
  size_t n_inexact = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    const auto id = ids.find(made[i]);
    if (id == ids.end()) continue;
    if (++n_merges[made[i]] == 1) {
      scores[id->second] = -static_cast<float>(i);
    } else if (made[i - 1] != made[i]) {
      ++n_inexact;
    }
  }
  for (const auto& [token, id] : ids)
    n_inexact += n_characters(token) > 1 && splits_in_other_ways(token, ids, n_merges);
  if (n_inexact > 0)
    log_warn(
        "{}: GGUF's scores cannot store the exact merge order of {} tokens: some words may be tokenized differently",
        printable(spec.source), n_inexact);
  return scores;
}

// tokenizer.json's name of a step. The flags of a BertNormalizer are steps here.
const char* step_name(const NormalizerStep& step) {
  constexpr const char* kNames[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer: strip_accents",
                                    "StripAccents", "BertNormalizer: clean_text",
                                    "BertNormalizer: handle_chinese_chars", "Nmt", "Replace", "Replace", "Prepend",
                                    "Strip", "Precompiled"};
  return kNames[static_cast<size_t>(step.kind)];
}

[[noreturn]] void refuse(const TokenizerSpec& spec, const std::string& what) {
  throw Error("{}: GGUF cannot store {} of this tokenizer: run the directory without converting it",
              printable(spec.source), what);
}

[[noreturn]] void refuse_step(const TokenizerSpec& spec, const NormalizerStep& step) {
  refuse(spec, fmt::format("the normalizer '{}'", step_name(step)));
}

// What GGUF has no key for in a BPE tokenizer. Only some texts depend on NFC, so NFC causes a warning.
void check_bpe(const TokenizerSpec& spec) {
  for (const NormalizerStep& step : spec.normalize) {
    if (step.kind != NormalizerStep::Kind::kNfc) refuse_step(spec, step);
    log_warn(
        "{}: GGUF cannot store the normalizer 'NFC': texts with decomposed characters, such as e and U+0301 for \u00e9, "
        "will get other tokens",
        printable(spec.source));
  }
  if (spec.prefix_space) refuse(spec, "the 'add_prefix_space'");
}

void write_id(GgufWriter& writer, const char* name, std::optional<int64_t> id) {
  if (id && *id >= 0) writer.set(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*id));
}

// Writes eos and up to two more tokens that end an answer: GGUF has only three keys for such tokens.
void write_ends(const TokenizerSpec& spec, GgufWriter& writer) {
  write_id(writer, "eos", spec.eos);
  std::vector<int64_t> ends;
  for (const auto& id : {spec.eot, spec.eom})
    if (id) ends.push_back(*id);
  for (const int64_t id : spec.ends)
    if (id != spec.eos && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  if (!ends.empty()) write_id(writer, "eot", ends[0]);
  if (ends.size() > 1) write_id(writer, "eom", ends[1]);
  for (size_t i = 2; i < ends.size(); ++i)
    log_warn(
        "{}: token {} also ends an answer, but GGUF has keys for only three such tokens: the file will not have this "
        "one",
        printable(spec.source), ends[i]);
}

bool same(const NormalizerStep& a, const NormalizerStep& b) {
  return a.kind == b.kind && a.from == b.from && a.to == b.to;
}

bool same(const std::vector<NormalizerStep>& a, const std::vector<NormalizerStep>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same(x, y); });
}

// Finds the flags of BERT's normalizer that give the normalizer of the specification.
void write_word_piece(const TokenizerSpec& spec, GgufWriter& writer) {
  for (const bool lowercase : {true, false})
    for (const bool strip_accents : {true, false}) {
      if (!same(spec.normalize, bert_normalizer(true, true, strip_accents, lowercase))) continue;
      writer.set("tokenizer.ggml.normalizer.lowercase", lowercase);
      writer.set("tokenizer.ggml.normalizer.strip_accents", strip_accents);
      return;
    }
  for (const NormalizerStep& step : spec.normalize)
    if (std::ranges::none_of(bert_normalizer(true, true, true, true), [&](const auto& known) { return same(known, step); }))
      refuse_step(spec, step);
  refuse(spec, "the BertNormalizer's options, or the order of the normalizers");
}

void check_cuts(const TokenizerSpec& spec) {
  const auto is_same = [](const CutRule& a, const CutRule& b) { return a.pattern == b.pattern && a.cut == b.cut; };
  if (spec.model == kWordPieceModel && !std::ranges::equal(spec.cuts, bert_cuts(), is_same))
    refuse(spec, "the pre_tokenizer, which is not a BertPreTokenizer,");
  if (spec.model != kUnigramModel) return;
  for (const CutRule& rule : spec.cuts)
    if (rule.cut != Cut::kDropMatches)
      refuse(spec, fmt::format("the pre_tokenizer that cuts at '{}'", printable(rule.pattern, 64)));
}

// A run of spaces becomes one space, as in all published tokenizers.
bool joins_spaces(const NormalizerStep& step) {
  return step.kind == NormalizerStep::Kind::kReplacePattern && step.from == " {2,}" &&
         (step.to == " " || step.to == "\u2581");
}

void write_unigram(const TokenizerSpec& spec, GgufWriter& writer) {
  using Kind = NormalizerStep::Kind;
  bool drops_spaces = false, has_map = false;
  for (const CutRule& rule : spec.cuts) drops_spaces = drops_spaces || rule.cut == Cut::kDropMatches;
  for (const NormalizerStep& step : spec.normalize) {
    if (step.kind == Kind::kCharsmap && !has_map) {
      has_map = true;
      writer.set("tokenizer.ggml.precompiled_charsmap", std::vector<uint8_t>(step.from.begin(), step.from.end()));
    } else if (joins_spaces(step) || step.kind == Kind::kStrip) {
      drops_spaces = true;
    } else {
      refuse_step(spec, step);
    }
  }
  writer.set("tokenizer.ggml.remove_extra_whitespaces", drops_spaces);
}

}  // namespace

void write_tokenizer(const TokenizerSpec& spec, int n_rows, GgufWriter& writer) {
  if (spec.tokens.size() > static_cast<size_t>(n_rows))
    throw Error("{}: the tokenizer has {} tokens, but the embedding has only {} rows", printable(spec.source),
                spec.tokens.size(), n_rows);
  const bool by_score = spec.model == kSentencePieceBpe;
  if (by_score || spec.model == kByteLevelBpe) check_bpe(spec);
  check_cuts(spec);
  std::vector<std::string> tokens(spec.tokens.begin(), spec.tokens.end());
  std::vector<int32_t> types = spec.token_types;
  types.resize(tokens.size(), static_cast<int32_t>(TokenType::kNormal));
  std::vector<float> scores = spec.scores;
  if (by_score && scores.empty()) scores = scores_from_merges(spec);
  const float least = scores.empty() ? 0 : *std::min_element(scores.begin(), scores.end());
  while (tokens.size() < static_cast<size_t>(n_rows)) {
    tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
    types.push_back(static_cast<int32_t>(TokenType::kUnused));
    if (!scores.empty()) scores.push_back(least);
  }
  writer.set("tokenizer.ggml.model", spec.model);
  writer.set("tokenizer.ggml.pre", pre_of(spec));
  writer.set("tokenizer.ggml.tokens", tokens);
  if (!scores.empty()) writer.set("tokenizer.ggml.scores", scores);
  writer.set("tokenizer.ggml.token_type", types);
  if (spec.model == kByteLevelBpe) writer.set("tokenizer.ggml.merges", spec.merges);
  if (spec.model == kWordPieceModel) write_word_piece(spec, writer);
  if (spec.model == kUnigramModel) write_unigram(spec, writer);
  write_id(writer, "bos", spec.bos);
  write_ends(spec, writer);
  write_id(writer, "unknown", spec.unk);
  write_id(writer, "padding", spec.pad);
  writer.set("tokenizer.ggml.add_bos_token", spec.add_bos.value_or(by_score));
  writer.set("tokenizer.ggml.add_eos_token", spec.add_eos.value_or(false));
  if (by_score || spec.model == kUnigramModel)
    writer.set("tokenizer.ggml.add_space_prefix", spec.add_space_prefix.value_or(true));
  if (spec.pair_between.empty()) return;
  write_id(writer, "cls", spec.bos);
  write_id(writer, "seperator", spec.pair_between.back());  // llama.cpp's spelling
  writer.set("tokenizer.ggml.add_sep_token", spec.pair_between.size() > 1);
}

}  // namespace ingot
