#include "model/files/draft_config.h"

#include <cstring>

#include "base/error.h"
#include "io/huggingface/directory.h"
#include "io/huggingface/safetensors.h"
#include "model/files/checkpoint.h"

namespace ingot {
namespace {

// A source in which the tensors of one layer have the names of layer 0.
class OneLayer final : public WeightSource {
 public:
  OneLayer(std::shared_ptr<WeightSource> source, std::string prefix)
      : source_(std::move(source)), prefix_(std::move(prefix)) {}

  std::string name() const override { return source_->name(); }
  Dialect dialect() const override { return source_->dialect(); }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    return source_->find(stored_name(name), n_out, n_in, out);
  }
  bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    return source_->find_shape(stored_name(name), n_out, n_in, out);
  }
  std::string stored_name(const std::string& name) const override {
    const std::string_view first = dialect() == Dialect::kGguf ? "blk.0." : "model.layers.0.";
    return name.starts_with(first) ? prefix_ + name.substr(first.size()) : name;
  }
  void release(const HostTensor& tensor) override { source_->release(tensor); }
  size_t total_bytes() const override { return source_->total_bytes(); }

 private:
  const std::shared_ptr<WeightSource> source_;
  const std::string prefix_;
};

// The ways to store an MTP head. "{}" stands for the number of the model's layers.
struct HeadLayout {
  Dialect dialect;
  const char* tensor;  // a checkpoint with this tensor has the layout
  const char* layer;   // the start of the names of the layer's tensors
  bool hidden_first, returns_normed;
};
constexpr HeadLayout kLayouts[] = {
    {Dialect::kGguf, "blk.{}.nextn.eh_proj.weight", "blk.{}.", false, false},
    {Dialect::kHf, "model.layers.{}.eh_proj.weight", "model.layers.{}.", false, false},         // DeepSeek V3, GLM
    {Dialect::kHf, "mtp.fc.weight", "mtp.layers.0.", false, true},                              // Qwen3-Next, Qwen3.5
    {Dialect::kHf, "model.mtp_layers.0.input_proj.weight", "model.mtp_layers.0.", true, true},  // MiMo
};

std::shared_ptr<const Safetensors> tensors_of(const HfDirectory& directory) {
  return std::make_shared<const Safetensors>(Safetensors::open_directory(directory.path()));
}

// The start of the names of the layer's tensors; empty: the files are not an EAGLE-3 head.
std::string eagle_layer(const Safetensors& files) {
  for (const std::string layer : {"midlayer.", "layers.0.", "model.layers.0."})
    if (files.find(layer + "hidden_norm.weight") != nullptr) return layer;
  return "";
}

// For each token of the head, the tensor d2t has the number to add to get the model's token.
std::vector<int32_t> tokens_of(const Safetensors& files, const std::string& name, int n_draft, const Config& model) {
  const SafeTensor* d2t = files.find("d2t");
  if (d2t == nullptr) return {};
  if (d2t->dtype->name != std::string_view("I64") || d2t->n_elements() != n_draft)
    throw Error("{}: tensor 'd2t' has {} elements of {}: expected {} of I64", name, d2t->n_elements(), d2t->dtype->name,
                n_draft);
  std::vector<int32_t> tokens;
  const auto bytes = files.data(*d2t);
  for (int i = 0; i < n_draft; ++i) {
    int64_t more = 0;
    std::memcpy(&more, bytes.data() + static_cast<size_t>(i) * sizeof more, sizeof more);
    if (more < -i || more >= model.n_vocab - i)
      throw Error("{}: tensor 'd2t' names token {} + {}, but the model has only {} tokens", name, i, more,
                  model.n_vocab);
    tokens.push_back(static_cast<int32_t>(i + more));
  }
  return tokens;
}

}  // namespace

