#include "model/vectors/embedder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "backend/thread_communicator.h"
#include "backend/trace.h"
#include "base/error.h"
#include "base/thread_start.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/modules.h"
#include "model/config/shards.h"
#include "model/devices/device_model.h"
#include "model/files/tensor_finder.h"
#include "model/program/decoder_program.h"

namespace ingot {
namespace {

constexpr int kMaxDefaultTokens = 8192;   // activations are allocated for the longest text
constexpr int kMaxSeqs = 256;             // in one batch

constexpr std::pair<std::string_view, Pooling> kPoolings[] = {
    {"cls", Pooling::kCls}, {"mean", Pooling::kMean}, {"last", Pooling::kLast}};

bool is_pooling(std::string_view name) {
  return name == "none" || name == "rank" ||
         std::any_of(std::begin(kPoolings), std::end(kPoolings), [&](const auto& row) { return row.first == name; });
}

// GGUF's numbers for pooling: none, mean, cls, last, rank.
std::optional<std::string> gguf_pooling(const Gguf& file) {
  constexpr const char* kNames[] = {"none", "mean", "cls", "last", "rank"};
  const Metadata& metadata = file.metadata();
  const std::string key = std::string(metadata.get_string("general.architecture")) + ".pooling_type";
  const auto number = metadata.find_u32(key);
  if (!number) return std::nullopt;
  if (*number >= std::size(kNames))
    throw metadata.error(key, "{} is not known: expected 0 to {}", *number, std::size(kNames) - 1);
  return kNames[*number];
}

void read_modules(const HfDirectory& directory, EmbedFacts& facts) {
  const HfModules modules = read_hf_modules(directory);
  facts.pooling = modules.pooling == "lasttoken" ? "last" : modules.pooling;
  if (facts.pooling && !is_pooling(*facts.pooling))
    throw Error("{}: pooling by '{}' is not supported: cls, mean and last are", printable(directory.path()),
                *facts.pooling);
  facts.pools_prompt = modules.pools_prompt;
  facts.max_tokens = read_hf_text_options(directory).max_tokens;
}

void read_prompts(const HfDirectory& directory, EmbedFacts& facts) {
  const auto document = directory.whole().find_document("config_sentence_transformers.json");
  if (!document) return;
  if (const auto prompts = document->root().find("prompts"))
    for (const auto& [name, text] : prompts->members()) facts.prompts.emplace_back(name, text.string());
  const auto name = document->root().find("default_prompt_name");
  if (!name) return;
  facts.default_prompt = std::string(name->string());
  if (!facts.find_prompt(*facts.default_prompt))
    throw name->error("'{}' is none of the prompts: {}", printable(*facts.default_prompt, 64), facts.prompt_names());
}

// Reads vLLM's keys of config.json.
void read_cuts(const HfDirectory& directory, EmbedFacts& facts) {
  const JsonDocument document = directory.document("config.json");
  const Json config = document.root();
  if (const auto is = config.find("is_matryoshka")) facts.may_cut = is->boolean();
  if (const auto lengths = config.find("matryoshka_dimensions")) {
    facts.may_cut = true;
    for (const Json& one : lengths->elements())
      facts.cut_dimensions.push_back(static_cast<int>(one.integer(1, 1 << 20)));
  }
}

}  // namespace

EmbedFacts read_embed_facts(const Checkpoint& checkpoint) {
  EmbedFacts facts;
  if (const Gguf* file = checkpoint.gguf()) {
    facts.pooling = gguf_pooling(*file);
  } else if (const HfDirectory* directory = checkpoint.directory()) {
    read_modules(*directory, facts);
    read_prompts(*directory, facts);
    read_cuts(*directory, facts);
  }
  if (has_classifier(checkpoint)) facts.pooling = "rank";
  if (!facts.pooling && is_encoder(checkpoint)) facts.pooling = "mean";
  return facts;
}

std::optional<std::string> EmbedFacts::find_prompt(const std::string& name) const {
  const std::string& wanted = name.empty() && default_prompt ? *default_prompt : name;
  if (wanted.empty()) return "";
  for (const auto& [known, text] : prompts)
    if (known == wanted) return text;
  return std::nullopt;
}

std::string EmbedFacts::prompt_names() const {
  std::string names;
  for (const auto& [name, text] : prompts) names += (names.empty() ? "" : ", ") + printable(name, 64);
  return names.empty() ? "none" : names;
}

// ---- models

// The layers of a model, or a rank's share of them, without the head.
struct Embedder::Model {
  Config config;
  std::unique_ptr<WeightSource> source;        // the backend may read embeddings from its mapping
  std::shared_ptr<Communicator> communicator;  // null: this is the whole model
  DeviceModel device;

