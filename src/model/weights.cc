#include "model/weights.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "model/draft_config.h"
#include "model/tensor_finder.h"

namespace ingot {
namespace {

// If the config ties the output matrix, a matrix in the file is ignored: it is a copy (has_other_output).
bool is_tied_away(const MatrixRow<ModelWeights>& row, const Config& config) {
  return row.weight == &ModelWeights::output && config.tied_output == true;
}
template <class Owner>
bool is_tied_away(const MatrixRow<Owner>&, const Config&) {
  return false;
}

// Parts that text does not need: images and sound, layers that draft tokens, heads that read an embedding.
constexpr std::string_view kOtherParts[] = {
    "visual.", "vision", "vit.", "audio_", "embed_vision.", "embed_audio.", "multi_modal_projector.", "mm_projector.",
    "patch_merger.", "mtp.", "mtp_layers.", "v.", "a.", "mm.", "score.", "classifier.", "cls.", "dense_"};
// Frequencies that follow from the config, scales of an FP8 cache, and the output matrix of a model that ties it.
constexpr std::string_view kNotNeeded[] = {".rotary_emb.inv_freq", ".attn_rot_embd.weight", ".k_scale", ".v_scale",
                                           "lm_head.weight", "output.weight"};

bool is_known_to_be_unused(std::string_view name, const Config& config) {
  if (config.arch->encoder)  // poolers and heads are not needed
    return !name.starts_with("blk.") && name.find("layer.") == name.npos && name.find("layers.") == name.npos;
  for (const std::string_view suffix : kNotNeeded)
    if (name.ends_with(suffix) && (suffix != "output.weight" || name == suffix)) return true;
  for (const std::string_view wrapper : {"model.", "language_model.", "thinker."})
    if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
  for (const std::string_view part : kOtherParts)
    if (name.starts_with(part)) return true;
  for (const std::string_view layers : {"layers.", "blk."}) {
    int layer = -1;
    const size_t at = name.find(layers);
    if (at == name.npos) continue;
    std::from_chars(name.data() + at + layers.size(), name.data() + name.size(), layer);
    if (layer >= config.n_layers) return true;  // these layers only draft tokens
  }
  return false;
}

// Whether the part has the tensor of a row.
bool is_in(const Part& part, std::string_view gguf_name, int layer) {
  return is_of_feed_forward(gguf_name) ? part.feed_forward(layer) : part.attention(layer);
}
bool is_in(const Part& part, const MatrixRow<LayerWeights>& r, int layer) { return is_in(part, r.gguf_name, layer); }
bool is_in(const Part& part, const VectorRow<LayerWeights>& r, int layer) { return is_in(part, r.gguf_name, layer); }
bool is_in(const Part& part, const MatrixRow<ModelWeights>& row, int) {
  return row.weight == &ModelWeights::output ? part.head() : part.embedding();
}
bool is_in(const Part& part, const VectorRow<ModelWeights>& row, int) {
  return row.vector != &ModelWeights::final_norm || part.head();
}
// A model with a draft head is on one device.
template <class Row>
bool is_in(const Part&, const Row&, int) {
  return true;
}

// Each part has the tensors of ropes, and the one with the embedding counts them.
template <class Owner>
bool counts(const Part&, const VectorRow<Owner>&) {
  return true;
}
bool counts(const Part& part, const VectorRow<ModelWeights>& row) {
  return row.vector == &ModelWeights::final_norm || part.embedding();
}

class Loader {
 public:
  Loader(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress, const Part& part)
      : source_(source),
        config_(config),
        backend_(backend),
        progress_(progress),
        part_(part),
        finder_(std::make_shared<TensorFinder>(source, config)) {}

  Weights load() {
    weights_.layers.resize(config_.n_layers);
    total_ = source_.total_bytes();
    load_rows(model_matrices(), model_vectors(), weights_.model, 0);
    tie_output();
    add_token_types();
    for (int i = 0; i < config_.n_layers; ++i) {
      load_rows(layer_matrices(), layer_vectors(), weights_.layers[i], i);
      check_parts(weights_.layers[i], i);
    }
    for (const auto& [type, count] : mix_)
      weights_.quant_mix += fmt::format("{}{} {}", weights_.quant_mix.empty() ? "" : ", ", type, count);
    weights_.file_bytes = done_;
    weights_.kept = finder_;
    if (part_.has.empty()) check_unused(source_, config_, source_.unused());
    return std::move(weights_);
  }

