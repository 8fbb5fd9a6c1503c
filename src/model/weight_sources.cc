// The weights of checkpoints as WeightSource hands them out: GGUF files and Hugging Face directories.
#include <list>
#include <set>

#include "base/error.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "model/weights.h"

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

class SafetensorsSource final : public WeightSource {
 public:
  SafetensorsSource(std::shared_ptr<const Safetensors> files, std::string name) : files_(std::move(files)), name_(std::move(name)) {}

  std::string name() const override { return printable(name_); }
  Dialect dialect() const override { return Dialect::kHf; }

  bool find(const std::string& name, int64_t, int64_t, HostTensor& out) override {
    const SafeTensor* tensor = name.empty() ? nullptr : find_wrapped(name);
    if (tensor == nullptr) return false;
    used_.insert(tensor->name);
    if (!tensor->dtype->format)
      throw Error("{}: tensor '{}' is stored as {}, which is not supported yet; use a checkpoint in F32, F16 or BF16", this->name(),
                  printable(tensor->name), tensor->dtype->name);
    if (tensor->n_dims < 1 || tensor->n_dims > 2)
      throw Error("{}: tensor '{}' has {} dimensions: expected 1 or 2", this->name(), printable(tensor->name), tensor->n_dims);
    out = {*tensor->dtype->format, tensor->n_dims == 2 ? tensor->shape[0] : 1, tensor->shape[tensor->n_dims - 1], aligned(*tensor)};
    return true;
  }

  void release(const HostTensor& tensor) override {
    copies_.remove_if([&](const auto& copy) { return reinterpret_cast<const uint8_t*>(copy.data()) == tensor.data; });
  }

  size_t total_bytes() const override {
    size_t total = 0;
    for (const SafeTensor& tensor : files_->tensors()) total += tensor.n_bytes;
    return total;
  }

  // Old checkpoints keep the rope frequencies, which follow from the config.
  std::vector<std::string> unused() const override {
    std::vector<std::string> names;
    for (const SafeTensor& tensor : files_->tensors())
      if (!used_.contains(tensor.name) && !tensor.name.ends_with(".rotary_emb.inv_freq")) names.push_back(tensor.name);
    return names;
  }

 private:
  const SafeTensor* find_wrapped(const std::string& name) const {
    if (const SafeTensor* tensor = files_->find(name)) return tensor;
    if (const SafeTensor* tensor = files_->find("language_model." + name)) return tensor;
    return name.starts_with("model.") ? files_->find("model.language_model." + name.substr(6)) : nullptr;
  }

  // A header of odd length puts all data at odd addresses: such a tensor is copied.
  const uint8_t* aligned(const SafeTensor& tensor) {
    const auto bytes = files_->data(tensor);
    if (reinterpret_cast<uintptr_t>(bytes.data()) % (tensor.dtype->bits / 8) == 0) return bytes.data();
    auto& copy = copies_.emplace_back((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(copy.data()));
    return reinterpret_cast<const uint8_t*>(copy.data());
  }

  std::shared_ptr<const Safetensors> files_;
  std::string name_;
  std::set<std::string> used_;
  std::list<std::vector<uint64_t>> copies_;
};

}  // namespace

std::unique_ptr<WeightSource> gguf_source(std::shared_ptr<const Gguf> file) {
  return std::make_unique<GgufSource>(std::move(file));
}

std::unique_ptr<WeightSource> safetensors_source(std::shared_ptr<const Safetensors> files, std::string name) {
  return std::make_unique<SafetensorsSource>(std::move(files), std::move(name));
}

}  // namespace ingot
