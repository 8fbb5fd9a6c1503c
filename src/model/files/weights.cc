#include "model/files/weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "model/files/draft_config.h"
#include "model/files/tensor_finder.h"

namespace ingot {
namespace {

// If the config ties the output matrix, a matrix in the file is ignored: it is a copy (has_other_output).
bool is_tied_away(const MatrixRow& row, const Config& config) {
  return &row == &output_row() && config.tied_output == true;
}

// Parts that text does not need: images and sound, layers that draft tokens, heads that read an embedding.
constexpr std::string_view kOtherParts[] = {
    "visual.", "vision", "vit.", "audio_", "talker.", "code2wav.", "token2wav.", "embed_vision.",
    "embed_audio.", "multi_modal_projector.", "mm_projector.", "connector.", "patch_merger.", "mtp.", "mtp_layers.", "v.",
    "a.", "mm.", "score.", "classifier.", "cls.", "dense_",
    "layers.0.attn.v_lora."};  // RWKV-7 mixes the values of later layers only
// Frequencies that follow from the config, scales of an FP8 cache, and the output matrix of a model that ties it.
constexpr std::string_view kNotNeeded[] = {".rotary_emb.inv_freq", ".attn_rot_embd.weight", ".k_scale", ".v_scale",
                                           "lm_head.weight",       "output.weight"};

// Files may keep the matrices of keys and values of layers that read an earlier layer's.
bool makes_keys(std::string_view name) {
  for (const char* part : {".attn_k.", ".attn_v.", ".attn_k_norm.", ".k_proj.", ".v_proj.", ".k_norm."})
    if (name.find(part) != name.npos) return true;
  return false;
}

int holder_of(const PartKind& kind, const Config& config, int layer) {
  return kind.holder != nullptr ? kind.holder(config, layer) : layer;
}

// Files may keep copies of what a layer shares with an earlier one.
bool is_copy(std::string_view name, const Config& config, int layer) {
  return std::ranges::any_of(parts_of(config, layer), [&](const PartKind* kind) {
    return holder_of(*kind, config, layer) != layer && name.find(kind->name) != name.npos;
  });
}

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
    if (layer < 0) continue;
    if (config.layer(layer).kv_layer >= 0 && makes_keys(name)) return true;
    if (is_copy(name, config, layer)) return true;
  }
  return false;
}

// Whether the part has the tensor of a row outside the layers. The norm before the head is the head's.
bool is_final_norm(const VectorRow& row) {
  return row.member == at<&ModelWeights::final_norm> || row.member == at<&ModelWeights::output_bias> ||
         row.member == at<&ModelWeights::final_norm_bias>;
}
bool is_in(const OwnParts& part, const MatrixRow& row) {
  return &row == &output_row() ? part.head() : part.embedding();
}
bool is_in(const OwnParts& part, const VectorRow& row) { return !is_final_norm(row) || part.head(); }

// Each part has the tensors of ropes, and the one with the embedding counts them.
bool counts(const OwnParts& part, const VectorRow& row) { return is_final_norm(row) || part.embedding(); }

class Loader {
 public:
  Loader(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress,
         const OwnParts& part)
      : source_(source),
        config_(config),
        backend_(backend),
        progress_(progress),
        part_(part),
        finder_(std::make_shared<TensorFinder>(source, config)) {}

  Weights load() {
    total_ = source_.total_bytes();
    load_rows(model_rows(), &weights_.model, 0, [&](const auto& row) { return is_in(part_, row); });
    tie_output();
    add_token_types();
    for (int layer = 0; layer < config_.n_layers; ++layer) weights_.layers.push_back(load_layer(layer));
    for (const auto& [type, count] : mix_)
      weights_.quant_mix += fmt::format("{}{} {}", weights_.quant_mix.empty() ? "" : ", ", type, count);
    weights_.file_bytes = done_;
    weights_.kept = finder_;
    if (part_.has.empty()) check_unused(source_, config_, source_.unused());
    return std::move(weights_);
  }

  DraftHeadWeights load_head(const DraftHeadConfig& config) {
    DraftHeadWeights head;
    load_rows(head_rows(config), &head, 0, [](const auto&) { return true; });
    head.layer = load_layer(0);
    head.kept = finder_;
    return head;
  }

 private:
  std::vector<Block> load_layer(int layer) {
    std::vector<Block> blocks = make_layer(config_, layer);
    for (size_t i = 0; const auto& [kind, part, beside] : placed_parts(config_, layer)) {
      Block& block = blocks[i++];
      if (!part_.layer(layer, part)) continue;
      load_rows(kind->rows(), block.data(), layer, [](const auto&) { return true; });
      if (const int holder = holder_of(*kind, config_, layer); holder != layer)
        kind->share(block, weights_.layers[static_cast<size_t>(holder)][i - 1]);
      if (kind->check != nullptr) kind->check(block, config_, layer, source_);
    }
    return blocks;
  }