  DraftHeadWeights load_head(const DraftHeadConfig& config) {
    DraftHeadWeights head;
    load_rows(head_matrices(config), head_vectors(config), head, 0);
    if (config.is_eagle) load_rows<LayerWeights>(eagle_projections(), {}, head.layer, 0);
    load_rows(layer_matrices(), layer_vectors(), head.layer, 0);
    check_parts(head.layer, 0);
    head.kept = finder_;
    return head;
  }

 private:
  template <class Owner>
  void load_rows(std::span<const MatrixRow<Owner>> matrices, std::span<const VectorRow<Owner>> vectors, Owner& owner,
                 int layer) {
    HostTensor host;
    for (const auto& row : matrices)
      if (applies(row.when, config_, layer) && is_in(part_, row, layer) && !(owner.*row.weight) &&
          !is_tied_away(row, config_) && finder_->find(row, layer, host))
        owner.*row.weight = prepare(host, row.use, row.count);
    for (const auto& row : vectors)
      if (applies(row.when, config_, layer) && is_in(part_, row, layer) && finder_->find(row, layer, host))
        owner.*row.vector = upload(host, counts(part_, row));
  }

  // Each of these rows is optional, because there is a row for each way in which a checkpoint may store the weight.
  void check_parts(const LayerWeights& w, int layer) const {
    if (part_.attention(layer)) check_attention(w, layer);
    if (part_.feed_forward(layer) && config_.layer(layer).experts && (!w.gate_exps || !w.up_exps))
      throw Error("{}: the experts' tensors of layer {} are missing, among them '{}'", source_.name(), layer,
                  source_.dialect() == Dialect::kGguf
                      ? fmt::format("blk.{}.ffn_gate_exps.weight", layer)
                      : fmt::format("model.layers.{}.mlp.experts.0.gate_proj.weight", layer));
  }

  void check_attention(const LayerWeights& w, int layer) const {
    if (config_.arch->latent_attention && (!w.wk_b || !w.wv_b))
      throw Error(
          "{}: the tensors that make keys and values of layer {} are missing: 'attn_k_b' and 'attn_v_b', or "
          "'kv_b_proj'",
          source_.name(), layer);
    if (config_.layer(layer).recurrent && (!w.wq || !w.wk || !w.wv || !w.attn_gate || !w.w_beta || !w.w_alpha))
      throw Error("{}: the projections of the gated delta net of layer {} are missing: {}", source_.name(), layer,
                  source_.dialect() == Dialect::kGguf
                      ? "'attn_qkv', 'attn_gate', 'ssm_beta' and 'ssm_alpha', or 'ssm_in' and 'ssm_ba'"
                      : "'linear_attn.in_proj_qkv', '_z', '_b' and '_a', or '_qkvz' and '_ba'");
    if (config_.attention_bias && !config_.arch->latent_attention && !config_.layer(layer).recurrent &&
        (!w.bq || !w.bk || !w.bv))
      throw Error(
          "{}: config.json sets attention_bias, but layer {} lacks at least one of q_proj.bias, k_proj.bias and "
          "v_proj.bias",
          source_.name(), layer);
  }

  Weight prepare(const HostTensor& host, unsigned use, Size of_matrices) {
    const int64_t count = of_matrices == Size::kNone ? 1 : size_of(of_matrices, config_);
    const Weight weight = backend_.prepare(
        {.format = host.format, .n_out = host.n_out / count, .n_in = host.n_in, .codes = host.data, .n_experts = count},
        use);
    tally(host, of_matrices == Size::kExperts);
    if (weight.codes == nullptr) finder_->release(host);
    return weight;
  }

  Tensor upload(const HostTensor& host, bool counts) {
    std::vector<float> values(static_cast<size_t>(host.n_out * host.n_in));
    for (int64_t i = 0; i < host.n_out; ++i)
      decode_row(host.format, host.data + i * row_bytes(host.format, host.n_in), values.data() + i * host.n_in,
                 host.n_in);
    const Tensor vector = backend_.alloc(DType::kF32, host.n_out, host.n_in);
    backend_.upload(vector, values.data());
    if (counts) tally(host, false);
    finder_->release(host);
    return vector;
  }

