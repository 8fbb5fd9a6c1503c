#include "model/vectors/embed_head.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/modules.h"
#include "io/huggingface/quantization.h"
#include "io/huggingface/safetensors.h"
#include "quant/format.h"

namespace ingot {
namespace {

using Act = HeadLayer::Act;

constexpr int kMaxWidth = 1 << 20;

float activated(float x, Act activation) {
  switch (activation) {
    case Act::kTanh: return std::tanh(x);
    case Act::kGelu: return 0.5f * x * (1 + std::erf(x * 0.70710678f));
    case Act::kSilu: return x / (1 + std::exp(-x));
    case Act::kRelu: return std::max(x, 0.0f);
    case Act::kNone: break;
  }
  return x;
}

void layer_norm(float* x, const HeadLayer& layer) {
  const int n = layer.n_out;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / n;
  for (int i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double inverse = 1 / std::sqrt(squares / n + layer.norm_eps);
  for (int i = 0; i < n; ++i)
    x[i] = static_cast<float>((x[i] - mean) * inverse) * layer.norm[i] +
           (layer.norm_bias.empty() ? 0 : layer.norm_bias[i]);
}

// ---- tensors

std::vector<float> decoded(const HostTensor& host) {
  std::vector<float> values(host.n_out * host.n_in);
  for (int64_t row = 0; row < host.n_out; ++row)
    decode_row(host.format, host.data + row * static_cast<int64_t>(row_bytes(host.format, host.n_in)),
               &values[row * host.n_in], host.n_in);
  return values;
}

}  // namespace

std::vector<float> read_head_vector(WeightSource& source, const std::string& name, int n) {
  HostTensor host;
  if (!source.find(name, 1, n, host)) return {};
  if (host.n_out * host.n_in != n)
    throw Error("{}: tensor '{}' has {} elements: expected {}", source.name(), name, host.n_out * host.n_in, n);
  return decoded(host);
}

HeadLayer read_head_layer(WeightSource& source, const std::string& name, int n_in, int n_out, Act activation) {
  HostTensor host;
  if (n_out < 0 && source.find(name + ".weight", -1, n_in, host))
    n_out = static_cast<int>(std::clamp<int64_t>(host.n_out, 0, kMaxWidth));
  if (!source.find(name + ".weight", n_out, n_in, host))
    throw Error("{}: tensor '{}.weight' is missing", source.name(), name);
  if (host.n_in != n_in || host.n_out < 1 || host.n_out != n_out)
    throw Error("{}: tensor '{}.weight' is [{}, {}]: expected [{}, {}]", source.name(), name, host.n_out, host.n_in,
                n_out, n_in);
  HeadLayer layer{.n_in = n_in, .n_out = static_cast<int>(host.n_out), .activation = activation};
  const std::vector<float> rows = decoded(host);
  layer.weight.resize(rows.size());
  for (int out = 0; out < layer.n_out; ++out)
    for (int in = 0; in < n_in; ++in)
      layer.weight[static_cast<size_t>(in) * layer.n_out + out] = rows[static_cast<size_t>(out) * n_in + in];
  layer.bias = read_head_vector(source, name + ".bias", layer.n_out);
  return layer;
}

namespace {

// ---- sentence-transformers' modules

// torch.nn.modules.activation.Tanh
Act torch_activation(const Json& value) {
  const std::string_view type = value.string();
  const std::string_view name = type.starts_with("torch.") ? type.substr(type.rfind('.') + 1) : "";
  if (name == "Identity") return Act::kNone;
  if (name == "Tanh") return Act::kTanh;
  if (name == "GELU") return Act::kGelu;
  if (name == "SiLU") return Act::kSilu;
  if (name == "ReLU") return Act::kRelu;
  throw value.error("'{}' is not supported: Identity, Tanh, GELU, SiLU and ReLU are", printable(type, 64));
}

HeadLayer dense_module(const HfDirectory& directory, const std::string& folder, int n_in) {
  const JsonDocument document = directory.document((folder + "/config.json").c_str());
  const Json config = document.root();
  const auto n_features = static_cast<int>(config.at("in_features").integer(1, kMaxWidth));
  if (n_in == 0) n_in = n_features;
  if (n_features != n_in)
    throw config.at("in_features")
        .error("{} features, and what comes before has {}", config.at("in_features").integer(1, kMaxWidth), n_in);
  for (const char* key : {"module_input_name", "module_output_name"})
    if (const auto name = config.find(key); name && name->string() != "sentence_embedding")
      throw name->error("'{}' is not supported: sentence_embedding is", printable(name->string(), 64));
  if (const auto residual = config.find("use_residual"); residual && residual->boolean())
    throw residual->error("is true, which is not supported");
  const auto activation = config.find("activation_function");
  const std::string weights = directory.file((folder + "/model.safetensors").c_str());
  const auto source =
      safetensors_source(std::make_shared<Safetensors>(Safetensors::open_file(weights)), std::nullopt, weights);
  return read_head_layer(*source, "linear", n_in, static_cast<int>(config.at("out_features").integer(1, kMaxWidth)),
                         activation ? torch_activation(*activation) : Act::kTanh);
}

}  // namespace

void normalize_rows(std::vector<float>& values, int n) {
  for (size_t row = 0; row < values.size(); row += n) {
    double squares = 0;
    for (int i = 0; i < n; ++i) squares += double{values[row + i]} * values[row + i];
    const auto inverse = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
    for (int i = 0; i < n; ++i) values[row + i] *= inverse;
  }
}

std::vector<float> EmbedHead::apply(std::vector<float> rows) const {
  for (const HeadLayer& layer : layers_) {
    if (layer.takes_unit) normalize_rows(rows, layer.n_in);
    const size_t n = rows.size() / layer.n_in;
    std::vector<float> out(n * layer.n_out);
    for (size_t row = 0; row < n; ++row) {
      float* y = &out[row * layer.n_out];
      if (!layer.bias.empty()) std::copy(layer.bias.begin(), layer.bias.end(), y);
      for (int in = 0; in < layer.n_in; ++in) {
        const float x = rows[row * layer.n_in + in];
        const float* w = &layer.weight[static_cast<size_t>(in) * layer.n_out];
        for (int i = 0; i < layer.n_out; ++i) y[i] += x * w[i];
      }
      for (int i = 0; i < layer.n_out; ++i) y[i] = activated(y[i], layer.activation);
      if (!layer.norm.empty()) layer_norm(y, layer);
    }
    rows = std::move(out);
  }
  return rows;
}

EmbedHead read_dense_head(const Checkpoint& checkpoint, WeightSource& source, int dim) {
  std::vector<HeadLayer> layers;
  auto width = [&] { return layers.empty() ? dim : layers.back().n_out; };
  if (const HfDirectory* directory = checkpoint.directory()) {
    bool unit = false;  // the next layer reads a row of length 1
    for (const HfModules::Step& step : read_hf_modules(*directory).after) {
      if (step.kind == HfModules::Step::Kind::kDense) {
        layers.push_back(dense_module(directory->whole(), step.folder, width()));
        layers.back().takes_unit = unit;
      }
      unit = step.kind == HfModules::Step::Kind::kNormalize;
    }
  } else if (const Gguf* file = checkpoint.gguf()) {
    for (const std::string name : {"dense_2", "dense_3"})
      if (file->find(name + ".weight") != nullptr)
        layers.push_back(read_head_layer(source, name, width(), -1, Act::kNone));
  }
  return EmbedHead(std::move(layers));
}

}  // namespace ingot
