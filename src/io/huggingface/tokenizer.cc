#include "io/huggingface/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "io/huggingface/modules.h"
#include "io/huggingface/normalizer.h"
#include "io/huggingface/pipeline.h"
#include "io/huggingface/rwkv_vocab.h"
#include "io/huggingface/tekken.h"

namespace ingot {
namespace {

constexpr int64_t kMaxId = 1 << 24;
constexpr const char* kInstead = "use a GGUF file of this model";

using Ids = std::unordered_map<std::string_view, int32_t>;

bool flag(const Json& object, const char* key) { return hf_flag_or(object, key, false); }

// The vocabulary and added tokens of tokenizer.json, by id.
class TokenTable {
 public:
  explicit TokenTable(HfTokenizerSpec& out) : out_(out) {}

  // [["piece", score], ...], the form of Unigram models.
  void add_pieces(const Json& vocab) {
    const std::vector<Json> pieces = vocab.elements();
    n_entries_ = pieces.size();
    for (size_t id = 0; id < pieces.size(); ++id) {
      const std::vector<Json> parts = pieces[id].elements();
      if (parts.size() != 2) throw pieces[id].error("expected a token and its score, got {} elements", parts.size());
      if (parts[0].string().empty()) throw pieces[id].error("the token is empty");
      set(pieces[id], static_cast<int64_t>(id), parts[0].string(), TokenType::kNormal);
      out_.spec.scores.push_back(static_cast<float>(parts[1].number()));
    }
  }

  void add_vocabulary(const Json& vocab) {
    const auto members = vocab.members();
    n_entries_ = members.size();
    for (const auto& [text, id] : members) set(id, id.integer(0, kMaxId), text, TokenType::kNormal);
  }

  void add_added(const Json& token, int64_t id) {
    const std::string_view text = token.at("content").string();
    if (text.empty()) throw token.error("'content' is empty: it would match everywhere");
    if (flag(token, "single_word")) throw token.error("'single_word' is not supported: {}", kInstead);
    ++n_entries_;
    set(token, id, text, flag(token, "special") ? TokenType::kControl : TokenType::kUserDefined);
    const bool left = flag(token, "lstrip"), right = flag(token, "rstrip");
    if (left || right) out_.spec.strips.push_back({static_cast<int32_t>(id), left, right});
  }

  bool has(int64_t id) const { return id < static_cast<int64_t>(types_.size()) && types_[id] != TokenType::kUndefined; }

  // Ids without a name become unused tokens.
  void finish() {
    TokenizerSpec& spec = out_.spec;
    for (size_t id = 0; id < types_.size(); ++id) {
      if (types_[id] != TokenType::kUndefined) continue;
      types_[id] = TokenType::kUnused;
      spec.tokens[id] = out_.strings.emplace_back(fmt::format("<unused id {}>", id));
    }
    for (TokenType type : types_) spec.token_types.push_back(static_cast<int32_t>(type));
    ids_.reserve(types_.size());
    for (size_t id = 0; id < types_.size(); ++id) ids_.try_emplace(spec.tokens[id], static_cast<int32_t>(id));
  }

  // Rewrites "##ing" and "the" as "ing" and "\u2581the", as GGUF spells WordPiece vocabularies (wordpiece.h).
  void mark_word_starts(std::string_view continuing_prefix) {
    for (size_t id = 0; id < types_.size(); ++id) {
      std::string_view& token = out_.spec.tokens[id];
      if (types_[id] != TokenType::kNormal) continue;
      if (token.starts_with(continuing_prefix)) {
        token.remove_prefix(continuing_prefix.size());
      } else {
        token = out_.strings.emplace_back("\xE2\x96\x81" + std::string(token));
      }
    }
  }

  const Ids& ids() const { return ids_; }

 private:
  void set(const Json& at, int64_t id, std::string_view text, TokenType type) {
    auto& tokens = out_.spec.tokens;
    if (id >= static_cast<int64_t>(4 * n_entries_))
      throw at.error("the token id is {}, but there are only {} tokens", id, n_entries_);
    if (id >= static_cast<int64_t>(types_.size())) {
      tokens.resize(id + 1);
      types_.resize(id + 1, TokenType::kUndefined);
    }
    if (types_[id] != TokenType::kUndefined && tokens[id] != text)
      throw at.error("'{}' has the id {}, which is that of '{}'", printable(text, 64), id, printable(tokens[id], 64));
    tokens[id] = text;
    types_[id] = type;
  }