  // The rows of the embedding are looked up, so a token reads only one of them, unless they are also the output matrix.
  void tie_output() {
    ModelWeights& model = weights_.model;
    weights_.active_bytes -= model.embedding.bytes();
    if (model.output || !part_.head() || config_.arch->encoder) return;
    if (config_.tied_output == false)
      throw Error("{}: the output matrix '{}' is missing, and the model does not tie it to the embedding",
                  source_.name(), finder_->name_of(model_matrices().back(), 0));
    model.tied = true;
    if (config_.share) return tie_output_of_rank();
    if (part_.embedding()) {
      model.embedding = backend_.prepare(model.embedding, kForMatmul | kForEmbedding);
      model.output = model.embedding;
    } else {  // another part has looked up and counted the tensor
      HostTensor host;
      finder_->find(model_matrices().front(), 0, host);
      model.output = backend_.prepare(
          {.format = host.format, .n_out = host.n_out, .n_in = host.n_in, .codes = host.data}, kForMatmul);
      if (model.output.codes == nullptr) finder_->release(host);
    }
    weights_.active_bytes += model.output.bytes();
  }

  // The first token type is added to the vectors of all tokens, as the positions are. Only the second type of a pair is
  // added to some of them, so the table keeps its difference from the first.
  void add_token_types() {
    ModelWeights& model = weights_.model;
    if (!model.token_types) return;
    const auto dim = static_cast<size_t>(config_.dim);
    if (!model.positions) model.positions = backend_.alloc(DType::kF32, 1, config_.dim);
    std::vector<float> types(static_cast<size_t>(model.token_types.rows) * dim);
    std::vector<float> positions(static_cast<size_t>(model.positions.rows) * dim);
    backend_.download(types.data(), model.token_types);
    if (config_.arch->learned_positions) backend_.download(positions.data(), model.positions);
    for (size_t i = 0; i < positions.size(); ++i) positions[i] += types[i % dim];
    if (types.size() > dim)
      for (size_t i = dim; i < 2 * dim; ++i) types[i] -= types[i - dim];
    backend_.upload(model.positions, positions.data());
    backend_.upload(model.token_types, types.data());
  }

  // A rank looks up all rows of the embedding, and multiplies by its own rows.
  void tie_output_of_rank() {
    MatrixRow<ModelWeights> row = model_matrices().front();
    row.shard = Shard::kColumns;
    HostTensor host;
    finder_->find(row, 0, host);
    weights_.model.output = backend_.prepare(
        {.format = host.format, .n_out = host.n_out, .n_in = host.n_in, .codes = host.data}, kForMatmul);
    if (weights_.model.output.codes == nullptr) finder_->release(host);
  }

  void tally(const HostTensor& host, bool of_experts) {
    const ExpertConfig& experts = (config_.share ? config_.share->model : config_).experts;
    ++mix_[host.type.empty() ? info(host.format).name : host.type];
    weights_.n_parameters += host.n_out * host.n_in;
    const size_t n_bytes = host.n_out * row_bytes(host.format, host.n_in);
    weights_.active_bytes += of_experts ? n_bytes / experts.n * experts.n_used : n_bytes;
    done_ += host.file_bytes > 0 ? host.file_bytes : n_bytes;
    if (progress_) progress_(done_, total_);
  }

