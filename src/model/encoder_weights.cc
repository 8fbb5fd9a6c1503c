#include "model/encoder_weights.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {
namespace {

using Names = EncoderTensor;
constexpr Names kEmbedding{"token_embd", {"embeddings.word_embeddings", "embeddings.tok_embeddings"}};
constexpr Names kPositions{"position_embd", {"embeddings.position_embeddings"}};
constexpr Names kTypes{"token_types", {"embeddings.token_type_embeddings"}};
constexpr Names kEmbedNorm{"token_embd_norm", {"embeddings.LayerNorm", "embeddings.norm", "emb_ln"}};
constexpr Names kFinalNorm{"output_norm", {"final_norm"}};
constexpr Names kQkv{"blk.{}.attn_qkv", {"encoder.layers.{}.attn.Wqkv", "layers.{}.attn.Wqkv"}};
constexpr Names kQ{"blk.{}.attn_q", {"encoder.layer.{}.attention.self.query", "layers.{}.self_attn.q_proj"}};
constexpr Names kK{"blk.{}.attn_k", {"encoder.layer.{}.attention.self.key", "layers.{}.self_attn.k_proj"}};
constexpr Names kV{"blk.{}.attn_v", {"encoder.layer.{}.attention.self.value", "layers.{}.self_attn.v_proj"}};
constexpr Names kOutput{"blk.{}.attn_output",
                        {"encoder.layer.{}.attention.output.dense", "layers.{}.self_attn.o_proj",
                         "encoder.layers.{}.attn.out_proj", "layers.{}.attn.Wo"}};
constexpr Names kAttnNormBefore{"blk.{}.attn_norm", {"layers.{}.attn_norm"}};
constexpr Names kAttnNormAfter{
    "blk.{}.attn_output_norm",
    {"encoder.layer.{}.attention.output.LayerNorm", "layers.{}.post_attention_layernorm", "encoder.layers.{}.norm1"}};
constexpr Names kFfnNormBefore{"blk.{}.ffn_norm", {"layers.{}.mlp_norm"}};
constexpr Names kFfnNormAfter{
    "blk.{}.layer_output_norm",
    {"encoder.layer.{}.output.LayerNorm", "layers.{}.post_mlp_layernorm", "encoder.layers.{}.norm2"}};
constexpr Names kGate{"blk.{}.ffn_gate", {"layers.{}.mlp.gate_proj", "encoder.layers.{}.mlp.fc12"}};
constexpr Names kUp{"blk.{}.ffn_up",
                    {"encoder.layer.{}.intermediate.dense", "layers.{}.mlp.up_proj", "encoder.layers.{}.mlp.fc11"}};
constexpr Names kGateAndUp{"blk.{}.ffn_up", {"layers.{}.mlp.Wi"}};  // the gate comes first
constexpr Names kDown{
    "blk.{}.ffn_down",
    {"encoder.layer.{}.output.dense", "layers.{}.mlp.down_proj", "encoder.layers.{}.mlp.fc2", "layers.{}.mlp.Wo"}};

// The prefixes of the encoder's tensors in models that were saved with a head.
constexpr const char* kPrefixes[] = {"", "bert.", "roberta.", "model.", "nomic_bert."};

struct Part {
  Weight* weight;
  Tensor* bias;
  int64_t n_out;
};

class Loader {
 public:
  Loader(WeightSource& source, const EncoderConfig& config, Backend& backend, const LoadProgress& progress)
      : source_(source), config_(config), backend_(backend), progress_(progress), total_(source.total_bytes()) {}

  EncoderWeights load() {
    const EncoderConfig& c = config_;
    HostTensor host;
    require(kEmbedding, 0, c.n_vocab, c.dim, host);
    weights_.embedding = backend_.prepare(weight_of(host), kForEmbedding);
    load_positions();
    norm(kEmbedNorm, 0, weights_.embed_norm, true);
    norm(kFinalNorm, 0, weights_.final_norm, c.arch->pre_norm);
    weights_.layers.resize(c.n_layers);
    for (int i = 0; i < c.n_layers; ++i) load_layer(weights_.layers[i], i);
    check_unused();
    return std::move(weights_);
  }

