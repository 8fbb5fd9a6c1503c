// WeightSource for the weights of checkpoints: GGUF files and Hugging Face directories.
#include <cstring>
#include <list>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/quantized_tensors.h"
#include "model/files/weights.h"

namespace ingot {
namespace {

class GgufSource final : public WeightSource {
 public:
  explicit GgufSource(std::shared_ptr<const Gguf> file) : file_(std::move(file)) {}

  std::string name() const override { return printable(file_->metadata().source()); }
  std::unique_ptr<WeightSource> again() const override { return std::make_unique<GgufSource>(file_); }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!find_shape(name, n_out, n_in, out)) return false;
    const TensorInfo& tensor = *file_->find(name);
    used_.insert(name);
    out.format = *tensor.format;
    out.data = file_->data(tensor).data();
    if (out.format == Format::NVFP4) apply_scale(tensor, out);
    return true;
  }

  bool find_shape(const std::string& name, int64_t, int64_t, HostTensor& out) override {
    const TensorInfo* tensor = file_->find(name);
    if (tensor == nullptr) return false;
    if (!tensor->format)
      throw Error("{}: tensor '{}' is stored as {}, which is not supported yet; use a file in Q4_K_M, Q8_0 or F16",
                  this->name(), name, ggml_type_name(tensor->ggml_type));
    const bool is_scaled = *tensor->format == Format::NVFP4 && find_scale(*tensor) != nullptr;
    out = {.format = is_scaled ? Format::NVFP4_SCALED : *tensor->format,
           .n_out = tensor->n_elements() / static_cast<int64_t>(tensor->shape[0]),
           .n_in = static_cast<int64_t>(tensor->shape[0])};
    return true;
  }

  void release(const HostTensor& tensor) override {
    if (copies_.remove_if([&](const auto& copy) { return copy.data() == tensor.data; }) == 0)
      give_back_mapped(tensor.bytes());
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
  // An NVFP4 matrix may have a scale in a separate tensor; stacked experts have one scale each. llama.cpp multiplies
  // the product by the scale; ingot puts the scale into the blocks.
  const TensorInfo* find_scale(const TensorInfo& tensor) const {
    constexpr std::string_view kWeight = ".weight";
    if (!tensor.name.ends_with(kWeight)) return nullptr;
    return file_->find(std::string(tensor.name.substr(0, tensor.name.size() - kWeight.size())) + ".scale");
  }

  void apply_scale(const TensorInfo& tensor, HostTensor& out) {
    const TensorInfo* scale = find_scale(tensor);
    if (scale == nullptr) return;
    const std::string scale_name(scale->name);
    used_.insert(scale_name);
    const int64_t n_scales = scale->n_elements(),
                  n_matrices = tensor.n_dims == 3 ? static_cast<int64_t>(tensor.shape[2]) : 1;
    if (scale->format != Format::F32 || (n_scales != 1 && n_scales != n_matrices))
      throw Error("{}: tensor '{}' has {} numbers of type {}: expected {} of F32, one for each matrix", name(),
                  printable(scale_name), n_scales, ggml_type_name(scale->ggml_type), n_matrices);
    const size_t n_blocks = static_cast<size_t>(out.n_out * out.n_in) / quant::NVFP4::block_size,
                 n_each = n_blocks / static_cast<size_t>(n_scales);
    std::vector<uint8_t>& copy = copies_.emplace_back(n_blocks * quant::NVFP4_SCALED::block_bytes);
    const uint8_t* scales = file_->data(*scale).data();
    uint8_t* to = copy.data();
    for (size_t b = 0; b < n_blocks; ++b, to += quant::NVFP4_SCALED::block_bytes) {
      std::memcpy(to, scales + b / n_each * sizeof(float), sizeof(float));
      std::memcpy(to + sizeof(float), out.data + b * quant::NVFP4::block_bytes, quant::NVFP4::block_bytes);
    }
    out.format = Format::NVFP4_SCALED;
    out.data = copy.data();
    out.file_bytes = tensor.n_bytes + scale->n_bytes;
    give_back_mapped(file_->data(tensor));
    out.type = "NVFP4";
  }

  std::shared_ptr<const Gguf> file_;
  std::set<std::string> used_;
  std::list<std::vector<uint8_t>> copies_;
};

class SafetensorsSource final : public WeightSource {
 public:
  SafetensorsSource(std::shared_ptr<const Safetensors> files, const std::optional<HfQuantization>& quantization,
                    std::string name)
      : files_(std::move(files)),
        name_(std::move(name)),
        quantization_(quantization),
        quantized_(*files_, quantization, name_) {}

  std::string name() const override { return printable(name_); }
  std::unique_ptr<WeightSource> again() const override {
    return std::make_unique<SafetensorsSource>(files_, quantization_, name_);
  }
  Dialect dialect() const override { return Dialect::kHf; }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (name.empty()) return false;
    for (const std::string& stored : stored_names(name)) {
      if (const QuantizedMatrix* matrix = find_quantized(stored)) return gather(*matrix, n_out, n_in, out), true;
      if (const SafeTensor* tensor = files_->find(stored)) return take(*tensor, out), true;
    }
    return false;
  }

