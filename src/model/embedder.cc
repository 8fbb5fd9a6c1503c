#include "model/embedder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/trace.h"
#include "base/error.h"
#include "io/gguf.h"
#include "io/hf_directory.h"
#include "io/hf_pooling.h"
#include "model/encoder.h"
#include "model/transformer.h"

namespace ingot {
namespace {

constexpr int kMostDefaultTokens = 8192;  // activations are allocated for the longest text
constexpr int kMaxSeqs = 256;             // of a batch

constexpr std::pair<std::string_view, Pooling> kPoolings[] = {{"cls", Pooling::kCls}, {"mean", Pooling::kMean}, {"last", Pooling::kLast}};

bool is_pooling(std::string_view name) {
  return name == "none" || name == "rank" || std::any_of(std::begin(kPoolings), std::end(kPoolings), [&](const auto& row) { return row.first == name; });
}

// GGUF's numbers: none, mean, cls, last, rank.
std::optional<std::string> gguf_pooling(const Gguf& file) {
  constexpr const char* kNames[] = {"none", "mean", "cls", "last", "rank"};
  const Metadata& metadata = file.metadata();
  const std::string key = std::string(metadata.get_string("general.architecture")) + ".pooling_type";
  const auto number = metadata.find_u32(key);
  if (!number) return std::nullopt;
  if (*number >= std::size(kNames)) throw metadata.error(key, "{} is not known: expected 0 to {}", *number, std::size(kNames) - 1);
  return kNames[*number];
}

std::optional<std::string> directory_pooling(const HfDirectory& directory) {
  const auto found = read_hf_pooling(directory);
  if (!found) return std::nullopt;
  const std::string name = *found == "lasttoken" ? "last" : *found;
  if (!is_pooling(name)) throw Error("{}: pooling by '{}' is not supported: cls, mean and last are", printable(directory.path()), name);
  return name;
}

// What comes after pooling in sentence-transformers; a model without one of its modules is another model.
void check_modules(const HfDirectory& directory) {
  const auto document = directory.find_document("modules.json");
  if (!document) return;
  for (const Json& module : document->root().elements()) {
    const std::string_view type = module.at("type").string();
    const std::string_view last = type.substr(type.rfind('.') + 1);
    if (last != "Transformer" && last != "Pooling" && last != "Dense" && last != "Normalize" && last != "LogitScore")
      throw module.error("the module '{}' is not supported: Transformer, Pooling, Dense, Normalize and LogitScore are", printable(type, 64));
  }
}

void read_prompts(const HfDirectory& directory, EmbedFacts& facts) {
  const auto document = directory.find_document("config_sentence_transformers.json");
  if (!document) return;
  if (const auto prompts = document->root().find("prompts"))
    for (const auto& [name, text] : prompts->members()) facts.prompts.emplace_back(name, text.string());
  if (const auto name = document->root().find("default_prompt_name")) facts.default_prompt = std::string(name->string());
}

// vLLM's keys of config.json.
void read_cuts(const HfDirectory& directory, EmbedFacts& facts) {
  const JsonDocument document = directory.document("config.json");
  const Json config = document.root();
  if (const auto is = config.find("is_matryoshka")) facts.may_cut = is->boolean();
  if (const auto lengths = config.find("matryoshka_dimensions")) {
    facts.may_cut = true;
    for (const Json& one : lengths->elements()) facts.cut_dimensions.push_back(static_cast<int>(one.integer(1, 1 << 20)));
  }
}

void normalize_rows(std::vector<float>& values, int dim) {
  for (size_t row = 0; row < values.size(); row += dim) {
    double squares = 0;
    for (int i = 0; i < dim; ++i) squares += double{values[row + i]} * values[row + i];
    const auto inverse = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
    for (int i = 0; i < dim; ++i) values[row + i] *= inverse;
  }
}

}  // namespace

EmbedFacts read_embed_facts(const Checkpoint& checkpoint) {
  EmbedFacts facts;
  if (const Gguf* file = checkpoint.gguf()) {
    facts.pooling = gguf_pooling(*file);
  } else if (const HfDirectory* directory = checkpoint.directory()) {
    facts.pooling = directory_pooling(*directory);
    check_modules(*directory);
    read_prompts(*directory, facts);
    read_cuts(*directory, facts);
  }
  if (has_classifier(checkpoint)) facts.pooling = "rank";
  if (!facts.pooling && find_encoder_config(checkpoint)) facts.pooling = "mean";
  return facts;
}

// ---- towers

class Embedder::Tower {
 public:
  virtual ~Tower() = default;
  // f32 [n_tokens, dim]. second_rows: of each pair the rows of its second text, in models that tell the two apart.
  virtual Tensor forward(const Batch& batch, std::span<const Encoder::Rows> second_rows) = 0;
};

class Embedder::EncoderTower final : public Tower {
 public:
  EncoderTower(const EncoderConfig& config, WeightSource& source, Backend& backend, const StepLimits& limits, const LoadProgress& progress)
      : config_(config), weights_(load_encoder_weights(source, config_, backend, progress)), encoder_(config_, weights_, backend, limits) {}