 private:
  void load_layer(EncoderLayer& w, int i) {
    const EncoderConfig& c = config_;
    const bool before = c.arch->pre_norm;
    // ModernBERT's first layer takes the output of the embedding's norm directly.
    norm(before ? kAttnNormBefore : kAttnNormAfter, i, w.attn_norm, !(before && i == 0));
    norm(before ? kFfnNormBefore : kFfnNormAfter, i, w.ffn_norm, true);
    if (has(kQkv, i)) {
      linear(kQkv, i, c.dim, {{&w.wq, &w.bq, c.dim}, {&w.wk, &w.bk, c.dim}, {&w.wv, &w.bv, c.dim}});
    } else {
      linear(kQ, i, c.dim, {{&w.wq, &w.bq, c.dim}});
      linear(kK, i, c.dim, {{&w.wk, &w.bk, c.dim}});
      linear(kV, i, c.dim, {{&w.wv, &w.bv, c.dim}});
    }
    linear(kOutput, i, c.dim, {{&w.wo, &w.bo, c.dim}});
    if (!c.arch->gated) {
      linear(kUp, i, c.dim, {{&w.w_up, &w.b_up, c.ffn_dim}});
    } else if (has(kGate, i)) {
      linear(kGate, i, c.dim, {{&w.w_gate, &w.b_gate, c.ffn_dim}});
      linear(kUp, i, c.dim, {{&w.w_up, &w.b_up, c.ffn_dim}});
    } else {
      linear(kGateAndUp, i, c.dim, {{&w.w_gate, &w.b_gate, c.ffn_dim}, {&w.w_up, &w.b_up, c.ffn_dim}});
    }
    linear(kDown, i, c.ffn_dim, {{&w.w_down, &w.b_down, c.dim}});
  }

  // Loads a matrix, or several that the checkpoint stores one below the other, with their biases if it has any.
  void linear(const Names& names, int layer, int64_t n_in, std::initializer_list<Part> parts) {
    int64_t n_out = 0, first = 0;
    for (const Part& part : parts) n_out += part.n_out;
    HostTensor matrix, bias;
    require(names, layer, n_out, n_in, matrix);
    std::vector<float> values;
    if (find(names, layer, ".bias", 1, n_out, bias)) values = decoded(bias);
    for (const Part& part : parts) {
      HostTensor rows = matrix;
      rows.n_out = part.n_out;
      rows.data = matrix.data + first * static_cast<int64_t>(row_bytes(matrix.format, n_in));
      *part.weight = backend_.prepare(weight_of(rows), kForMatmul);
      if (!values.empty()) *part.bias = upload(values.data() + first, 1, part.n_out);
      first += part.n_out;
    }
    source_.release(matrix);
  }

  void norm(const Names& names, int layer, NormArgs& out, bool required) {
    out.eps = config_.norm_eps;
    out.kind = NormKind::kLayer;
    HostTensor host;
    // Old files call weight and bias gamma and beta.
    const bool old =
        !find(names, layer, ".weight", 1, config_.dim, host) && find(names, layer, ".gamma", 1, config_.dim, host);
    if (host.data == nullptr) {
      if (required) throw Error("{}: tensor '{}.weight' is missing", source_.name(), name_of(names, layer));
      return;
    }
    out.weight = upload(decoded(host).data(), 1, config_.dim);
    if (HostTensor bias; find(names, layer, old ? ".beta" : ".bias", 1, config_.dim, bias))
      out.bias = upload(decoded(bias).data(), 1, config_.dim);
  }

  // Learned positions and the first token type are both added to each token's vector, so they are summed once at load.
  void load_positions() {
    const EncoderConfig& c = config_;
    HostTensor host, types;
    std::vector<float> table;
    int64_t n_rows = 1;
    if (!c.arch->rope) {
      const int first = c.first_position;
      n_rows = c.n_ctx;
      if (!find(kPositions, 0, ".weight", -1, c.dim, host))
        throw Error("{}: tensor '{}.weight' is missing", source_.name(), name_of(kPositions, 0));
      if (host.n_out < first + n_rows)
        throw Error("{}: tensor '{}.weight' has {} rows: expected {} for a context of {}", source_.name(),
                    name_of(kPositions, 0), host.n_out, first + n_rows, c.n_ctx);
      host.data += first * static_cast<int64_t>(row_bytes(host.format, c.dim));
      host.n_out = n_rows;
      table = decoded(host);
    }
    if (find(kTypes, 0, ".weight", -1, c.dim, types)) {
      types.n_out = std::min<int64_t>(types.n_out, 2);
      const std::vector<float> type = decoded(types);
      load_second_type(type);
      if (table.empty()) table.resize(c.dim);
      for (size_t i = 0; i < table.size(); ++i) table[i] += type[i % c.dim];
    }
    if (!table.empty()) weights_.positions = upload(table.data(), n_rows, c.dim);
  }