  WeightSource& source_;
  const Config& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  const Part& part_;
  std::shared_ptr<TensorFinder> finder_;
  Weights weights_;
  std::map<std::string, int> mix_;
  size_t done_ = 0, total_ = 0;
};

// Visits the rows in the same way as Loader, so that both use the same tensors. With `head`, counts the tensors of the
// draft head instead.
WeightBytes bytes_of(WeightSource& source, const Config& config, const Backend& backend, const Part& part,
                     const DraftHeadConfig* head) {
  TensorFinder finder(source, config, true);
  WeightBytes bytes;
  const auto prepared = [&](const Weight& shape, unsigned use) {
    bytes.allocated += backend.packed_bytes(shape, use);
    if (backend.reads_codes(use)) bytes.borrowed += shape.bytes();
  };
  // The model's embedding is counted last, when it is known whether it is also the output matrix.
  Weight embedding;
  const auto add = [&]<class Owner>(std::span<const MatrixRow<Owner>> matrices,
                                    std::span<const VectorRow<Owner>> vectors, int layer,
                                    std::vector<Weight Owner::*> seen = {}) {
    HostTensor host;
    for (const auto& row : matrices) {
      if (!applies(row.when, config, layer) || std::ranges::find(seen, row.weight) != seen.end()) continue;
      if (!is_in(part, row, layer) && !(row.use & kForEmbedding)) continue;
      if (is_tied_away(row, config) || !finder.find(row, layer, host)) continue;
      seen.push_back(row.weight);
      const int64_t count = row.count == Size::kNone ? 1 : size_of(row.count, config);
      const Weight shape{.format = host.format, .n_out = host.n_out / count, .n_in = host.n_in, .n_experts = count};
      row.use& kForEmbedding ? void(embedding = shape) : prepared(shape, row.use);
    }
    for (const auto& row : vectors)
      if (applies(row.when, config, layer) && is_in(part, row, layer) && finder.find(row, layer, host))
        bytes.allocated += static_cast<size_t>(host.n_out * host.n_in) * sizeof(float);
    return seen;
  };
  if (head != nullptr) {
    add(head_matrices(*head), head_vectors(*head), 0);
    if (embedding) prepared(embedding, kForEmbedding);
    const std::span<const VectorRow<LayerWeights>> none;
    add(layer_matrices(), layer_vectors(), 0,
        head->is_eagle ? add(eagle_projections(), none, 0) : std::vector<Weight LayerWeights::*>{});
    return bytes;
  }
  const bool has_output = std::ranges::count(add(model_matrices(), model_vectors(), 0), &ModelWeights::output) > 0;
  const unsigned use = (part.embedding() ? kForEmbedding : 0u) |
                       (part.head() && !has_output && !config.share && !config.arch->encoder ? kForMatmul : 0u);
  if (use != 0) prepared(embedding, use);
  if (!has_output && config.share) {
    Weight output = embedding;
    output.n_out = config.share->vocab.n;
    prepared(output, kForMatmul);
  }
  for (int layer = 0; layer < config.n_layers; ++layer) add(layer_matrices(), layer_vectors(), layer);
  return bytes;
}

}  // namespace

bool is_of_feed_forward(std::string_view gguf_name) {
  constexpr std::string_view kLayer = "blk.{}.";
  if (!gguf_name.starts_with(kLayer)) return false;
  gguf_name.remove_prefix(kLayer.size());
  constexpr std::string_view kPrefixes[] = {"ffn_", "post_ffw_", "layer_output_norm", "exp_probs_"};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return gguf_name.starts_with(prefix); });
}

WeightBytes weight_bytes(WeightSource& source, const Config& config, const Backend& backend, const Part& part) {
  return bytes_of(source, config, backend, part, nullptr);
}

void limit_copies(WeightSource& source, const Config& config, Backend& backend, size_t memory, size_t n_devices) {
  if (!backend.is_host() && weight_bytes(source, config, backend).total() / n_devices > memory / 4)
    backend.save_memory();
}

WeightBytes head_bytes(const DraftHeadFile& head, const Backend& backend) {
  return bytes_of(*head.source, head.config->layer, backend, {}, head.config.get());
}

bool has_other_output(WeightSource& source, const Config& tied) {
  Config config = tied;
  config.tied_output = false;
  const auto rows = model_matrices();
  const auto row_of = [&](Weight ModelWeights::*weight) { return std::ranges::find(rows, weight, &MatrixRow<ModelWeights>::weight); };
  TensorFinder finder(source, config);
  HostTensor output, embedding;
  try {
    if (!finder.find(*row_of(&ModelWeights::output), 0, output)) return false;
    if (!finder.find(*row_of(&ModelWeights::embedding), 0, embedding)) return false;
  } catch (const Error&) {  // a matrix of another size is left over from training
    return false;
  }
  if (output.format != embedding.format || output.n_out != embedding.n_out || output.n_in != embedding.n_in) return true;
  const auto n_bytes = static_cast<size_t>(output.n_out) * row_bytes(output.format, output.n_in);
  return !std::equal(output.data, output.data + n_bytes, embedding.data);
}

void check_unused(const WeightSource& source, const Config& config, const std::vector<std::string>& unused) {
  for (const std::string& name : unused)
    if (!is_known_to_be_unused(name, config))
      throw Error(
          "{}: tensor '{}' is {}, but ingot does not use it: models of type '{}' with this tensor are not supported",
          source.name(), printable(name), config.arch->encoder ? "part of a layer" : "in the file",
          source.dialect() == Dialect::kGguf ? config.arch->gguf_name : config.arch->hf_name);
}

Weights load_weights(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress,
                     const Part& part) {
  return Loader(source, config, backend, progress, part).load();
}

DraftHeadWeights load_head(const DraftHeadFile& head, Backend& backend) {
  return Loader(*head.source, head.config->layer, backend, {}, {}).load_head(*head.config);
}

}  // namespace ingot
