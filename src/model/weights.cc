#include "model/weights.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf.h"

namespace ingot {
namespace {

class GgufSource final : public WeightSource {
 public:
  explicit GgufSource(std::shared_ptr<const Gguf> file) : file_(std::move(file)) {}

  std::string name() const override { return printable(file_->metadata().source()); }

  bool find(const std::string& name, int64_t, int64_t, HostTensor& out) override {
    const TensorInfo* tensor = file_->find(name);
    if (tensor == nullptr) return false;
    used_.insert(name);
    if (!tensor->format)
      throw Error("{}: tensor '{}' is stored as {}, which is not supported yet; use a file in Q4_K_M, Q8_0 or F16", this->name(), name,
                  ggml_type_name(tensor->ggml_type));
    if (tensor->n_dims > 2) throw Error("{}: tensor '{}' has {} dimensions: expected 1 or 2", this->name(), name, tensor->n_dims);
    out = {*tensor->format, tensor->n_dims == 2 ? static_cast<int64_t>(tensor->shape[1]) : 1,
           static_cast<int64_t>(tensor->shape[0]), file_->data(*tensor).data()};
    return true;
  }

  size_t total_bytes() const override {
    size_t total = 0;
    for (const TensorInfo& tensor : file_->tensors()) total += tensor.n_bytes;
    return total;
  }

  std::vector<std::string> unused() const override {
    std::vector<std::string> names;
    for (const TensorInfo& tensor : file_->tensors())
      if (!used_.contains(std::string(tensor.name))) names.emplace_back(tensor.name);
    return names;
  }

 private:
  std::shared_ptr<const Gguf> file_;
  std::set<std::string> used_;
};

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
    for (const auto& [format, count] : mix_)
      weights_.quant_mix += fmt::format("{}{} {}", weights_.quant_mix.empty() ? "" : ", ", info(format).name, count);
    weights_.file_bytes = done_;
    for (const std::string& name : source_.unused()) log_warn("{}: tensor '{}' is not used", source_.name(), printable(name));
    return std::move(weights_);
  }

 private:
  template <class Owner>
  void load_rows(std::span<const MatrixRow<Owner>> matrices, std::span<const VectorRow<Owner>> vectors, Owner& owner,
                 int layer) {
    HostTensor host;
    for (const auto& row : matrices)
      if (find(row.gguf_name, layer, row.n_out, row.n_in, row.optional, host))
        owner.*row.weight = prepare(host, row.use);
    for (const auto& row : vectors)
      if (find_vector(row.gguf_name, layer, row.n, row.optional, host)) owner.*row.vector = upload(host);
  }

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
    model.embedding = backend_.prepare(model.embedding, kForMatmul | kForEmbedding);
    model.output = model.embedding;
    model.tied = true;
  }

  void count(const HostTensor& host) {
    ++mix_[host.format];
    weights_.n_parameters += host.n_out * host.n_in;
    done_ += host.n_out * row_bytes(host.format, host.n_in);
    if (progress_) progress_(done_, total_);
  }

  WeightSource& source_;
  const Config& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  Weights weights_;
  std::map<Format, int> mix_;
  size_t done_ = 0, total_ = 0;
};

}  // namespace

std::unique_ptr<WeightSource> gguf_source(std::shared_ptr<const Gguf> file) {
  return std::make_unique<GgufSource>(std::move(file));
}

Weights load_weights(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress) {
  return Loader(source, config, backend, progress).load();
}

}  // namespace ingot
