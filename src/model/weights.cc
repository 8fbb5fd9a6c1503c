#include "model/weights.h"

#include <map>

#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

class Loader {
 public:
  Loader(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress)
      : source_(source), config_(config), backend_(backend), progress_(progress) {}

  Weights load() {
    weights_.layers.resize(config_.n_layers);
    total_ = source_.total_bytes();
    load_rows(model_matrices(), model_vectors(), weights_.model, 0);
    tie_output();
    for (int i = 0; i < config_.n_layers; ++i) load_rows(layer_matrices(), layer_vectors(), weights_.layers[i], i);
    for (const auto& [type, count] : mix_)
      weights_.quant_mix += fmt::format("{}{} {}", weights_.quant_mix.empty() ? "" : ", ", type, count);
    weights_.file_bytes = done_;
    check_unused();
    return std::move(weights_);
  }

 private:
  template <class Owner>
  void load_rows(std::span<const MatrixRow<Owner>> matrices, std::span<const VectorRow<Owner>> vectors, Owner& owner,
                 int layer) {
    HostTensor host;
    for (const auto& row : matrices)
      if (!is_tied_away(row) && find(name_in_dialect(row), layer, row.n_out, row.n_in, row.optional, host))
        owner.*row.weight = prepare(host, row.use);
    for (const auto& row : vectors)
      if (find_vector(name_in_dialect(row), layer, row.n, row.optional, host)) owner.*row.vector = upload(host);
  }

  template <class Row>
  const char* name_in_dialect(const Row& row) const {
    return source_.dialect() == Dialect::kGguf ? row.gguf_name : row.hf_name;
  }

  // An output matrix in the file of a model that ties it is a copy, or left over from training.
  bool is_tied_away(const MatrixRow<ModelWeights>& row) const {
    return row.weight == &ModelWeights::output && config_.tied_output == true;
  }
  bool is_tied_away(const MatrixRow<LayerWeights>&) const { return false; }

  static std::string name_of(const char* pattern, int layer) { return fmt::format(fmt::runtime(pattern), layer); }

  bool find(const char* pattern, int layer, Size n_out, Size n_in, bool optional, HostTensor& host) {
    return find(name_of(pattern, layer), size_of(n_out, config_), size_of(n_in, config_), optional, host);
  }
  bool find_vector(const char* pattern, int layer, Size n, bool optional, HostTensor& host) {
    const std::string name = name_of(pattern, layer);
    if (!find(name, 1, size_of(n, config_), optional, host)) return false;
    if (info(host.format).block_size != 1)
      throw Error("{}: tensor '{}' is stored as {}: expected F32, F16 or BF16", source_.name(), name, info(host.format).name);
    return true;
  }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, bool optional, HostTensor& host) {
    if (!source_.find(name, n_out, n_in, host)) {
      if (optional) return false;
      throw Error("{}: tensor '{}' is missing", source_.name(), name);
    }
    if (host.n_out != n_out || host.n_in != n_in)
      throw Error("{}: tensor '{}' is [{}, {}]: expected [{}, {}]", source_.name(), name, host.n_out, host.n_in, n_out, n_in);
    return true;
  }

  Weight prepare(const HostTensor& host, unsigned use) {
    const Weight weight = backend_.prepare({.format = host.format, .n_out = host.n_out, .n_in = host.n_in, .codes = host.data}, use);
    count(host);
    if (weight.codes == nullptr) source_.release(host);
    return weight;
  }

  Tensor upload(const HostTensor& host) {
    std::vector<float> values(host.n_in);
    decode_row(host.format, host.data, values.data(), host.n_in);
    const Tensor vector = backend_.alloc(DType::kF32, 1, host.n_in);
    backend_.upload(vector, values.data());
    count(host);
    return vector;
  }

  void tie_output() {
    ModelWeights& model = weights_.model;
    if (model.output) return;
    if (config_.tied_output == false)
      throw Error("{}: the output matrix '{}' is missing, and the model does not tie it to the embedding", source_.name(),
                  name_in_dialect(model_matrices().back()));
    model.embedding = backend_.prepare(model.embedding, kForMatmul | kForEmbedding);
    model.output = model.embedding;
    model.tied = true;
  }

  // A tensor that nothing asked for may belong to a part that is not needed. A bias or a scale (NVFP4 files have one for each matrix)
  // belongs to a matrix that is, and without it the numbers would be wrong.
  void check_unused() const {
    constexpr size_t kMostNames = 8;  // a wrapper's other parts have hundreds
    const std::vector<std::string> names = source_.unused();
    for (const std::string& name : names)
      if (name.starts_with("blk.") && (name.ends_with(".bias") || name.ends_with(".scale")))
        throw Error("{}: tensor '{}' changes what its matrix computes, which is not supported yet; use a file in another format",
                    source_.name(), printable(name));
    for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
      log_warn("{}: tensor '{}' is not used", source_.name(), printable(names[i]));
    if (names.size() > kMostNames) log_warn("{}: {} more tensors are not used", source_.name(), names.size() - kMostNames);
  }

  void count(const HostTensor& host) {
    ++mix_[host.type.empty() ? info(host.format).name : host.type];
    weights_.n_parameters += host.n_out * host.n_in;
    done_ += host.file_bytes > 0 ? host.file_bytes : host.n_out * row_bytes(host.format, host.n_in);
    if (progress_) progress_(done_, total_);
  }

  WeightSource& source_;
  const Config& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  Weights weights_;
  std::map<std::string, int> mix_;
  size_t done_ = 0, total_ = 0;
};

}  // namespace

Weights load_weights(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress) {
  return Loader(source, config, backend, progress).load();
}

}  // namespace ingot