  ~Model() {
    if (communicator && device.backend) device.backend->connect(nullptr);
  }
  Backend& backend() const { return *device.backend; }
  const Program& program() const { return device.part->program; }
  void load(const BackendOptions& options, const StepLimits& limits, PoolBlock pool, const LoadProgress& progress);
};

void Embedder::Model::load(const BackendOptions& options, const StepLimits& limits, PoolBlock pool,
                           const LoadProgress& progress) {
  device.name = options.device;
  device.take(create_backend(options));
  if (communicator) backend().connect(communicator);
  if (options.copies.empty()) limit_copies(*source, config, backend(), backend().available_bytes());
  const DevicePlan plan = plan_texts(config,
                                     {.name = device.name,
                                      .backend = device.backend.get(),
                                      .weights = weight_bytes(*source, config, backend()),
                                      .available = backend().available_bytes()},
                                     limits);
  device.weights = load_weights(*source, config, backend(), progress);
  const DecoderCaches caches = device.make_caches(plan);
  DevicePart& part = device.part.emplace(
      DevicePart{decoder_layers(config, device.weights, caches, device.backend.get(), limits.max_kv_len), {}});
  pool.norm = final_norm(config, device.weights);
  part.program.blocks.emplace_back(pool);
  part.program.allocate(backend(), limits);
  device.log_memory();
}

// The arrays that a Batch refers to.
struct Embedder::Step {
  std::vector<int32_t> tokens, positions, q_start, kv_len, blocks, last_rows;
  std::vector<RowRange> second_rows;
  int max_blocks = 0;