  Tensor forward(const Batch& batch, std::span<const Encoder::Rows> second_rows) override { return encoder_.forward(batch, second_rows); }

 private:
  const EncoderConfig config_;
  const EncoderWeights weights_;
  Encoder encoder_;
};

// A decoder's hidden states, of every token of texts that are read whole.
class Embedder::DecoderTower final : public Tower {
 public:
  DecoderTower(const Config& config, WeightSource& source, Backend& backend, const StepLimits& limits, const LoadProgress& progress)
      : config_(without_output(config)), weights_(load_weights(source, config_, backend, progress)) {
    weights_.model.output = {};
    kv_ = backend.make_kv({.n_layers = config.n_layers,
                           .n_kv_heads = config.n_kv_heads,
                           .head_dim = config.head_dim,
                           .block_size = Encoder::kBlockSize,
                           .n_blocks = limits.max_tokens / Encoder::kBlockSize + limits.max_seqs,
                           .dtype = backend.activation_dtype() == DType::kF32 ? DType::kF32 : DType::kF16});
    transformer_ = std::make_unique<Transformer>(config_, weights_, backend, *kv_, nullptr, limits);
  }

  // Nothing is predicted here: a matrix for that is not wanted, be it in the file or not.
  static Config without_output(Config config) {
    config.tied_output = true;
    return config;
  }

  Tensor forward(const Batch& batch, std::span<const Encoder::Rows>) override {
    for (int32_t t = static_cast<int32_t>(all_rows_.size()); t < batch.n_tokens(); ++t) all_rows_.push_back(t);
    Batch all = batch;
    all.logit_rows = std::span<const int32_t>(all_rows_).first(static_cast<size_t>(batch.n_tokens()));
    transformer_->forward(all);
    return transformer_->logits();
  }

 private:
  const Config config_;
  Weights weights_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<int32_t> all_rows_;
};

// The arrays that a Batch views.
struct Embedder::Step {
  std::vector<int32_t> tokens, positions, q_start, kv_len, blocks, last_rows;
  std::vector<Encoder::Rows> second_rows;
  int max_blocks = 0;

  // Each text on blocks of its own.
  Batch fill(std::span<const Input> texts) {
    tokens.clear(), positions.clear(), kv_len.clear(), last_rows.clear(), second_rows.clear();
    q_start.assign(1, 0);
    max_blocks = 0;
    auto n_blocks = [](size_t n) { return static_cast<int>((n + Encoder::kBlockSize - 1) / Encoder::kBlockSize); };
    for (const Input& text : texts) max_blocks = std::max(max_blocks, n_blocks(text.tokens.size()));
    blocks.assign(texts.size() * max_blocks, -1);
    int next_block = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto& [ids, second] = texts[i];
      const auto first_row = static_cast<int64_t>(tokens.size());
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      for (size_t t = 0; t < ids.size(); ++t) positions.push_back(static_cast<int32_t>(t));
      for (int b = 0; b < n_blocks(ids.size()); ++b) blocks[i * max_blocks + b] = next_block++;
      q_start.push_back(static_cast<int32_t>(tokens.size()));
      kv_len.push_back(static_cast<int32_t>(ids.size()));
      last_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      if (second >= 0 && static_cast<size_t>(second) < ids.size()) second_rows.push_back({first_row + second, static_cast<int64_t>(ids.size()) - second});
    }
    return {tokens, positions, q_start, kv_len, blocks, max_blocks, last_rows};
  }
};

// ---- Embedder

Embedder::~Embedder() = default;

std::unique_ptr<Embedder> Embedder::open(std::shared_ptr<const Checkpoint> checkpoint, const EmbedOptions& options,
                                         const LoadProgress& progress) {
  std::unique_ptr<Embedder> e(new Embedder());
  e->checkpoint_ = std::move(checkpoint);
  e->facts_ = read_embed_facts(*e->checkpoint_);
  e->normalize_ = options.normalize;
  e->choose_pooling(options);
  e->load(options, progress);
  e->pooled_ = e->backend_->alloc(DType::kF32, kMaxSeqs, e->tower_dim_);
  e->step_ = std::make_unique<Step>();
  return e;
}