  bool find_shape(const std::string& name, int64_t, int64_t, HostTensor& out) override {
    if (name.empty()) return false;
    for (const std::string& stored : stored_names(name)) {
      if (const QuantizedMatrix* matrix = find_quantized(stored)) {
        out = {.format = QuantizedTensors::format_of(*matrix), .n_out = matrix->n_out, .n_in = matrix->n_in};
        return true;
      }
      if (const SafeTensor* tensor = files_->find(stored)) return out = shape_of(*tensor), true;
    }
    return false;
  }

  void release(const HostTensor& tensor) override {
    const auto is_of = [&](const auto& copy) { return reinterpret_cast<const uint8_t*>(copy.data()) == tensor.data; };
    if (copies_.remove_if(is_of) == 0) give_back_mapped(tensor.bytes());
  }

  size_t total_bytes() const override {
    size_t total = 0;
    for (const SafeTensor& tensor : files_->tensors()) total += tensor.n_bytes;
    return total;
  }

  // Old checkpoints store the rope frequencies, which follow from the config.
  std::vector<std::string> unused() const override {
    std::vector<std::string> names;
    for (const SafeTensor& tensor : files_->tensors())
      if (!used_.contains(tensor.name) && !tensor.name.ends_with(".rotary_emb.inv_freq") && !quantized_.is_part(tensor))
        names.push_back(tensor.name);
    for (const QuantizedMatrix& matrix : quantized_.matrices())
      if (!used_.contains(matrix.module)) names.push_back(matrix.module);
    return names;
  }

 private:
  static std::vector<std::string> stored_names(const std::string& name) {
    std::vector<std::string> names = {name, "language_model." + name, "thinker." + name};
    if (name.starts_with("model.")) {
      names.push_back("model.language_model." + name.substr(6));
      names.push_back("model.text_model." + name.substr(6));
      names.push_back(name.substr(6));  // saved without an output matrix, as embedding models are
      for (const char* encoder : {"bert.", "roberta.", "nomic_bert."}) names.push_back(encoder + name.substr(6));
    }
    return names;
  }

  const QuantizedMatrix* find_quantized(const std::string& stored) const {
    return stored.ends_with(".weight") ? quantized_.find(stored.substr(0, stored.size() - 7)) : nullptr;
  }

  void take(const SafeTensor& tensor, HostTensor& out) {
    used_.insert(tensor.name);
    out = shape_of(tensor);
    out.data = aligned(tensor);
  }

  HostTensor shape_of(const SafeTensor& tensor) const {
    if (!tensor.dtype->format)
      throw Error(
          "{}: tensor '{}' is stored as {}, which is not supported; use a checkpoint in F32, F16 or BF16, or a "
          "quantized one whose "
          "config.json says how",
          name(), printable(tensor.name), tensor.dtype->name);
    if (tensor.n_dims == 0) return {.format = *tensor.dtype->format, .n_out = 1, .n_in = 1};
    const int64_t n_in = tensor.shape[tensor.n_dims - 1];
    return {.format = *tensor.dtype->format, .n_out = n_in > 0 ? tensor.n_elements() / n_in : 0, .n_in = n_in};
  }

  void gather(const QuantizedMatrix& matrix, int64_t n_out, int64_t n_in, HostTensor& out) {
    used_.insert(matrix.module);
    out = {.n_out = matrix.n_out, .n_in = matrix.n_in, .file_bytes = matrix.n_bytes, .type = matrix.type};
    if (matrix.n_out != n_out || matrix.n_in != n_in) return;
    GatheredMatrix gathered = quantized_.gather(matrix);
    for (const SafeTensor* part : {matrix.codes, matrix.scales, matrix.zeros})
      if (part != nullptr) give_back_mapped(files_->data(*part));
    out.format = gathered.format;
    out.data = reinterpret_cast<const uint8_t*>(copies_.emplace_back(std::move(gathered.data)).data());
  }

  // If the file's header has an odd length, all data is at odd addresses. Tensors that are not aligned are copied.
  const uint8_t* aligned(const SafeTensor& tensor) {
    const auto bytes = files_->data(tensor);
    if (reinterpret_cast<uintptr_t>(bytes.data()) % (tensor.dtype->bits / 8) == 0) return bytes.data();
    auto& copy = copies_.emplace_back((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(copy.data()));
    give_back_mapped(bytes);
    return reinterpret_cast<const uint8_t*>(copy.data());
  }

  std::shared_ptr<const Safetensors> files_;
  std::string name_;
  std::optional<HfQuantization> quantization_;
  QuantizedTensors quantized_;
  std::set<std::string> used_;  // names of tensors and of quantized matrices
  std::list<std::vector<uint64_t>> copies_;
};

}  // namespace

std::unique_ptr<WeightSource> gguf_source(std::shared_ptr<const Gguf> file) {
  return std::make_unique<GgufSource>(std::move(file));
}

std::unique_ptr<WeightSource> safetensors_source(std::shared_ptr<const Safetensors> files,
                                                 const std::optional<HfQuantization>& quantization, std::string name) {
  return std::make_unique<SafetensorsSource>(std::move(files), quantization, std::move(name));
}

}  // namespace ingot