  // Gives each text its own blocks. `n_before`: the tokens of the only text that earlier batches have computed; its
  // blocks are the same in all of them.
  Batch fill(std::span<const Input> texts, int n_before) {
    tokens.clear(), positions.clear(), kv_len.clear(), last_rows.clear(), second_rows.clear();
    q_start.assign(1, 0);
    max_blocks = 0;
    auto n_blocks = [](size_t n) { return static_cast<int>((n + kTextBlockSize - 1) / kTextBlockSize); };
    const auto before = static_cast<size_t>(n_before);
    for (const Input& text : texts) max_blocks = std::max(max_blocks, n_blocks(before + text.tokens.size()));
    blocks.assign(texts.size() * max_blocks, -1);
    int next_block = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto& ids = texts[i].tokens;
      const int second = texts[i].second;
      const auto first_row = static_cast<int64_t>(tokens.size());
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      for (size_t t = 0; t < ids.size(); ++t) positions.push_back(static_cast<int32_t>(before + t));
      for (int b = 0; b < n_blocks(before + ids.size()); ++b) blocks[i * max_blocks + b] = next_block++;
      q_start.push_back(static_cast<int32_t>(tokens.size()));
      kv_len.push_back(static_cast<int32_t>(before + ids.size()));
      last_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      if (second >= 0 && static_cast<size_t>(second) < ids.size())
        second_rows.push_back({first_row + second, static_cast<int64_t>(ids.size()) - second});
    }
    return {.tokens = tokens,
            .positions = positions,
            .q_start = q_start,
            .kv_len = kv_len,
            .block_table = blocks,
            .max_blocks = max_blocks,
            .logit_rows = last_rows,
            .second_rows = second_rows};
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
  e->step_ = std::make_unique<Step>();
  return e;
}

void Embedder::choose_pooling(const EmbedOptions& options) {
  if (!options.pooling && !facts_.pooling)
    throw Error(
        "{}: this model writes text, and its files name no pooling for embeddings: choose a pooling ('last' is usual)",
        printable(checkpoint_->path()));
  pooling_ = options.pooling ? *options.pooling : *facts_.pooling;
  if (!is_pooling(pooling_))
    throw UsageError("pooling '{}' is not known: use cls, mean, last, none or rank", printable(pooling_, 64));
}

void Embedder::load(const EmbedOptions& options, const LoadProgress& progress) {
  Config config = checkpoint_->config();
  config.tied_output = true;  // an output matrix is not needed to embed
  name_ = config.name;
  n_vocab_ = config.n_vocab;
  width_ = config.dim;
  const int n_ctx = config.n_ctx_train;
  if (options.n_ctx > n_ctx)
    throw UsageError("a context of {} tokens is longer than the model's maximum of {}", options.n_ctx, n_ctx);
  const int most = std::min({n_ctx, facts_.max_tokens.value_or(n_ctx), kMaxDefaultTokens});
  max_tokens_ = options.n_ctx > 0 ? options.n_ctx : most;
  // Causal models compute a longer text in chunks. In other models, each token sees all tokens of its text.
  max_batch_tokens_ = config.bidirectional ? std::max(options.max_batch_tokens, max_tokens_) : options.max_batch_tokens;
  tokenizer_ = checkpoint_->tokenizer();
  if (tokenizer_->n_vocab() > n_vocab_)
    throw Error("{}: the tokenizer has {} tokens, but the embedding has only {} rows", printable(checkpoint_->path()),
                tokenizer_->n_vocab(), n_vocab_);
  std::unique_ptr<WeightSource> source = checkpoint_->weights();
  if (options.check_tensors) source = checked_source(std::move(source));
  if (ranks()) {
    classifier_ = read_classifier(*checkpoint_, *source, width_, config.arch->encoder);
  } else if (EmbedHead dense = read_dense_head(*checkpoint_, *source, width_);
             pooling_ != "none") {  // the layers need pooled rows
    dense_ = std::move(dense);
  }
  dim_ = dense_.empty() ? width_ : dense_.n_out();
  if (config.n_recurrent_layers() > 0)
    throw Error("embeddings of models with recurrent layers are not supported: use a model without them");
  choose_pool_block();
  add_ranks(config, std::move(source), options);
  const StepLimits limits{.max_tokens = max_batch_tokens_, .max_seqs = kMaxSeqs, .max_kv_len = max_tokens_};
  on_all_ranks([&](Model& model, int rank) {
    model.load(backend_of_rank(options.backend, options.parallel, rank), limits, pool_,
               rank == 0 ? progress : LoadProgress{});
  });
}

void Embedder::add_ranks(const Config& config, std::unique_ptr<WeightSource> source, const EmbedOptions& options) {
  const ParallelOptions& p = options.parallel;
  const int n = p.n_ranks;
  const auto ranks = n > 1 ? std::make_shared<ThreadRanks>(n, p.limit) : nullptr;
  const int64_t block = n > 1 ? largest_block(*source, config, p.whole_experts) : 0;
  for (int r = 0; r < n; ++r) {
    Model& model = *models_.emplace_back(std::make_unique<Model>());
    model.config = n > 1 ? config_of_rank(config, r, n, block, p.whole_experts) : config;
    model.source = r == 0 ? std::move(source) : models_[0]->source->again();
    if (ranks) model.communicator = ThreadRanks::communicator(ranks, r);
  }
}

void Embedder::on_all_ranks(const std::function<void(Model& model, int rank)>& f) {
  if (models_.size() == 1) return f(*models_[0], 0);
  Communicator& first = *models_[0]->communicator;
  const auto run_rank = [&](size_t r) {
    try {
      f(*models_[r], static_cast<int>(r));
    } catch (...) {
      models_[r]->communicator->abort(std::current_exception());
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (size_t r = 1; r < models_.size(); ++r)
        others.push_back(start_thread("a rank", [&] { return std::jthread([&run_rank, r] { run_rank(r); }); }));
    } catch (...) {
      first.abort(std::current_exception());
    }
    run_rank(0);
  }
  first.check();
}

void Embedder::choose_pool_block() {
  pool_.pools = false;
  for (const auto& [name, pooling] : kPoolings)
    if (name == (ranks() ? classifier_.pooling : pooling_)) pool_.pools = true, pool_.pooling = pooling;
  const bool pools_some = ranks() ? classifier_.pad.has_value() : !facts_.pools_prompt;
  if (pool_.pools && pools_some) pool_.pools = false, pools_here_ = pool_.pooling;
}

void Embedder::check(std::span<const std::vector<int32_t>> texts) const {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) throw Error("text {} has no tokens", i);
    if (texts[i].size() > static_cast<size_t>(max_tokens_))
      throw Error("text {} has {} tokens, but the model reads at most {}: shorten it", i, texts[i].size(), max_tokens_);
    for (const int32_t id : texts[i])
      if (id < 0 || id >= n_vocab_)
        throw Error("text {} has the token {}, which is outside the vocabulary (0 to {})", i, id, n_vocab_ - 1);
  }
}