DraftHeadFile find_mtp_head(WeightSource& source, const Config& model) {
  const auto at = [&](const char* name) { return fmt::format(fmt::runtime(name), model.n_layers); };
  HostTensor found;
  for (const HeadLayout& layout : kLayouts) {
    if (layout.dialect != source.dialect() || !source.find_shape(at(layout.tensor), 0, 0, found)) continue;
    auto head = std::make_shared<DraftHeadConfig>();
    head->layer = model;
    head->layer.n_layers = 1;
    LayerConfig like{.parts = model.layer(model.n_layers - 1).parts};
    if (const PartKind* kv = kv_mixer(*model.arch)) set_mixer(like, *kv);
    head->layer.layers = {like};
    head->hidden_first = layout.hidden_first;
    head->returns_normed = layout.returns_normed || model.arch->gates_attention;  // in GGUF files: Qwen's hybrids
    const auto borrowed = std::shared_ptr<WeightSource>(&source, [](WeightSource*) {});
    return {std::move(head), std::make_shared<OneLayer>(borrowed, at(layout.layer))};
  }
  return {};
}

bool is_eagle_head(const Checkpoint& checkpoint) {
  return checkpoint.directory() != nullptr && !eagle_layer(*tensors_of(*checkpoint.directory())).empty();
}

namespace {

// From the config of the head, or else as in the paper's code: a low, a middle and a high layer.
std::array<int, 3> layers_read(const Json& keys, const Config& model) {
  constexpr const char* kKey = "eagle_aux_hidden_state_layer_ids";
  std::optional<Json> listed = keys.find(kKey);
  if (const auto eagle = keys.find("eagle_config"); !listed && eagle) listed = eagle->find(kKey);
  if (!listed) return {2, model.n_layers / 2, model.n_layers - 3};
  const std::vector<Json> layers = listed->elements();
  std::array<int, 3> read{};
  if (layers.size() != read.size()) throw listed->error("lists {} layers: expected 3", layers.size());
  for (size_t i = 0; i < read.size(); ++i)
    read[i] = static_cast<int>(layers[i].integer(i > 0 ? read[i - 1] + 1 : 1, model.n_layers - 1));
  return read;
}

void check_fits(const Config& head, const Config& model, const std::string& name) {
  if (head.n_layers != 1 || head.experts.n > 0 || !head.layer(0).has(kAttentionPart))
    throw Error(
        "{}: the EAGLE-3 head has {} layers, or a layer that is not plain: expected one dense layer with plain "
        "attention",
        name, head.n_layers);
  if (head.dim != model.dim)
    throw Error(
        "{}: the head needs hidden states of {} numbers, but the model's have {}: use a head made for this model", name,
        head.dim, model.dim);
  if (head.n_vocab != model.n_vocab)
    throw Error("{}: the head is made for {} tokens, but the model has {}: use a head made for this model", name,
                head.n_vocab, model.n_vocab);
  constexpr int kFewest = 7;
  if (model.n_layers < kFewest)
    throw Error("{}: the head reads three inner layers of the model, which has only {} layers: expected {} or more",
                name, model.n_layers, kFewest);
}

}  // namespace

DraftHeadFile open_eagle_head(const Checkpoint& checkpoint, const Config& model) {
  const std::string name = printable(checkpoint.path());
  const auto files = tensors_of(*checkpoint.directory());
  const JsonDocument document = checkpoint.directory()->document("config.json");
  const Json keys = document.root();
  auto head = std::make_shared<DraftHeadConfig>();
  head->layer = checkpoint.config();
  check_fits(head->layer, model, name);
  if (const auto n = keys.find("draft_vocab_size"))
    head->layer.n_vocab = static_cast<int>(n->integer(1, model.n_vocab));
  if (const auto keeps = keys.find("norm_before_residual")) head->keeps_normed = keeps->boolean();
  head->layer.layers = {LayerConfig{.parts = {{&kAttentionPart}, {&kFeedForwardPart}}}};
  head->is_eagle = head->layer.reads_pair = true;
  head->kept_layers = layers_read(keys, model);
  head->tokens = tokens_of(*files, name, head->layer.n_vocab, model);
  if (head->tokens.empty() && head->layer.n_vocab != model.n_vocab)
    throw Error("{}: the head has {} of the model's {} tokens, but tensor 'd2t', which lists them, is missing", name,
                head->layer.n_vocab, model.n_vocab);
  return {std::move(head), std::make_shared<OneLayer>(checkpoint.weights(), eagle_layer(*files))};
}

}  // namespace ingot
