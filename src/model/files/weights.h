// Weights: the tensors of a model on a backend, loaded from a source: a checkpoint, or random numbers of a known shape.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "model/config/kind.h"
#include "model/config/split.h"

namespace ingot {

class Gguf;
class HfQuantization;
class LoadQuantizer;
class Safetensors;

enum class Dialect : uint8_t { kGguf, kHf };  // whose tensor names a source uses (model/config/tensors.h)

// A tensor as the source stores it, in host memory that lives as long as the source: n_out rows of n_in elements.
struct HostTensor {
  Format format = Format::F32;
  int64_t n_out = 0;
  int64_t n_in = 0;
  const uint8_t* data = nullptr;
  size_t file_bytes = 0;           // bytes in the checkpoint, if not the size of the blocks; otherwise 0
  std::string type;                // the checkpoint's type, if not `format`: "GPTQ 4-bit g128"
  const uint8_t* whole = nullptr;  // for rows of a larger tensor: that tensor's data, the source's key

  std::span<const uint8_t> bytes() const { return {data, static_cast<size_t>(n_out) * row_bytes(format, n_in)}; }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::string name() const = 0;  // for messages, safe to print
  virtual Dialect dialect() const { return Dialect::kGguf; }
  // Finds the tensor of that name; false if the source lacks it. A tensor of three dimensions counts the rows of all
  // its matrices. n_out and n_in are the sizes that the config expects. If the tensor has other sizes, its data may be
  // missing, so the caller checks the sizes before it reads the data.
  virtual bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) = 0;
  // Like find(), but without data. For plans, before anything is read. Sources with a costly find() override it.
  virtual bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) {
    if (!find(name, n_out, n_in, out)) return false;
    release(out);
    out.data = nullptr;
    return true;
  }
  // The name in the checkpoint, for messages. It differs from `name` if the source renames tensors.
  virtual std::string stored_name(const std::string& name) const { return name; }
  // Tells the source that this tensor has been prepared, so its bytes will hardly be read again: the source frees its
  // copy, and pages of a mapped file leave memory.
  virtual void release(const HostTensor&) {}
  virtual size_t total_bytes() const = 0;
  // A source of the same tensors, for another thread.
  virtual std::unique_ptr<WeightSource> again() const { throw std::logic_error("these weights can be read only once"); }
  // Names of tensors that were never requested.
  virtual std::vector<std::string> unused() const { return {}; }
  // Chooses formats for the matrices that are stored dense (model/files/load_quantizer.h); null: matrices stay as
  // stored.
  virtual const LoadQuantizer* quantizer() const { return nullptr; }
};

// The file stays open and mapped while the source exists.
std::unique_ptr<WeightSource> gguf_source(std::shared_ptr<const Gguf> file);
// `name` is the model's name, for messages. The text model of a wrapper may have its tensors under language_model.
// Quantized matrices are converted to blocks when they are requested. Throws Error if the tensors of a quantized matrix
// do not fit together.
std::unique_ptr<WeightSource> safetensors_source(std::shared_ptr<const Safetensors> files,
                                                 const std::optional<HfQuantization>& quantization, std::string name);

// Wraps the source: find() throws Error if a tensor has a NaN or Inf.
std::unique_ptr<WeightSource> checked_source(std::unique_ptr<WeightSource> source);

// Called while tensors are loaded, with the bytes done and the total bytes.
using LoadProgress = std::function<void(size_t done, size_t total)>;

struct Weights {
  ModelWeights model;
  std::vector<std::vector<Block>> layers;  // [n_layers][parts]: each part's block, with its weights
  size_t file_bytes = 0;                   // of all tensors, as stored in the source
  size_t active_bytes = 0;  // bytes that one token reads: no rows of an embedding, and only the experts that it uses
  size_t chosen_bytes = 0;  // of active_bytes, those of the experts that the token chooses
  int64_t n_parameters = 0;
  std::shared_ptr<void> kept;  // host memory that a backend reads from
  std::string quant_mix;       // "Q4_K 169, Q6_K 32, F32 65": matrices and vectors by format
};

// The bytes that one token of each of n sequences reads together, if the sequences choose experts at random and
// independently.
double bytes_of_step(const Weights& weights, const ExpertConfig& experts, int n_seqs);

// The matrices of all layers that were loaded, each once.
std::vector<const Weight*> layer_matrices(const Weights& weights, const Config& config);

// The memory that load_weights will use, computed before anything is read.
struct WeightBytes {
  WeightBytes(size_t for_allocated = 0, size_t for_borrowed = 0) : allocated(for_allocated), borrowed(for_borrowed) {}
  size_t allocated;  // by the backend
  size_t borrowed;   // stays in the source's memory, such as a mapped file, because the backend reads it there
  size_t total() const { return allocated + borrowed; }
  void operator+=(const WeightBytes& other) { allocated += other.allocated, borrowed += other.borrowed; }
};

// Throws Error naming a tensor that is missing or has the wrong shape or type.
// Both functions count and load only the blocks of `part`. Each part has the small tensors of the model's ropes.
WeightBytes weight_bytes(WeightSource& source, const Config& config, const Backend& backend, const OwnParts& part = {});
Weights load_weights(WeightSource& source, const Config& config, Backend& backend, const LoadProgress& progress,
                     const OwnParts& part = {});

// Lets a GPU keep copies of weights for products of many rows only if all weights, with the copies, take at most a
// quarter of `memory`. n_devices: the devices that share the model equally.
void limit_copies(WeightSource& source, const Config& config, Backend& backend, size_t memory, size_t n_devices = 1);

// Whether a model whose config ties the output matrix to the embedding (Config::tied_output) has another output matrix.
// Reads both matrices up to their first difference.
bool has_other_output(WeightSource& source, const Config& config);

// Throws Error naming a tensor of the source that was never requested, unless it is known to be useless for text.
// load_weights calls it, except for a part: then the caller calls it after the last part.
void check_unused(const WeightSource& source, const Config& config, const std::vector<std::string>& unused);

}  // namespace ingot