  HfTokenizerSpec& out_;
  size_t n_entries_ = 0;
  std::vector<TokenType> types_;  // kUndefined: the id has no token yet
  Ids ids_;
};

// The name of the model's kind; read_hf_pipeline determines the kind of BPE.
std::string_view model_of(const Json& model) {
  const auto type = model.find("type");
  const std::string_view name = type ? type->string() : "BPE";
  if (name == "WordPiece") return kWordPieceModel;
  if (name == "Unigram") return kUnigramModel;
  if (name != "BPE")
    throw type->error("tokenizers of type '{}' are not supported; BPE, WordPiece and Unigram are: {}",
                      printable(name, 64), kInstead);
  if (model.find("dropout")) throw model.at("dropout").error("is not supported: {}", kInstead);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto value = model.find(key); value && !value->string().empty())
      throw value->error("is not supported: {}", kInstead);
  return {};
}

void read_word_piece_model(const Json& model, TokenTable& table, TokenizerSpec& spec) {
  const auto prefix = model.find("continuing_subword_prefix");
  if (prefix && prefix->string().empty()) throw prefix->error("is empty: {}", kInstead);
  table.mark_word_starts(prefix ? prefix->string() : "##");
  if (const auto longest = model.find("max_input_chars_per_word"))
    spec.max_word_chars = static_cast<int>(longest->integer(1, 1 << 20));
}

void mark_byte_tokens(TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view text = spec.tokens[id];
    const bool is_normal = spec.token_types[id] == static_cast<int32_t>(TokenType::kNormal);
    if (is_normal && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'))
      spec.token_types[id] = static_cast<int32_t>(TokenType::kByte);
  }
}

void read_unigram_model(const Json& model, TokenizerSpec& spec) {
  spec.scores.resize(spec.tokens.size());
  if (const auto unk = model.find("unk_id")) spec.unk = unk->integer(0, kMaxId);
  if (flag(model, "byte_fallback")) mark_byte_tokens(spec);
}

// "left right", or ["left", "right"] in newer files.
void read_merges(const Json& merges, HfTokenizerSpec& out) {
  for (const Json& merge : merges.elements()) {
    if (merge.is_string()) {
      out.spec.merges.push_back(merge.string());
      continue;
    }
    const auto parts = merge.elements();
    if (parts.size() != 2) throw merge.error("expected two tokens, got {}", parts.size());
    for (const Json& part : parts)
      if (part.string().empty() || part.string().find(' ') != std::string_view::npos)
        throw part.error("a token to merge is empty or has a space");
    out.spec.merges.push_back(out.strings.emplace_back(fmt::format("{} {}", parts[0].string(), parts[1].string())));
  }
}

// A token in tokenizer_config.json: its text, or an object with the text.
std::optional<int64_t> named_token(const JsonDocument& document, const char* key, const Ids& ids) {
  const auto value = document.root().find(key);
  if (!value) return std::nullopt;
  const auto found = ids.find(value->is_object() ? value->at("content").string() : value->string());
  return found == ids.end() ? std::nullopt : std::optional<int64_t>(found->second);
}

void read_special_tokens(const HfDirectory& directory, const Ids& ids, TokenizerSpec& spec) {
  const std::pair<const char*, std::optional<int64_t>*> kTokens[] = {
      {"bos_token", &spec.bos}, {"eos_token", &spec.eos}, {"pad_token", &spec.pad}};
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto document = directory.find_document(file);
    if (!document) continue;
    for (const auto& [key, id] : kTokens)
      if (!*id) *id = named_token(*document, key, ids);
    if (const auto add = document->root().find("add_bos_token")) spec.add_bos = add->boolean();
    if (const auto add = document->root().find("add_eos_token")) spec.add_eos = add->boolean();
  }
}