void Embedder::choose_pooling(const EmbedOptions& options) {
  if (!options.pooling && !facts_.pooling)
    throw Error("{}: this model writes text, and says nothing of embeddings: choose how its tokens become one vector (--pooling last is usual)",
                printable(checkpoint_->path()));
  pooling_ = options.pooling ? *options.pooling : *facts_.pooling;
  if (!is_pooling(pooling_)) throw UsageError("pooling '{}' is not known: use cls, mean, last, none or rank", printable(pooling_, 64));
}

// Everything that needs the model's sizes, which encoders and decoders have in configs of their own.
void Embedder::load(const EmbedOptions& options, const LoadProgress& progress) {
  const auto encoder = find_encoder_config(*checkpoint_);
  const Config decoder = encoder ? Config{} : checkpoint_->config();
  const int n_ctx = encoder ? encoder->n_ctx : decoder.n_ctx_train;
  name_ = encoder ? encoder->name : decoder.name;
  tower_dim_ = encoder ? encoder->dim : decoder.dim;
  n_vocab_ = encoder ? encoder->n_vocab : decoder.n_vocab;
  if (options.n_ctx > n_ctx) throw UsageError("a context of {} tokens is more than the {} that the model has", options.n_ctx, n_ctx);
  max_tokens_ = options.n_ctx > 0 ? options.n_ctx : std::min(n_ctx, kMostDefaultTokens);
  max_batch_tokens_ = std::max(options.max_batch_tokens, max_tokens_);
  tokenizer_ = checkpoint_->tokenizer();
  if (tokenizer_->n_vocab() > n_vocab_)
    throw Error("{}: the tokenizer has {} tokens, and the embedding has {} rows", printable(checkpoint_->path()), tokenizer_->n_vocab(), n_vocab_);
  source_ = checkpoint_->weights();
  if (options.check_tensors) source_ = checked_source(std::move(source_));
  if (ranks()) {
    classifier_ = read_classifier(*checkpoint_, *source_, tower_dim_, encoder.has_value());
  } else if (EmbedHead dense = read_dense_head(*checkpoint_, *source_, tower_dim_); pooling_ != "none") {  // they are for pooled rows
    dense_ = std::move(dense);
  }
  dim_ = dense_.empty() ? tower_dim_ : dense_.n_out();
  backend_ = create_backend(options.backend);
  if (encoder) {
    const StepLimits limits{.max_tokens = max_batch_tokens_, .max_seqs = kMaxSeqs, .max_logits = 0, .max_kv_len = max_tokens_,
                            .max_width = std::max(tower_dim_, encoder->ffn_dim), .max_heads = encoder->n_heads, .head_dim = encoder->head_dim};
    tower_ = std::make_unique<EncoderTower>(*encoder, *source_, *backend_, limits, progress);
  } else {
    if (needs_experts(decoder) && !backend_->runs_experts())
      throw Error("{} does not run models with a mixture of experts, or with attention over latents: use --device cpu", backend_->name());
    if (decoder.n_recurrent_layers() > 0) throw Error("models with recurrent layers make no embeddings here: use one without");
    StepLimits limits = step_limits(decoder, max_batch_tokens_, kMaxSeqs, max_batch_tokens_, max_tokens_);
    limits.n_vocab = 0;  // nothing is drawn
    tower_ = std::make_unique<DecoderTower>(decoder, *source_, *backend_, limits, progress);
  }
}

void Embedder::check(std::span<const std::vector<int32_t>> texts) const {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) throw Error("text {} has no tokens", i);
    if (texts[i].size() > static_cast<size_t>(max_tokens_))
      throw Error("text {} has {} tokens, and the model reads at most {}: cut it", i, texts[i].size(), max_tokens_);
    for (const int32_t id : texts[i])
      if (id < 0 || id >= n_vocab_) throw Error("text {} has the token {}, which is outside of the vocabulary (0 to {})", i, id, n_vocab_ - 1);
  }
}

std::vector<int32_t> Embedder::cut(std::vector<int32_t> tokens) const {
  if (tokens.size() <= static_cast<size_t>(max_tokens_)) return tokens;
  const int32_t last = tokens.back();
  tokens.resize(max_tokens_);
  if (tokenizer_->add_eos()) tokens.back() = last;
  return tokens;
}

std::vector<float> Embedder::embed(std::span<const std::vector<int32_t>> texts) {
  if (ranks()) throw Error("this model ranks documents for a query, rather than embeds texts: use it for that (rerank), or choose a pooling");
  check(texts);
  std::vector<Input> inputs;
  for (const auto& text : texts) inputs.push_back({text});
  std::vector<float> out = run_all(inputs);
  if (!dense_.empty()) out = dense_.apply(std::move(out));
  if (normalize_) normalize_rows(out, dim_);
  return out;
}