  // Fills the members of `owner`. Of several rows for one matrix, the first that exists is used.
  template <class IsWanted>
  void load_rows(const TensorRows& rows, void* owner, int layer, const IsWanted& is_wanted) {
    HostTensor host;
    for (const MatrixRow& row : rows.matrices)
      if (applies(row, config_, layer) && is_wanted(row) && !row.member(owner) && !is_tied_away(row, config_) &&
          finder_->find(row, layer, host))
        row.member(owner) = prepare(host, row);
    for (const VectorRow& row : rows.vectors)
      if (applies(row, config_, layer) && is_wanted(row) && finder_->find(row, layer, host)) set(row, owner, host);
  }

  void set(const VectorRow& row, void* owner, const HostTensor& host) {
    const bool is_counted = owner != &weights_.model || counts(part_, row);
    const float factor = row.factor != nullptr ? row.factor(config_) : 1.0f;
    if (row.scalar == nullptr) return void(row.member(owner) = upload(host, factor, is_counted));
    decode_row(host.format, host.data, &row.scalar(owner), 1);
    if (!std::isfinite(row.scalar(owner)))
      throw Error("{}: a tensor of one number holds {}", source_.name(), row.scalar(owner));
    if (is_counted) tally(host, {});
    finder_->release(host);
  }

  Weight prepare(const HostTensor& host, const MatrixRow& row) {
    const int64_t count = count_of(row, config_);
    const Weight weight = backend_.prepare(
        {.format = host.format, .n_out = host.n_out / count, .n_in = host.n_in, .codes = host.data, .n_experts = count},
        row.use);
    tally(host, row.count);
    if (weight.codes == nullptr) finder_->release(host);
    if (&row == &embedding_row()) embedding_ = host;
    return weight;
  }

  Tensor upload(const HostTensor& host, float factor, bool is_counted) {
    std::vector<float> values(static_cast<size_t>(host.n_out * host.n_in));
    for (int64_t i = 0; i < host.n_out; ++i)
      decode_row(host.format, host.data + i * row_bytes(host.format, host.n_in), values.data() + i * host.n_in,
                 host.n_in);
    for (float& value : values) value *= factor;
    const Tensor vector = backend_.alloc(DType::kF32, host.n_out, host.n_in);
    backend_.upload(vector, values.data());
    if (is_counted) tally(host, {});
    finder_->release(host);
    return vector;
  }

