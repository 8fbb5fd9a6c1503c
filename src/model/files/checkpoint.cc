#include "model/files/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "io/digest.h"
#include "io/gguf/gguf.h"
#include "io/gguf/tokenizer.h"
#include "io/huggingface/config.h"
#include "io/huggingface/modules.h"
#include "io/huggingface/quantized_tensors.h"
#include "io/huggingface/rwkv_vocab.h"
#include "io/huggingface/tekken.h"
#include "io/huggingface/tokenizer.h"
#include "model/files/weights.h"

namespace ingot {
namespace {

template <class File>
std::string digest_of(const File& file) {
  constexpr size_t kBytes = 256;  // of each tensor
  Digest digest = Digest::sha256();
  for (const auto& tensor : file.tensors()) {
    const std::string head = fmt::format("{} {} {}\n", tensor.name, fmt::join(tensor.dims(), "x"), tensor.n_bytes);
    digest.update({reinterpret_cast<const uint8_t*>(head.data()), head.size()});
    const std::span<const uint8_t> bytes = file.data(tensor);
    digest.update(bytes.first(std::min(bytes.size(), kBytes)));
  }
  return digest.finish();
}

class GgufCheckpoint final : public Checkpoint {
 public:
  explicit GgufCheckpoint(std::shared_ptr<const Gguf> file) : file_(std::move(file)) {}

  const std::string& path() const override { return file_->path(); }
  const Gguf* gguf() const override { return file_.get(); }
  Config config() const override { return config_from_gguf(*file_); }
  bool has_tokenizer() const override { return file_->metadata().contains("tokenizer.ggml.model"); }
  std::unique_ptr<Tokenizer> tokenizer() const override { return Tokenizer::create(tokenizer_spec(*file_)); }

  std::optional<std::string> chat_template() const override {
    const auto source = file_->metadata().find_string("tokenizer.chat_template");
    return source ? std::optional<std::string>(*source) : std::nullopt;
  }

  GenerationConfig generation() const override { return read_generation_config(file_->metadata()); }
  std::unique_ptr<WeightSource> weights() const override { return gguf_source(file_); }
  std::string digest() const override { return digest_of(*file_); }

  CheckpointFacts facts() const override {
    CheckpointFacts facts{.container = fmt::format("GGUF version {}", file_->version()),
                          .name = std::string(file_->metadata().find_string("general.name").value_or("")),
                          .n_files = file_->n_files(),
                          .file_bytes = file_->file_bytes()};
    for (const TensorInfo& t : file_->tensors())
      facts.tensors.push_back({std::string(t.name),
                               ggml_type_name(t.ggml_type),
                               {t.dims().begin(), t.dims().end()},
                               t.n_elements(),
                               t.n_bytes});
    for (const Metadata::Entry& entry : file_->metadata().entries())
      facts.metadata.emplace_back(entry.key, render(entry.value));
    facts.warnings.assign(file_->warnings().begin(), file_->warnings().end());
    return facts;
  }

 private:
  std::shared_ptr<const Gguf> file_;
};

// The weights are opened at first use, so that a directory with only a tokenizer can be inspected.
class HfCheckpoint final : public Checkpoint {
 public:
  explicit HfCheckpoint(const std::string& path) : path_(path), directory_(path) {}

  const std::string& path() const override { return path_; }
  const HfDirectory* directory() const override { return &directory_; }
  Config config() const override {
    Config config = config_from_hf(read_hf_config_of(directory_));
    if (config.tied_output == true && has_own_output(config)) config.tied_output = false;
    return config;
  }
  bool has_tokenizer() const override {
    return directory_.has("tokenizer.json") || directory_.has(kTekkenFile) || directory_.has(kRwkvVocabFile);
  }
  std::unique_ptr<Tokenizer> tokenizer() const override {
    return Tokenizer::create(read_hf_tokenizer(directory_, read_hf_ends(directory_))->spec);
  }
  // Directories with RWKV's vocabulary have no template; their converter to GGUF writes this name of one. So do some
  // with Mistral's tokenizer.
  std::optional<std::string> chat_template() const override {
    auto found = directory_.chat_template();
    if (!found && !directory_.has("tokenizer.json") && directory_.has(kRwkvVocabFile)) found = "rwkv-world";
    if (!found && !directory_.has("tokenizer.json") && directory_.has(kTekkenFile)) found = "mistral-v7-tekken";
    return found;
  }
  GenerationConfig generation() const override { return read_generation_config(directory_); }
  std::unique_ptr<WeightSource> weights() const override {
    return safetensors_source(files(), HfQuantization::read(directory_), directory_.path());
  }
  std::string digest() const override { return digest_of(*files()); }

  CheckpointFacts facts() const override {
    const auto weights = files();
    CheckpointFacts facts{.container = "Hugging Face directory",
                          .name = directory_.name(),
                          .pooling = read_hf_modules(directory_).pooling,
                          .n_files = weights->n_files(),
                          .file_bytes = weights->file_bytes()};
    facts.warnings.assign(weights->warnings().begin(), weights->warnings().end());
    add_tensors(*weights, facts);
    const JsonDocument config = directory_.document("config.json");
    for (const auto& [key, value] : config.root().members()) facts.metadata.emplace_back(key, value.render());
    return facts;
  }