// The words of a model that is asked in words: a prompt with the two texts in it, neither of which can contain a control token.
std::vector<int32_t> Embedder::prompt(std::string_view query, std::string_view document) const {
  const std::string& pattern = *classifier_.prompt;
  std::string text;
  std::vector<size_t> quoted;
  for (size_t i = 0; i < pattern.size();) {
    const std::string_view rest = std::string_view(pattern).substr(i);
    const bool is_query = rest.starts_with("{query}"), is_document = rest.starts_with("{document}");
    if (!is_query && !is_document) {
      text += pattern[i++];
      continue;
    }
    const std::string_view put = is_query ? query : document;
    for (size_t at = 0; at < put.size(); ++at) quoted.push_back(text.size() + at);
    text += put;
    i += is_query ? std::string_view("{query}").size() : std::string_view("{document}").size();
  }
  return tokenizer_->encode(text, {.add_special = false, .parse_special = true, .quoted = quoted});
}

Embedder::Pair Embedder::pair(std::string_view query, std::string_view document, bool truncate) const {
  const size_t most = truncate ? static_cast<size_t>(max_tokens_) : std::numeric_limits<size_t>::max();
  Pair pair;
  if (!classifier_.prompt) {
    size_t n_first = 0;
    pair.tokens = tokenizer_->encode_pair(query, document, most, n_first);
    pair.second = static_cast<int>(n_first);
    return pair;
  }
  pair.tokens = prompt(query, document);
  while (pair.tokens.size() > most && !document.empty()) {  // what is around the document stays
    size_t n = document.size() * most / pair.tokens.size();
    while (n > 0 && (static_cast<uint8_t>(document[n]) & 0xC0) == 0x80) --n;
    document = document.substr(0, n);
    pair.tokens = prompt(query, document);
  }
  return pair;
}

Embedder::Scores Embedder::score(std::string_view query, std::span<const std::string> documents, bool truncate) {
  if (!ranks()) throw Error("this model embeds texts, rather than ranks documents: a cross-encoder does that");
  std::vector<Pair> pairs;
  Scores scores;
  for (const std::string& document : documents) {
    pairs.push_back(pair(query, document, truncate));
    scores.n_tokens += pairs.back().tokens.size();
  }
  scores.values = score(pairs);
  return scores;
}

std::vector<float> Embedder::score(std::span<const Pair> pairs) {
  if (!ranks()) throw Error("this model embeds texts, rather than ranks documents: a cross-encoder does that");
  std::vector<Input> inputs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].tokens.empty()) throw Error("the query and document {} have no tokens", i);
    if (pairs[i].tokens.size() > static_cast<size_t>(max_tokens_))
      throw Error("the query and document {} have {} tokens, and the model reads at most {}: cut them", i, pairs[i].tokens.size(), max_tokens_);
    inputs.push_back({pairs[i].tokens, pairs[i].second});
  }
  std::vector<float> values = classifier_.head.apply(run_all(inputs));
  if (!classifier_.raw)
    for (float& value : values) value = 1 / (1 + std::exp(-value));
  return values;
}

// In as few batches as there is room for.
std::vector<float> Embedder::run_all(std::span<const Input> inputs) {
  const std::lock_guard lock(mutex_);
  std::vector<float> out;
  for (size_t begin = 0; begin < inputs.size();) {
    size_t end = begin, n_tokens = 0;
    while (end < inputs.size() && end - begin < kMaxSeqs && n_tokens + inputs[end].tokens.size() <= static_cast<size_t>(max_batch_tokens_))
      n_tokens += inputs[end++].tokens.size();
    run(inputs.subspan(begin, end - begin), out);
    begin = end;
  }
  return out;
}

// Appends the rows of one batch.
void Embedder::run(std::span<const Input> inputs, std::vector<float>& out) {
  const Batch batch = step_->fill(inputs);
  Tensor rows = tower_->forward(batch, step_->second_rows);
  for (const auto& [name, pooling] : kPoolings) {
    if (name != (ranks() ? classifier_.pooling : pooling_)) continue;
    const Tensor pooled = pooled_.slice_rows(0, static_cast<int64_t>(inputs.size()));
    backend_->pool(pooled, rows, pooling);
    rows = pooled;
  }
  backend_->synchronize();
  const size_t n_before = out.size();
  out.resize(n_before + static_cast<size_t>(rows.rows * rows.cols));
  backend_->download(out.data() + n_before, rows);
}

}  // namespace ingot
