#include "model/export/head_export.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "io/huggingface/modules.h"
#include "model/vectors/embedder.h"

namespace ingot {
namespace {

constexpr const char* kInstead = "run the directory without converting it";

void add_layer(const std::string& name, const HeadLayer& layer, std::vector<ExportTensor>& tensors) {
  std::vector<float> rows(layer.weight.size());  // [n_out, n_in], the order in files
  for (int out = 0; out < layer.n_out; ++out)
    for (int in = 0; in < layer.n_in; ++in)
      rows[static_cast<size_t>(out) * layer.n_in + in] = layer.weight[static_cast<size_t>(in) * layer.n_out + out];
  const std::vector<uint64_t> shape = {static_cast<uint64_t>(layer.n_in), static_cast<uint64_t>(layer.n_out)};
  tensors.push_back(computed_tensor(name + ".weight", shape, std::move(rows)));
  if (!layer.bias.empty()) tensors.push_back(computed_tensor(name + ".bias", {layer.bias.size()}, layer.bias));
}

std::vector<ExportTensor> classifier_export(const Checkpoint& checkpoint, WeightSource& source, int dim,
                                            bool is_encoder) {
  std::vector<ExportTensor> tensors;
  const Classifier classifier = read_classifier(checkpoint, source, dim, is_encoder);
  size_t n_first = 0;
  if (!classifier.prompt) checkpoint.tokenizer()->encode_pair("", "", 8, n_first);  // throws for other forms of pairs
  const std::vector<HeadLayer>& layers = classifier.head.layers();
  const bool normed = layers.size() == 2 && !layers[0].norm.empty();
  if (classifier.pooling != (normed ? "mean" : is_encoder ? "cls" : "last"))
    throw Error("{}: GGUF cannot store the classifier's pooling '{}': {}", printable(checkpoint.path()),
                classifier.pooling, kInstead);
  if (layers.size() == 2 && layers[0].activation != (normed ? HeadLayer::Act::kGelu : HeadLayer::Act::kTanh))
    throw Error("{}: GGUF cannot store the classifier's activation: {}", printable(checkpoint.path()), kInstead);
  if (classifier.raw)
    log_warn(
        "{}: this model returns raw scores, which GGUF cannot store: the file's scores will be from 0 to 1, in the "
        "same order",
        printable(checkpoint.path()));
  if (layers.size() == 2) add_layer("cls", layers[0], tensors);
  if (normed) tensors.push_back(computed_tensor("cls.norm.weight", {layers[0].norm.size()}, layers[0].norm));
  if (normed && !layers[0].norm_bias.empty())
    tensors.push_back(computed_tensor("cls.norm.bias", {layers[0].norm_bias.size()}, layers[0].norm_bias));
  HeadLayer out = layers.back();
  if (classifier.prompt) {  // readers take the softmax of two classes: the class "no" gets 0
    out.n_out = 2;
    out.weight.clear();
    for (const float w : layers.back().weight) out.weight.insert(out.weight.end(), {w, 0.0f});
  }
  add_layer("cls.output", out, tensors);
  return tensors;
}

std::vector<ExportTensor> dense_export(const Checkpoint& checkpoint, WeightSource& source) {
  std::vector<ExportTensor> tensors;
  const EmbedHead head = read_dense_head(checkpoint, source, 0);
  if (head.layers().size() > 2)
    throw Error("{}: GGUF can store at most two dense layers, but this model has {}", printable(checkpoint.path()),
                head.layers().size());
  int number = 2;
  for (const HeadLayer& layer : head.layers()) {
    if (layer.activation != HeadLayer::Act::kNone || !layer.bias.empty() || layer.takes_unit)
      throw Error("{}: GGUF cannot store a dense layer with a bias, an activation or normalized input: {}",
                  printable(checkpoint.path()), kInstead);
    add_layer(fmt::format("dense_{}", number++), layer, tensors);
  }
  return tensors;
}

// For a model that answers in words: the prompt, and the labels of its two classes.
void write_asked_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer) {
  const auto prompt = classifier_prompt(checkpoint);
  if (!prompt) return;
  writer.set(arch + ".classifier.output_labels", std::vector<std::string>{"yes", "no"});
  writer.set("tokenizer.chat_template.rerank", *prompt);
}

}  // namespace

ExportTensor computed_tensor(const std::string& name, std::vector<uint64_t> shape, std::vector<float> values) {
  const auto kept = std::make_shared<const std::vector<float>>(std::move(values));
  const auto n_in = static_cast<int64_t>(shape[0]), n_rows = static_cast<int64_t>(kept->size()) / n_in;
  return {.name = name,
          .shape = std::move(shape),
          .ggml_type = 0,
          .format = Format::F32,
          .n_bytes = kept->size() * sizeof(float),
          .open =
              [kept, n_in, n_rows] {
                return HostTensor{Format::F32, n_rows, n_in, reinterpret_cast<const uint8_t*>(kept->data())};
              },
          .close = [](const HostTensor&) {}};
}

std::vector<ExportTensor> head_export(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder) {
  return has_classifier(checkpoint) ? classifier_export(checkpoint, source, dim, is_encoder)
                                    : dense_export(checkpoint, source);
}

void write_pooling_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer) {
  constexpr std::string_view kNames[] = {"none", "mean", "cls", "last", "rank"};
  const auto pooling = read_embed_facts(checkpoint).pooling;
  if (!pooling) return;
  writer.set(arch + ".pooling_type",
             static_cast<uint32_t>(std::find(std::begin(kNames), std::end(kNames), *pooling) - std::begin(kNames)));
  const bool lowers = checkpoint.directory() != nullptr && read_hf_text_options(*checkpoint.directory()).lower_case;
  if (lowers && checkpoint.tokenizer()->model() != kWordPieceModel)
    throw Error("{}: GGUF cannot store that texts are converted to lower case: {}", printable(checkpoint.path()),
                kInstead);
  if (*pooling == "rank") return write_asked_keys(checkpoint, arch, writer);
  for (const ExportTensor& tensor : dense_export(checkpoint, *checkpoint.weights())) {
    const std::string layer = tensor.name.substr(0, tensor.name.find('.'));
    writer.set(fmt::format("{}.{}_feat_in", arch, layer), static_cast<uint32_t>(tensor.shape[0]));
    writer.set(fmt::format("{}.{}_feat_out", arch, layer), static_cast<uint32_t>(tensor.shape[1]));
  }
}

}  // namespace ingot