std::vector<int32_t> Embedder::cut(std::vector<int32_t> tokens, std::optional<int> most) const {
  const auto n_kept = static_cast<size_t>(most.value_or(max_tokens_));
  if (tokens.size() <= n_kept) return tokens;
  const int32_t last = tokens.back();
  tokens.resize(n_kept);
  if (tokenizer_->add_eos()) tokens.back() = last;
  return tokens;
}

int Embedder::prompt_tokens(const std::string& prompt) const {
  if (prompt.empty() || facts_.pools_prompt) return 0;
  const std::vector<int32_t> tokens = cut(tokenizer_->encode(prompt));
  const bool ends = !tokens.empty() && tokenizer_->is_special(tokens.back());  // a token after the text
  return static_cast<int>(tokens.size()) - (ends ? 1 : 0);
}

std::vector<float> Embedder::embed(std::span<const std::vector<int32_t>> texts, std::span<const int> n_before) {
  if (ranks()) throw Error("this model ranks documents and does not embed texts: use it to rank, or choose a pooling");
  check(texts);
  std::vector<Input> inputs;
  for (size_t i = 0; i < texts.size(); ++i) {
    inputs.push_back({texts[i]});
    if (!n_before.empty()) inputs.back().first_pooled = n_before[i];
  }
  std::vector<float> out = run_all(inputs);
  if (!dense_.empty()) out = dense_.apply(std::move(out));
  if (normalize_) normalize_rows(out, dim_);
  return out;
}

// The input of a model that answers in words: a prompt that contains the two texts. The texts are quoted, so
// that a text cannot contain a control token.
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

Embedder::Pair Embedder::pair(std::string_view query, std::string_view document, std::optional<int> limit) const {
  const size_t most = limit ? static_cast<size_t>(*limit) : std::numeric_limits<size_t>::max();
  Pair pair;
  if (!classifier_.prompt) {
    size_t n_first = 0;
    pair.tokens = tokenizer_->encode_pair(query, document, most, n_first);
    if (tokenizer_->marks_second()) pair.second = static_cast<int>(n_first);
    return pair;
  }
  pair.tokens = prompt(query, document);
  while (pair.tokens.size() > most && !document.empty()) {  // the prompt around the document stays whole
    size_t n = document.size() * most / pair.tokens.size();
    while (n > 0 && (static_cast<uint8_t>(document[n]) & 0xC0) == 0x80) --n;
    document = document.substr(0, n);
    pair.tokens = prompt(query, document);
  }
  return pair;
}

Embedder::Scores Embedder::score(std::string_view query, std::span<const std::string> documents, bool truncate) {
  if (!ranks()) throw Error("this model embeds texts and cannot rank documents: use a cross-encoder");
  std::vector<Pair> pairs;
  Scores scores;
  for (const std::string& document : documents) {
    pairs.push_back(pair(query, document, truncate ? std::optional(max_tokens_) : std::nullopt));
    scores.n_tokens += pairs.back().tokens.size();
  }
  scores.values = score(pairs);
  return scores;
}

std::vector<float> Embedder::score(std::span<const Pair> pairs) {
  if (!ranks()) throw Error("this model embeds texts and cannot rank documents: use a cross-encoder");
  std::vector<Input> inputs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].tokens.empty()) throw Error("the query and document {} have no tokens", i);
    if (pairs[i].tokens.size() > static_cast<size_t>(max_tokens_))
      throw Error("the query and document {} have {} tokens, but the model reads at most {}: shorten them", i,
                  pairs[i].tokens.size(), max_tokens_);
    Input& input = inputs.emplace_back(Input{pairs[i].tokens, pairs[i].second});
    if (classifier_.pad)
      while (input.end_pooled > 1 && input.tokens[input.end_pooled - 1] == *classifier_.pad) --input.end_pooled;
  }
  std::vector<float> values = classifier_.head.apply(run_all(inputs));
  if (!classifier_.raw)
    for (float& value : values) value = 1 / (1 + std::exp(-value));
  return values;
}

