// Checkpoint: a model on the disk, in any container: a GGUF file or a Hugging Face directory. It provides everything
// that loading needs, and facts for `ingot inspect`. Code that depends on the kind of container uses gguf() and
// directory().
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/huggingface/generation_config.h"
#include "model/config/config.h"
#include "model/config/rope_overrides.h"
#include "model/files/weights.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

class HfDirectory;

struct CheckpointTensor {
  std::string name;
  std::string type;            // "Q4_K", "BF16", "MLX 4-bit g64"
  std::vector<int64_t> shape;  // as in the container; of a matrix stored in several tensors, the matrix's shape
  int64_t n_elements;
  uint64_t n_bytes;
};

struct CheckpointFacts {
  std::string container;               // "GGUF version 3"
  std::string name;                    // the name that the file gives; print with printable()
  std::optional<std::string> pooling;  // of an embedding model
  size_t n_files = 0;
  uint64_t file_bytes = 0;
  std::vector<CheckpointTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;  // rendered, safe to print
  std::vector<std::string> warnings;                          // odd but harmless
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const std::string& path() const = 0;  // as given to open_checkpoint()
  // Throws Error if the model is not supported or its keys are invalid.
  virtual Config config() const = 0;
  virtual bool has_tokenizer() const = 0;
  virtual std::unique_ptr<Tokenizer> tokenizer() const = 0;
  virtual std::optional<std::string> chat_template() const = 0;
  // The sampling settings that the model's makers recommend. Throws Error if a value is out of range.
  virtual GenerationConfig generation() const = 0;
  // The source keeps the parts of the checkpoint that it needs alive.
  virtual std::unique_ptr<WeightSource> weights() const = 0;
  virtual CheckpointFacts facts() const = 0;
  // Identifies the weights: a SHA-256 of the tensors' names, sizes and first bytes. It is fast, and not for security.
  virtual std::string digest() const = 0;

  // The container, for code that depends on its kind, such as model/export/gguf_export.h. One of the two is null.
  virtual const Gguf* gguf() const { return nullptr; }
  virtual const HfDirectory* directory() const { return nullptr; }
};

// Whether the checkpoint's architecture is an encoder (Arch::encoder).
bool is_encoder(const Checkpoint& checkpoint);

// Opens a GGUF file (any part of a split file), or a directory with config.json. Throws Error.
std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& path);
std::shared_ptr<const Checkpoint> gguf_checkpoint(std::shared_ptr<const Gguf> file);
std::shared_ptr<const Checkpoint> hf_checkpoint(const std::string& directory);
// The checkpoint with other ropes.
std::shared_ptr<const Checkpoint> with_ropes(std::shared_ptr<const Checkpoint> checkpoint, const RopeOverrides& ropes);

}  // namespace ingot