// True if the model gets token types. As in transformers 5, model_input_names decides, else tokenizer_class.
bool tells_types(const HfDirectory& directory) {
  const auto document = directory.find_document("tokenizer_config.json");
  if (!document) return true;
  if (const auto inputs = document->root().find("model_input_names")) {
    const std::vector<Json> names = inputs->elements();
    return std::ranges::any_of(names, [](const Json& name) { return name.string() == "token_type_ids"; });
  }
  const auto kind = document->root().find("tokenizer_class");
  return !kind || kind->string().starts_with("Bert") || kind->string().starts_with("Electra");
}

// As in sentence-transformers: lower case comes before all other steps, unless a step already does it.
void add_lower_case(const HfDirectory& directory, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  if (!read_hf_text_options(directory).lower_case) return;
  if (std::ranges::find(spec.normalize, Kind::kLowercase, &NormalizerStep::kind) != spec.normalize.end()) return;
  spec.normalize.insert(spec.normalize.begin(), {.kind = Kind::kLowercase});
}

int64_t id_of_key(std::string_view key, const Json& token) {
  int64_t id = 0;
  for (const char c : key) {
    if (c < '0' || c > '9' || id > kMaxId) throw token.error("the key is not a token id");
    id = id * 10 + (c - '0');
  }
  if (key.empty() || id > kMaxId) throw token.error("the key is not a token id");
  return id;
}

void read_tokens(const HfDirectory& directory, const Json& root, TokenTable& table, HfTokenizerSpec& out) {
  const Json vocab = root.at("model").at("vocab");
  out.spec.model == kUnigramModel ? table.add_pieces(vocab) : table.add_vocabulary(vocab);
  if (const auto added = root.find("added_tokens"))
    for (const Json& token : added->elements()) table.add_added(token, token.at("id").integer(0, kMaxId));
  // Tokens that were added after tokenizer.json was written.
  if (const auto config = directory.find_document("tokenizer_config.json")) {
    out.documents.push_back(*config);
    if (const auto tokens = config->root().find("added_tokens_decoder"))
      for (const auto& [key, token] : tokens->members())
        if (const int64_t id = id_of_key(key, token); !table.has(id)) table.add_added(token, id);
  }
  table.finish();
}

}  // namespace

std::unique_ptr<HfTokenizerSpec> read_hf_tokenizer(const HfDirectory& directory, const std::vector<int64_t>& ends,
                                                   bool adds_around) {
  if (!directory.has("tokenizer.json") && directory.has(kTekkenFile)) return read_tekken(directory);
  if (!directory.has("tokenizer.json") && directory.has(kRwkvVocabFile)) return read_rwkv_vocab(directory, ends);
  if (!directory.has("tokenizer.json"))
    throw Error(
        "{}: is missing, and tokenizers in other files (tokenizer.model, vocab.json) are not read: download it, or {}",
        printable(directory.file("tokenizer.json")), kInstead);
  auto out = std::make_unique<HfTokenizerSpec>();
  out->documents.push_back(directory.document("tokenizer.json"));
  const Json root = out->documents.front().root(), model = root.at("model");
  TokenizerSpec& spec = out->spec;
  spec.source = out->documents.front().source();
  spec.model = model_of(model);
  TokenTable table(*out);
  read_tokens(directory, root, table, *out);
  if (spec.model == kWordPieceModel) {
    read_word_piece_model(model, table, spec);
  } else if (spec.model == kUnigramModel) {
    read_unigram_model(model, spec);
  } else {
    read_merges(model.at("merges"), *out);
  }
  read_hf_pipeline(root, spec, adds_around);
  add_lower_case(directory, spec);
  if (!tells_types(directory)) spec.pair_types = PairTypes::kNone;
  spec.whole_words = flag(model, "ignore_merges");
  if (spec.model == kSentencePieceBpe) {
    if (spec.whole_words) throw model.at("ignore_merges").error("is not supported with byte_fallback: {}", kInstead);
    mark_byte_tokens(spec);
  }
  read_special_tokens(directory, table.ids(), spec);
  if (const auto unk = model.find("unk_token"))
    if (const auto found = table.ids().find(unk->string()); found != table.ids().end()) spec.unk = found->second;
  spec.ends = ends;
  if (!spec.eos && !ends.empty()) spec.eos = ends.front();
  return out;
}

}  // namespace ingot