// Runs the inputs in as few batches as possible.
std::vector<float> Embedder::run_all(std::span<const Input> inputs) {
  const std::lock_guard lock(mutex_);
  const auto most = static_cast<size_t>(max_batch_tokens_);
  std::vector<float> out;
  for (size_t begin = 0; begin < inputs.size();) {
    size_t end = begin, n_tokens = 0;
    while (end < inputs.size() && end - begin < kMaxSeqs && n_tokens + inputs[end].tokens.size() <= most)
      n_tokens += inputs[end++].tokens.size();
    if (end == begin) ++end;  // a text that is longer than a batch
    const auto some = inputs.subspan(begin, end - begin);
    std::vector<float> rows = n_tokens > 0 ? run(some, 0) : run_in_chunks(some[0]);
    if (pools_here_) rows = pool(rows, some);
    out.insert(out.end(), rows.begin(), rows.end());
    begin = end;
  }
  return out;
}

// The result for one text, whose chunks are computed one after another. The device pools each chunk.
std::vector<float> Embedder::run_in_chunks(const Input& input) {
  const auto n = input.tokens.size(), most = static_cast<size_t>(max_batch_tokens_);
  std::vector<float> out;
  for (size_t begin = 0; begin < n; begin += most) {
    const Input chunk{input.tokens.subspan(begin, std::min(most, n - begin))};
    const std::vector<float> rows = run({&chunk, 1}, static_cast<int>(begin));
    if (!pool_.pools) {
      out.insert(out.end(), rows.begin(), rows.end());
    } else if (pool_.pooling == Pooling::kMean) {
      const float share = static_cast<float>(chunk.tokens.size()) / static_cast<float>(n);
      out.resize(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) out[i] += share * rows[i];
    } else if (begin == 0 || pool_.pooling == Pooling::kLast) {
      out = rows;
    }
  }
  return out;
}

// The rows of one batch. `n_before`: the tokens of the only text that earlier batches have computed.
std::vector<float> Embedder::run(std::span<const Input> inputs, int n_before) {
  const Batch batch = step_->fill(inputs, n_before);
  std::vector<float> values;
  on_all_ranks([&](Model& model, int rank) {
    model.backend().run(model.program(), batch);
    model.backend().synchronize();
    if (rank > 0) return;
    const Tensor rows = model.program().output(batch.n_tokens(), batch.n_seqs(), 0);
    values.resize(static_cast<size_t>(rows.rows * rows.cols));
    model.backend().download(values.data(), rows);
  });
  return values;
}

uint64_t Embedder::progress() const {
  uint64_t sum = 0;
  for (const auto& model : models_) sum += model->backend().progress();
  return sum;
}

// [n_tokens, dim] to [n_texts, dim]. If a text has no tokens to pool, the result is as in sentence-transformers: "cls"
// uses the text's first token, and other poolings return zeros.
std::vector<float> Embedder::pool(std::span<const float> rows, std::span<const Input> inputs) const {
  const auto dim = static_cast<size_t>(width_);
  std::vector<float> out(inputs.size() * dim);
  size_t first_row = 0;
  for (size_t text = 0; text < inputs.size(); ++text) {
    const Input& input = inputs[text];
    const auto n_rows = static_cast<int>(input.tokens.size());
    int begin = input.first_pooled, end = std::min(input.end_pooled, n_rows);
    if (pools_here_ == Pooling::kCls) end = (begin = begin < end ? begin : 0) + 1;
    if (pools_here_ == Pooling::kLast) begin = std::max(begin, end - 1);
    for (size_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (int row = begin; row < end; ++row) sum += rows[(first_row + row) * dim + i];
      out[text * dim + i] = begin < end ? static_cast<float>(sum / (end - begin)) : 0;
    }
    first_row += n_rows;
  }
  return out;
}

}  // namespace ingot
