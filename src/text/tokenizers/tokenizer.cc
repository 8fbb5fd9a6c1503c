#include "text/tokenizers/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizers/bpe.h"
#include "text/tokenizers/characters.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/spm.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/unigram.h"
#include "text/tokenizers/wordpiece.h"
#include "text/tokenizers/world.h"

namespace ingot {

// The differences between the tokenizer models, except for how they make tokens.
struct TokenizerKind {
  std::string_view model;
  Spelling spelling;
  bool add_bos, add_eos;    // unless the checkpoint sets them
  bool repairs = false;     // bytes that are not UTF-8 become U+FFFD
};

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

constexpr TokenizerKind kKinds[] = {{kByteLevelBpe, Spelling::kGpt2, false, false},
                                    {kSentencePieceBpe, Spelling::kSentencePiece, true, false},
                                    {kWordPieceModel, Spelling::kWordPiece, true, true, true},
                                    {kUnigramModel, Spelling::kSentencePiece, false, true, true},
                                    {kWorldModel, Spelling::kEscaped, false, false}};

const TokenizerKind& kind_of(const TokenizerSpec& spec) {
  for (const TokenizerKind& kind : kKinds)
    if (kind.model == spec.model) return kind;
  throw Error(
      "{}: tokenizer model '{}' is not supported; '{}' (byte-level BPE), '{}' (SentencePiece BPE), '{}' (WordPiece), "
      "'{}' (Unigram) and '{}' (RWKV) are",
      printable(spec.source), printable(spec.model, 64), kByteLevelBpe, kSentencePieceBpe, kWordPieceModel,
      kUnigramModel, kWorldModel);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::create(const TokenizerSpec& spec) {
  return std::unique_ptr<Tokenizer>(new Tokenizer(spec));
}

Tokenizer::Tokenizer(const TokenizerSpec& spec)
    : model_(spec.model),
      pre_(spec.pre),
      kind_(kind_of(spec)),
      normalizer_(spec.normalize),
      prefix_rule_(spec.prefix_rule),
      vocab_(spec, kind_.spelling),
      pair_types_(spec.pair_types),
      pair_is_known_(spec.pair_is_known),
      subword_(make_subword(spec)) {
  collect_added_tokens(spec);
  for (const int64_t id : spec.pair_between)  // the vocabulary has already warned of ids that are not tokens
    if (id >= 0 && id < vocab_.size()) pair_between_.push_back(static_cast<int32_t>(id));
}

std::unique_ptr<Subword> Tokenizer::make_subword(const TokenizerSpec& spec) {
  if (kind_.spelling != Spelling::kGpt2) {
    read_flags(spec, kind_.add_bos);
    if (kind_.model == kWordPieceModel) return std::make_unique<WordPiece>(vocab_, spec);
    if (kind_.model == kWorldModel) return std::make_unique<World>(vocab_, spec);
    if (kind_.model == kUnigramModel) return std::make_unique<Unigram>(vocab_, spec, add_space_prefix_);
    return std::make_unique<Spm>(vocab_, spec, add_space_prefix_);
  }
  if (spec.patterns) {
    const std::vector<std::string_view> patterns(spec.patterns->begin(), spec.patterns->end());
    read_flags(spec, false);
    return std::make_unique<Bpe>(vocab_, spec, PretokenizerRow{{}, patterns, spec.whole_words});
  }
  const PretokenizerRow& row = find_pretokenizer(spec.pre);
  read_flags(spec, row.add_bos);
  return std::make_unique<Bpe>(vocab_, spec, row);
}

// add_bos: the default if the checkpoint does not set it.
void Tokenizer::read_flags(const TokenizerSpec& spec, bool add_bos) {
  const bool byte_level = kind_.spelling == Spelling::kGpt2;
  add_bos_ = spec.add_bos.value_or(add_bos);
  add_eos_ = spec.add_eos.value_or(kind_.add_eos);
  add_space_prefix_ = !byte_level && kind_.spelling != Spelling::kEscaped && spec.add_space_prefix.value_or(true);
  auto require = [&](bool& add, const std::optional<int32_t>& id, const char* name) {
    if (!add || id) return;
    if (!byte_level)
      throw Error("{}: the tokenizer adds {}, but names no {} token", printable(spec.source), name, name);
    log_warn("{}: the tokenizer adds {}, but names no {} token; none is added", printable(spec.source), name, name);
    add = false;
  };
  require(add_bos_, vocab_.bos, "BOS");
  require(add_eos_, vocab_.eos, "EOS");
}

void Tokenizer::collect_added_tokens(const TokenizerSpec& spec) {
  std::vector<std::pair<std::string_view, int32_t>> user_defined, all;
  for (int32_t id = 0; id < vocab_.size(); ++id) {
    if (!vocab_.is_added(id)) continue;
    all.emplace_back(vocab_.text(id), id);
    if (!vocab_.is_special(id)) user_defined.emplace_back(vocab_.text(id), id);
  }
  user_defined_ = AddedTokens(std::move(user_defined));
  all_added_ = AddedTokens(std::move(all));
  for (const StripRule& rule : spec.strips) strips_[checked(rule.id)] = rule;
}

int32_t Tokenizer::checked(int32_t id) const {
  if (id < 0 || id >= vocab_.size())
    throw Error("token id {} is outside of the vocabulary (0 to {})", id, vocab_.size() - 1);
  return id;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes)
    throw Error("the text has {} bytes; at most {} can be tokenized at once", text.size(), kMaxTextBytes);
  std::vector<int32_t> ids;
  const bool bos = options.add_special && add_bos_;
  if (bos) ids.push_back(*vocab_.bos);
  encode_body(text, options, ids);
  if (bos && !options.repeats_bos && ids.size() > 1 && ids[1] == *vocab_.bos) ids.erase(ids.begin());
  if (options.add_special && add_eos_) ids.push_back(*vocab_.eos);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_pair(std::string_view first, std::string_view second, size_t max_tokens,
                                            size_t& n_first) const {
  if (!pair_is_known_ || pair_types_ == PairTypes::kOther)
    throw Error("the tokenizer joins two texts in a way that is not supported: {}",
                pair_is_known_ ? "its token types are not 0 for the first text and 1 for the second"
                               : "its first and last tokens differ from those of a single text");
  std::vector<int32_t> ids, rest;
  if (add_bos_) ids.push_back(*vocab_.bos);
  const size_t n_before = ids.size(), n_added = n_before + pair_between_.size() + (add_eos_ ? 1 : 0);
  for (const std::string_view text : {first, second})
    if (text.size() > kMaxTextBytes)
      throw Error("the text has {} bytes; at most {} can be tokenized at once", text.size(), kMaxTextBytes);
  encode_body(first, {}, ids);
  encode_body(second, {}, rest);
  const size_t room = max_tokens > n_added ? max_tokens - n_added : 0, n_own = ids.size() - n_before;
  if (n_own + rest.size() > room) {
    const size_t shorter = std::min({n_own, rest.size(), room / 2});
    const bool second_is_longer = rest.size() > n_own;
    ids.resize(n_before + (second_is_longer ? shorter : room - shorter));
    rest.resize(second_is_longer ? room - shorter : shorter);
  }
  ids.insert(ids.end(), pair_between_.begin(), pair_between_.end());
  n_first = ids.size();
  ids.insert(ids.end(), rest.begin(), rest.end());
  if (add_eos_) ids.push_back(*vocab_.eos);
  return ids;
}

AddedTokens::Match Tokenizer::next_added(std::string_view text, size_t from, const EncodeOptions& options) const {
  const AddedTokens& added = options.parse_special ? all_added_ : user_defined_;
  auto is_quoted = [&](const AddedTokens::Match& match) {
    const auto first = std::lower_bound(options.quoted.begin(), options.quoted.end(), match.begin);
    return first != options.quoted.end() && *first < match.end;
  };
  AddedTokens::Match match = added.find(text, from);
  while (match.id >= 0 && vocab_.is_special(match.id) && is_quoted(match)) match = added.find(text, match.begin + 1);
  return match;
}

void Tokenizer::encode_body(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids) const {
  bool at_start = true;
  size_t done = 0;
  while (done < text.size()) {
    const AddedTokens::Match match = next_added(text, done, options);
    std::string_view plain = text.substr(done, match.begin - done);
    const auto strip = strips_.find(match.id);
    if (strip != strips_.end() && strip->second.left) plain = without_trailing_space(plain);
    if (!plain.empty()) encode_plain(plain, at_start, ids);
    if (match.id < 0) break;
    ids.push_back(match.id);
    at_start = prefix_rule_ != PrefixRule::kFirstUnlessSpace;
    done = match.end;
    if (strip != strips_.end() && strip->second.right) done += leading_space(text.substr(done));
  }
}

void Tokenizer::encode_plain(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  std::string changed;
  if (kind_.repairs && !is_valid_utf8(text)) text = changed = replace_invalid_utf8(text);
  if (!normalizer_.empty()) text = changed = normalizer_.apply(text);
  subword_->encode(text, at_start, ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  bool at_start = true;
  for (int32_t id : ids) append_decoded(id, skip_special, at_start, out);
  return out;
}

void Tokenizer::append_decoded(int32_t id, bool skip_special, bool& at_start, std::string& out) const {
  std::string_view bytes = token_bytes(id);
  const bool added = vocab_.is_added(id);
  if (at_start && !added && add_space_prefix_ && !bytes.empty() && bytes[0] == ' ') bytes.remove_prefix(1);
  const bool skipped = skip_special && vocab_.is_special(id);
  const bool was_at_start = at_start;
  at_start = added && (prefix_rule_ != PrefixRule::kFirstUnlessSpace || (at_start && id == vocab_.bos));
  if (kind_.repairs) at_start = was_at_start && skipped;  // for encoders, only a skipped token keeps at_start
  if (!skipped) out += bytes;
}

std::vector<int32_t> Tokenizer::end_tokens() const {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < n_vocab(); ++id)
    if (is_end(id)) ids.push_back(id);
  return ids;
}

}  // namespace ingot