  // types: [1 or 2, dim]
  void load_second_type(const std::vector<float>& types) {
    const auto dim = static_cast<size_t>(config_.dim);
    if (types.size() < 2 * dim) return;
    std::vector<float> difference(dim);
    for (size_t i = 0; i < dim; ++i) difference[i] = types[dim + i] - types[i];
    weights_.second_type = upload(difference.data(), 1, config_.dim);
  }

  // ---- one tensor

  bool has(const Names& names, int layer) {
    HostTensor host;
    return find(names, layer, ".weight", -1, -1, host);
  }
  void require(const Names& names, int layer, int64_t n_out, int64_t n_in, HostTensor& out) {
    if (!find(names, layer, ".weight", n_out, n_in, out))
      throw Error("{}: tensor '{}.weight' is missing", source_.name(), name_of(names, layer));
  }

  // Finds the tensor by any of its names. A size of -1 is not checked.
  bool find(const Names& names, int layer, const char* suffix, int64_t n_out, int64_t n_in, HostTensor& out) {
    const auto name = find_encoder_tensor(source_, names, layer, suffix, out, n_out, n_in);
    if (!name) return false;
    if ((n_out >= 0 && out.n_out != n_out) || (n_in >= 0 && out.n_in != n_in))
      throw Error("{}: tensor '{}' is [{}, {}]: expected [{}, {}]", source_.name(), *name, out.n_out, out.n_in,
                  n_out >= 0 ? n_out : out.n_out, n_in);
    if (progress_ && n_in >= 0)
      progress_(done_ += static_cast<size_t>(out.n_out) * row_bytes(out.format, out.n_in), total_);
    return true;
  }

  // The name for error messages: the first one of the dialect.
  std::string name_of(const Names& names, int layer) const {
    return fmt::format(fmt::runtime(source_.dialect() == Dialect::kGguf ? names.gguf : names.hf[0]), layer);
  }

  static Weight weight_of(const HostTensor& host) {
    return {.format = host.format, .n_out = host.n_out, .n_in = host.n_in, .codes = host.data};
  }

  static std::vector<float> decoded(const HostTensor& host) {
    std::vector<float> values(host.n_out * host.n_in);
    for (int64_t row = 0; row < host.n_out; ++row)
      decode_row(host.format, host.data + row * static_cast<int64_t>(row_bytes(host.format, host.n_in)),
                 &values[row * host.n_in], host.n_in);
    return values;
  }

  Tensor upload(const float* values, int64_t rows, int64_t cols) {
    const Tensor tensor = backend_.alloc(DType::kF32, rows, cols);
    backend_.upload(tensor, values);
    return tensor;
  }

  // Heads after the encoder (poolers, predictions) may be unused. An unused tensor of a layer would change the results,
  // so it is refused.
  void check_unused() const {
    for (const std::string& name : source_.unused())
      if (name.starts_with("blk.") || name.find("layer.") != name.npos || name.find("layers.") != name.npos)
        throw Error("{}: tensor '{}' is part of a layer, and is not known for models of type '{}'", source_.name(),
                    printable(name), config_.arch->hf_name);
  }

  WeightSource& source_;
  const EncoderConfig& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  const size_t total_;
  size_t done_ = 0;
  EncoderWeights weights_;
};

}  // namespace

std::vector<EncoderTensor> encoder_tensors() {
  return {kEmbedding, kPositions,      kTypes,         kEmbedNorm,     kFinalNorm,    kQkv,  kQ,  kK,         kV,
          kOutput,    kAttnNormBefore, kAttnNormAfter, kFfnNormBefore, kFfnNormAfter, kGate, kUp, kGateAndUp, kDown};
}

std::optional<std::string> find_encoder_tensor(WeightSource& source, const EncoderTensor& names, int layer,
                                               const char* suffix, HostTensor& out, int64_t n_out, int64_t n_in) {
  auto found = [&](const std::string& name) { return source.find(name, n_out, n_in, out); };
  if (source.dialect() == Dialect::kGguf) {
    const std::string name = fmt::format(fmt::runtime(names.gguf), layer) + suffix;
    return found(name) ? std::optional(name) : std::nullopt;
  }
  for (const char* hf : names.hf)
    for (const char* prefix : kPrefixes)
      if (hf != nullptr)
        if (const std::string name = prefix + fmt::format(fmt::runtime(hf), layer) + suffix; found(name)) return name;
  return std::nullopt;
}

EncoderWeights load_encoder_weights(WeightSource& source, const EncoderConfig& config, Backend& backend,
                                    const LoadProgress& progress) {
  return Loader(source, config, backend, progress).load();
}

}  // namespace ingot
