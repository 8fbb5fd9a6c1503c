// Checkpoint: a model as it lies on the disk, whatever its container: a GGUF file or a Hugging Face directory. It gives
// the few things that loading needs, and facts for `ingot inspect`; no one else asks what kind it is.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/huggingface/generation_config.h"
#include "model/config.h"
#include "model/weights.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

class HfDirectory;

struct CheckpointTensor {
  std::string name;
  std::string type;            // "Q4_K", "BF16", "MLX 4-bit g64"
  std::vector<int64_t> shape;  // as the container has it; of what it keeps in several tensors, the matrix's
  int64_t n_elements;
  uint64_t n_bytes;
};

struct CheckpointFacts {
  std::string container;               // "GGUF version 3"
  std::string name;                    // the model's own, as the file has it: print with printable()
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

  virtual const std::string& path() const = 0;  // as given to open_checkpoint
  // Throws Error for a model that is not supported, or keys that make no sense.
  virtual Config config() const = 0;
  virtual bool has_tokenizer() const = 0;
  virtual std::unique_ptr<Tokenizer> tokenizer() const = 0;
  virtual std::optional<std::string> chat_template() const = 0;
  // How its makers would have it sampled. Throws Error for values out of range.
  virtual GenerationConfig generation() const = 0;
  // The source keeps what it needs of the checkpoint.
  virtual std::unique_ptr<WeightSource> weights() const = 0;
  virtual CheckpointFacts facts() const = 0;

  // What it is kept in, for those who write it as another kind (model/gguf_export.h): one of these, the other is null.
  virtual const Gguf* gguf() const { return nullptr; }
  virtual const HfDirectory* directory() const { return nullptr; }
};

// A GGUF file (any part of a split one), or a directory with config.json. Throws Error.
std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& path);
std::shared_ptr<const Checkpoint> gguf_checkpoint(std::shared_ptr<const Gguf> file);
std::shared_ptr<const Checkpoint> hf_checkpoint(const std::string& directory);

}  // namespace ingot
