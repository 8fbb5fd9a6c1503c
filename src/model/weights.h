// Weights: the tensors of a model on a backend, loaded from a source: a GGUF file, or random numbers of a known shape.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/tensors.h"

namespace ingot {

class Gguf;
class HfQuantization;
class Safetensors;

enum class Dialect : uint8_t { kGguf, kHf };  // whose names a source's tensors have (model/tensors.h)

// A tensor as the source has it, in host memory that lives as long as the source: rows of n_in elements.
struct HostTensor {
  Format format = Format::F32;
  int64_t n_out = 0;
  int64_t n_in = 0;
  const uint8_t* data = nullptr;
  size_t file_bytes = 0;           // that the checkpoint keeps it in, where that is other than the size of its blocks
  std::string type;                // likewise what it is there: "GPTQ 4-bit g128"
  const uint8_t* whole = nullptr;  // of rows of a larger tensor: that one's first, by which the source knows it
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::string name() const = 0;  // for messages, safe to print
  virtual Dialect dialect() const { return Dialect::kGguf; }
  // The tensor of that name, its rows being those of all matrices where it has three dimensions; false when there is
  // none. n_out and n_in are what the config expects; the caller checks, before it looks at the data, which may be
  // missing when the shape is another.
  virtual bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) = 0;
  // What find() would say, but for data: for plans, before anything is read. Sources whose find() is costly override
  // it.
  virtual bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) {
    if (!find(name, n_out, n_in, out)) return false;
    release(out);
    out.data = nullptr;
    return true;
  }
  // The tensor just found has been prepared and its bytes will not be read again.
  virtual void release(const HostTensor&) {}
  virtual size_t total_bytes() const = 0;
  // Names of tensors that nothing asked for.
  virtual std::vector<std::string> unused() const { return {}; }
};

// The file stays open, and mapped, as long as the source does.
std::unique_ptr<WeightSource> gguf_source(std::shared_ptr<const Gguf> file);
// `name` is the model's, for messages. A wrapper's text model may have its tensors under language_model. Quantized
// matrices are gathered into blocks as they are asked for. Throws Error where the tensors of one do not fit together.
std::unique_ptr<WeightSource> safetensors_source(std::shared_ptr<const Safetensors> files,
                                                 const std::optional<HfQuantization>& quantization, std::string name);

// The same source, but find() throws Error where a tensor has a number that is not finite.
std::unique_ptr<WeightSource> checked_source(std::unique_ptr<WeightSource> source);

// Called as tensors are loaded: bytes done and bytes in all.
using LoadProgress = std::function<void(size_t done, size_t total)>;

struct Weights {
  ModelWeights model;
  std::vector<LayerWeights> layers;
  size_t file_bytes = 0;    // of all tensors, as the source stores them
  size_t active_bytes = 0;  // of those that one token meets: of experts, the ones that it goes to
  int64_t n_parameters = 0;
  std::shared_ptr<void> kept;  // host memory that a backend reads from
  std::string quant_mix;       // "Q4_K 169, Q6_K 32, F32 65": matrices and vectors by format
};

// What load_weights will take of memory, told before anything is read.
struct WeightBytes {
  WeightBytes(size_t for_allocated = 0, size_t for_borrowed = 0) : allocated(for_allocated), borrowed(for_borrowed) {}
  size_t allocated;  // by the backend
  size_t borrowed;   // stays where the source has it, in a file's mapping, say, because the backend goes on reading it
  size_t total() const { return allocated + borrowed; }
};

// Throws Error naming the tensor that is missing or has the wrong shape or type.
WeightBytes weight_bytes(WeightSource& source, const Config& config, const Backend& backend);
Weights load_weights(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress);

// Throws Error naming a tensor that nothing has asked for, but for those that are known to be of no use to a text model.
void check_unused(const WeightSource& source, const Config& config);

}  // namespace ingot