  // The rows of the embedding are looked up, so a token reads only one of them, unless they are also the output matrix.
  void tie_output() {
    ModelWeights& model = weights_.model;
    weights_.active_bytes -= model.embedding.bytes() + model.layer_table.bytes();
    if (model.output || !part_.head() || config_.arch->encoder) return;
    if (config_.tied_output == false)
      throw Error("{}: the output matrix '{}' is missing, and the model does not tie it to the embedding",
                  source_.name(), finder_->name_of(output_row(), 0));
    model.tied = true;
    if (config_.share) return tie_output_of_rank();
    if (part_.embedding()) {
      const bool was_read = model.embedding.codes != nullptr;
      model.embedding = backend_.prepare(model.embedding, kForMatmul | kForEmbedding);
      model.output = model.embedding;
      if (was_read && model.embedding.codes == nullptr) finder_->release(embedding_);
    } else {  // another part has looked up and counted the tensor
      HostTensor host;
      finder_->find(embedding_row(), 0, host);
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
    MatrixRow row = embedding_row();
    row.shard = Shard::kColumns;
    HostTensor host;
    finder_->find(row, 0, host);
    weights_.model.output = backend_.prepare(
        {.format = host.format, .n_out = host.n_out, .n_in = host.n_in, .codes = host.data}, kForMatmul);
    if (weights_.model.output.codes == nullptr) finder_->release(host);
  }

  void tally(const HostTensor& host, const Dim& count) {
    const Config& model = config_.share ? config_.share->model : config_;
    ++mix_[host.type.empty() ? info(host.format).name : host.type];
    weights_.n_parameters += host.n_out * host.n_in;
    const size_t n_bytes = host.n_out * row_bytes(host.format, host.n_in);
    const size_t n_chosen =
        count.used == nullptr ? 0 : n_bytes / static_cast<size_t>(size_of(count, model)) * size_of(count.used, model);
    weights_.active_bytes += count.used == nullptr ? n_bytes : n_chosen;
    weights_.chosen_bytes += n_chosen;
    done_ += host.file_bytes > 0 ? host.file_bytes : n_bytes;
    if (progress_) progress_(done_, total_);
  }

  WeightSource& source_;
  const Config& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  const OwnParts& part_;
  std::shared_ptr<TensorFinder> finder_;
  Weights weights_;
  HostTensor embedding_;
  std::map<std::string, int> mix_;
  size_t done_ = 0, total_ = 0;
};

// Visits the rows in the same way as Loader, so that both use the same tensors. With `head`, counts the tensors of the
// draft head instead.
WeightBytes bytes_of(WeightSource& source, const Config& config, const Backend& backend, const OwnParts& part,
                     const DraftHeadConfig* head) {
  TensorFinder finder(source, config, true);
  WeightBytes bytes;
  const auto prepared = [&](const Weight& shape, unsigned use) {
    bytes.allocated += backend.packed_bytes(shape, use);
    if (backend.reads_codes(shape.format, use)) bytes.borrowed += shape.bytes();
  };
  // The model's embedding is counted last, when it is known whether it is also the output matrix.
  Weight embedding;
  const auto add = [&](const TensorRows& rows, int layer, bool has_all) {
    HostTensor host;
    std::vector<Weight& (*)(void*)> seen;
    for (const MatrixRow& row : rows.matrices) {
      if (!applies(row, config, layer) || std::ranges::find(seen, row.member) != seen.end()) continue;
      if (!has_all && !is_in(part, row) && !(row.use & kForEmbedding)) continue;
      if (is_tied_away(row, config) || !finder.find(row, layer, host)) continue;
      seen.push_back(row.member);
      const int64_t count = count_of(row, config);
      const Weight shape{.format = host.format, .n_out = host.n_out / count, .n_in = host.n_in, .n_experts = count};
      row.use& kForEmbedding ? void(embedding = shape) : prepared(shape, row.use);
    }
    for (const VectorRow& row : rows.vectors)
      if (applies(row, config, layer) && (has_all || is_in(part, row)) && finder.find(row, layer, host) &&
          row.scalar == nullptr)
        bytes.allocated += static_cast<size_t>(host.n_out * host.n_in) * sizeof(float);
    return std::ranges::count(seen, output_row().member) > 0;
  };
  const auto add_layer = [&](int layer) {
    for (const PlacedKind& placed : placed_parts(config, layer))
      if (part.layer(layer, placed.part)) add(placed.kind->rows(), layer, true);
  };
  if (head != nullptr) {
    add(head_rows(*head), 0, true);
    if (embedding) prepared(embedding, kForEmbedding);
    add_layer(0);
    return bytes;
  }
  const bool has_output = add(model_rows(), 0, false);
  const unsigned use = (part.embedding() ? kForEmbedding : 0u) |
                       (part.head() && !has_output && !config.share && !config.arch->encoder ? kForMatmul : 0u);
  if (use != 0) prepared(embedding, use);
  if (!has_output && config.share) {
    Weight output = embedding;
    output.n_out = config.share->vocab.n;
    prepared(output, kForMatmul);
  }
  for (int layer = 0; layer < config.n_layers; ++layer) add_layer(layer);
  return bytes;
}

}  // namespace

double bytes_of_step(const Weights& weights, const ExpertConfig& experts, int n_seqs) {
  const auto active = static_cast<double>(weights.active_bytes), chosen = static_cast<double>(weights.chosen_bytes);
  if (experts.n == 0 || experts.n_used == 0) return active;
  const double n = experts.n, n_used = experts.n_used;
  const double n_distinct = n * (1 - std::pow(1 - n_used / n, n_seqs));
  return active + chosen * (n_distinct / n_used - 1);
}

std::vector<const Weight*> layer_matrices(const Weights& weights, const Config& config) {
  std::vector<const Weight*> all;
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const std::vector<const PartKind*> kinds = parts_of(config, static_cast<int>(layer));
    for (size_t i = 0; i < kinds.size(); ++i)
      for (const MatrixRow& row : kinds[i]->rows().matrices) {
        const Weight& weight = row.member(const_cast<Block&>(weights.layers[layer][i]).data());
        if (weight && std::ranges::find(all, &weight) == all.end()) all.push_back(&weight);
      }
  }
  return all;
}

WeightBytes weight_bytes(WeightSource& source, const Config& config, const Backend& backend, const OwnParts& part) {
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
  TensorFinder finder(source, config);
  HostTensor output, embedding;
  try {
    if (!finder.find(output_row(), 0, output)) return false;
    if (!finder.find(embedding_row(), 0, embedding)) return false;
  } catch (const Error&) {  // a matrix of another size is left over from training
    return false;
  }
  if (output.format != embedding.format || output.n_out != embedding.n_out || output.n_in != embedding.n_in)
    return true;
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
                     const OwnParts& part) {
  return Loader(source, config, backend, progress, part).load();
}

DraftHeadWeights load_head(const DraftHeadFile& head, Backend& backend) {
  return Loader(*head.source, head.config->layer, backend, {}, {}).load_head(*head.config);
}

}  // namespace ingot