 private:
  // A quantized matrix counts as one tensor, even if it is stored in several. If the quantization is not known, each
  // stored tensor counts.
  void add_tensors(const Safetensors& weights, CheckpointFacts& facts) const {
    std::optional<QuantizedTensors> quantized;
    try {
      const auto quantization = HfQuantization::read(directory_);
      if (quantization && quantization->method() == "MLX") facts.container = "MLX directory";
      quantized.emplace(weights, quantization, directory_.path());
    } catch (const Error& error) {
      facts.warnings.push_back(error.what());
    }
    for (const SafeTensor& t : weights.tensors())
      if (!quantized || !quantized->is_part(t))
        facts.tensors.push_back({t.name, t.dtype->name, {t.dims().begin(), t.dims().end()}, t.n_elements(), t.n_bytes});
    if (!quantized) return;
    for (const QuantizedMatrix& m : quantized->matrices())
      facts.tensors.push_back({m.module + ".weight", m.type, {m.n_out, m.n_in}, m.n_out * m.n_in, m.n_bytes});
  }

  // As in transformers: an output matrix that is no copy of the embedding is used, though the config ties it.
  bool has_own_output(const Config& config) const {
    if (has_own_output_) return *has_own_output_;
    has_own_output_ = false;
    try {
      has_own_output_ = has_other_output(*weights(), config);
    } catch (const Error&) {  // reported when the weights are needed
    }
    if (*has_own_output_)
      log_warn(
          "{}: config.json ties the output matrix to the embedding ('tie_word_embeddings'), but the checkpoint has an "
          "output matrix of its own: that matrix is used",
          printable(path_));
    return *has_own_output_;
  }

  std::shared_ptr<const Safetensors> files() const {
    if (!files_) files_ = std::make_shared<const Safetensors>(Safetensors::open_directory(directory_.path()));
    return files_;
  }

  const std::string path_;
  HfDirectory directory_;
  mutable std::shared_ptr<const Safetensors> files_;
  mutable std::optional<bool> has_own_output_;
};

// Another checkpoint with other ropes.
class RopeCheckpoint final : public Checkpoint {
 public:
  RopeCheckpoint(std::shared_ptr<const Checkpoint> inner, const RopeOverrides& ropes)
      : inner_(std::move(inner)), ropes_(ropes) {}

  const std::string& path() const override { return inner_->path(); }
  Config config() const override {
    Config config = inner_->config();
    apply(ropes_, config);
    return config;
  }
  bool has_tokenizer() const override { return inner_->has_tokenizer(); }
  std::unique_ptr<Tokenizer> tokenizer() const override { return inner_->tokenizer(); }
  std::optional<std::string> chat_template() const override { return inner_->chat_template(); }
  GenerationConfig generation() const override { return inner_->generation(); }
  std::unique_ptr<WeightSource> weights() const override { return inner_->weights(); }
  CheckpointFacts facts() const override { return inner_->facts(); }
  std::string digest() const override { return inner_->digest(); }
  const Gguf* gguf() const override { return inner_->gguf(); }
  const HfDirectory* directory() const override { return inner_->directory(); }

 private:
  const std::shared_ptr<const Checkpoint> inner_;
  const RopeOverrides ropes_;
};

}  // namespace

std::shared_ptr<const Checkpoint> with_ropes(std::shared_ptr<const Checkpoint> checkpoint, const RopeOverrides& ropes) {
  return std::make_shared<RopeCheckpoint>(std::move(checkpoint), ropes);
}

bool is_encoder(const Checkpoint& checkpoint) {
  std::string name;
  if (const Gguf* file = checkpoint.gguf()) {
    name = file->metadata().find_string("general.architecture").value_or("");
  } else if (const HfDirectory* directory = checkpoint.directory()) {
    const JsonDocument document = directory->document("config.json");
    if (const auto type = document.root().find("model_type")) name = type->string();
  }
  return std::ranges::any_of(all_archs(), [&](const Arch& arch) {
    return arch.encoder && name == (checkpoint.gguf() != nullptr ? arch.gguf_name : arch.hf_name);
  });
}

std::shared_ptr<const Checkpoint> gguf_checkpoint(std::shared_ptr<const Gguf> file) {
  return std::make_shared<GgufCheckpoint>(std::move(file));
}

std::shared_ptr<const Checkpoint> hf_checkpoint(const std::string& directory) {
  return std::make_shared<HfCheckpoint>(directory);
}

std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& path) {
  if (HfDirectory::is_one(path)) return hf_checkpoint(path);
  if (std::filesystem::is_directory(path))
    throw Error("'{}' is a directory without a config.json: give a model's directory, or a .gguf file",
                printable(path));
  return gguf_checkpoint(std::make_shared<const Gguf>(Gguf::open(path)));
}

}  // namespace ingot
