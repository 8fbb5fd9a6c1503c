#include "model/speech/speech_sources.h"

#include <cstring>
#include <list>
#include <optional>

#include "base/error.h"
#include "base/half.h"
#include "io/ctranslate2/model_bin.h"
#include "io/ggml/speech_file.h"

namespace ingot {
namespace {

// Where a module of transformers is in the other containers. Modules of layers come after a prefix with the layer's
// number. CTranslate2 stacks the rows of several matrices into one.
struct ModuleRow {
  const char* name;
  const char* ct2;
  const char* ggml;
  bool is_norm = false;
  int part = 0, n_parts = 1;  // of CTranslate2's stacked rows
};
constexpr ModuleRow kModules[] = {
    {"model.encoder.conv1", "encoder/conv1", "encoder.conv1"},
    {"model.encoder.conv2", "encoder/conv2", "encoder.conv2"},
    {"model.encoder.layer_norm", "encoder/layer_norm", "encoder.ln_post", true},
    {"model.decoder.embed_tokens", "decoder/embeddings", "decoder.token_embedding"},
    {"model.decoder.layer_norm", "decoder/layer_norm", "decoder.ln", true},
};
constexpr ModuleRow kLayerModules[] = {
    {"self_attn_layer_norm", "self_attention/layer_norm", "attn_ln", true},
    {"self_attn.q_proj", "self_attention/linear_0", "attn.query", false, 0, 3},
    {"self_attn.k_proj", "self_attention/linear_0", "attn.key", false, 1, 3},
    {"self_attn.v_proj", "self_attention/linear_0", "attn.value", false, 2, 3},
    {"self_attn.out_proj", "self_attention/linear_1", "attn.out"},
    {"encoder_attn_layer_norm", "attention/layer_norm", "cross_attn_ln", true},
    {"encoder_attn.q_proj", "attention/linear_0", "cross_attn.query"},
    {"encoder_attn.k_proj", "attention/linear_1", "cross_attn.key", false, 0, 2},
    {"encoder_attn.v_proj", "attention/linear_1", "cross_attn.value", false, 1, 2},
    {"encoder_attn.out_proj", "attention/linear_2", "cross_attn.out"},
    {"fc1", "ffn/linear_0", "mlp.0"},
    {"fc2", "ffn/linear_1", "mlp.2"},
    {"final_layer_norm", "ffn/layer_norm", "mlp_ln", true},
};

struct StoredName {
  std::string ct2, ggml;
  int part = 0, n_parts = 1;
};

std::optional<StoredName> stored_name_of(const std::string& name) {
  for (const char* side : {"encoder", "decoder"})
    if (name == fmt::format("model.{}.embed_positions.weight", side))
      return StoredName{fmt::format("{}/position_encodings/encodings", side),
                        fmt::format("{}.positional_embedding", side)};
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string module = name.substr(0, dot), kind = name.substr(dot + 1);
  const auto named = [&](const ModuleRow& row, const std::string& ct2, const std::string& ggml) {
    const std::string ct2_kind = row.is_norm ? (kind == "weight" ? "gamma" : "beta") : kind;
    return StoredName{ct2 + row.ct2 + "/" + ct2_kind, ggml + row.ggml + "." + kind, row.part, row.n_parts};
  };
  for (const ModuleRow& row : kModules)
    if (module == row.name) return named(row, "", "");
  for (const char* side : {"encoder", "decoder"}) {
    const std::string prefix = fmt::format("model.{}.layers.", side);
    if (!module.starts_with(prefix)) continue;
    const size_t end = module.find('.', prefix.size());
    if (end == module.npos) return std::nullopt;
    const std::string layer = module.substr(prefix.size(), end - prefix.size()), rest = module.substr(end + 1);
    for (const ModuleRow& row : kLayerModules)
      if (rest == row.name)
        return named(row, fmt::format("{}/layer_{}/", side, layer), fmt::format("{}.blocks.{}.", side, layer));
  }
  return std::nullopt;
}

// The shape [n_out, n_in] as WeightSource counts it: all dimensions but the last are rows.
HostTensor shape_of(const std::vector<int64_t>& shape, Format format) {
  HostTensor host{.format = format, .n_out = 1, .n_in = shape.empty() ? 1 : shape.back()};
  for (size_t i = 0; i + 1 < shape.size(); ++i) host.n_out *= shape[i];
  return host;
}

// What both sources share: copies of data that is unaligned or stored in another form.
class CopyingSource : public WeightSource {
 public:
  Dialect dialect() const override { return Dialect::kHf; }
  void release(const HostTensor& tensor) override {
    copies_.remove_if([&](const auto& copy) { return bytes_of(copy) == tensor.data; });
  }

 protected:
  uint8_t* copy_of(size_t n_bytes) { return bytes_of(copies_.emplace_back((n_bytes + 7) / 8)); }

 private:
  static uint8_t* bytes_of(std::vector<uint64_t>& copy) { return reinterpret_cast<uint8_t*>(copy.data()); }
  static const uint8_t* bytes_of(const std::vector<uint64_t>& copy) {
    return reinterpret_cast<const uint8_t*>(copy.data());
  }
  std::list<std::vector<uint64_t>> copies_;
};

class GgmlSource final : public CopyingSource {
 public:
  explicit GgmlSource(std::shared_ptr<const GgmlSpeechFile> file) : file_(std::move(file)) {}
  std::string name() const override { return printable(file_->name()); }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!find_shape(name, n_out, n_in, out)) return false;
    const GgmlTensor& t = *file_->find(stored_name_of(name)->ggml);
    uint8_t* copy = copy_of(t.data.size());
    std::memcpy(copy, t.data.data(), t.data.size());
    give_back_mapped(t.data);
    out.data = copy;
    return true;
  }
  bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    const auto stored = stored_name_of(name);
    const GgmlTensor* t = stored ? file_->find(stored->ggml) : nullptr;
    if (t == nullptr) return false;
    out = shape_of(t->shape, t->format);
    // The biases of convolutions are stored as [n, 1].
    if (out.n_out == n_in && out.n_in == n_out && info(t->format).block_size == 1 && n_out == 1)
      std::swap(out.n_out, out.n_in);
    return true;
  }
  size_t total_bytes() const override {
    size_t total = 0;
    for (const GgmlTensor& t : file_->tensors()) total += t.data.size();
    return total;
  }

 private:
  std::shared_ptr<const GgmlSpeechFile> file_;
};

class Ct2Source final : public CopyingSource {
 public:
  explicit Ct2Source(std::shared_ptr<const Ct2Model> model) : model_(std::move(model)) {}
  std::string name() const override { return printable(model_->name()); }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!find_shape(name, n_out, n_in, out)) return false;
    const StoredName stored = *stored_name_of(name);
    const Ct2Variable& v = *model_->find(stored.ct2);
    const size_t n_bytes = v.data.size() / static_cast<size_t>(stored.n_parts),
                 first = n_bytes * static_cast<size_t>(stored.part);
    const std::span<const uint8_t> part = v.data.subspan(first, n_bytes);
    uint8_t* copy = copy_of(static_cast<size_t>(out.n_out) * row_bytes(out.format, out.n_in));
    if (const Ct2Variable* scales = scales_of(v)) {
      to_floats(part, v.type, *scales, stored, out, reinterpret_cast<float*>(copy));
    } else {
      std::memcpy(copy, part.data(), part.size());
    }
    give_back_mapped(part);
    out.data = copy;
    return true;
  }
  bool find_shape(const std::string& name, int64_t, int64_t, HostTensor& out) override {
    const auto stored = stored_name_of(name);
    const Ct2Variable* v = stored ? model_->find(stored->ct2) : nullptr;
    if (v == nullptr) return false;
    std::vector<int64_t> shape = v->shape;
    if (stored->n_parts > 1) {
      if (shape.empty() || shape[0] % stored->n_parts != 0)
        throw Error("{}: variable '{}' has {} rows: expected a multiple of {}", this->name(), printable(v->name),
                    shape.empty() ? 1 : shape[0], stored->n_parts);
      shape[0] /= stored->n_parts;
    }
    out = shape_of(shape, format_of(*v));
    return true;
  }
  size_t total_bytes() const override {
    size_t total = 0;
    for (const Ct2Variable& v : model_->variables()) total += v.data.size();
    return total;
  }

 private:
  // Integers have a scale for each row: value = integer / scale.
  const Ct2Variable* scales_of(const Ct2Variable& v) const {
    if (v.type != Ct2Type::kI8 && v.type != Ct2Type::kI16) return nullptr;
    const Ct2Variable* scales = model_->find(v.name + "_scale");
    const int64_t n_rows = v.shape.empty() ? 1 : v.shape[0];
    if (scales == nullptr || scales->type != Ct2Type::kF32 ||
        (scales->n_elements() != n_rows && scales->n_elements() != 1))
      throw Error("{}: variable '{}' has integers without a scale of type float32 for each of its {} rows", name(),
                  printable(v.name), n_rows);
    return scales;
  }

  Format format_of(const Ct2Variable& v) const {
    switch (v.type) {
      case Ct2Type::kF16: return Format::F16;
      case Ct2Type::kBF16: return Format::BF16;
      case Ct2Type::kI32:
        throw Error("{}: variable '{}' has 32-bit integers: expected numbers of a matrix", name(), printable(v.name));
      default: return Format::F32;  // integers become floats
    }
  }

  static void to_floats(std::span<const uint8_t> part, Ct2Type type, const Ct2Variable& scales,
                        const StoredName& stored, const HostTensor& shape, float* to) {
    const bool is_each = scales.n_elements() > 1;
    const int64_t n_rows = stored.n_parts == 1 && is_each ? scales.n_elements() : shape.n_out;
    const int64_t n_cols = shape.n_out * shape.n_in / n_rows;
    for (int64_t row = 0; row < n_rows; ++row) {
      const int64_t scale_row = is_each ? stored.part * n_rows + row : 0;
      float scale;
      std::memcpy(&scale, scales.data.data() + static_cast<size_t>(scale_row) * sizeof scale, sizeof scale);
      for (int64_t i = row * n_cols; i < (row + 1) * n_cols; ++i) {
        int16_t wide;
        if (type == Ct2Type::kI16) std::memcpy(&wide, part.data() + static_cast<size_t>(i) * sizeof wide, sizeof wide);
        to[i] = static_cast<float>(type == Ct2Type::kI16 ? wide : static_cast<int8_t>(part[static_cast<size_t>(i)])) /
                scale;
      }
    }
  }

  std::shared_ptr<const Ct2Model> model_;
};

}  // namespace

std::unique_ptr<WeightSource> ct2_source(std::shared_ptr<const Ct2Model> model) {
  return std::make_unique<Ct2Source>(std::move(model));
}

std::unique_ptr<WeightSource> ggml_speech_source(std::shared_ptr<const GgmlSpeechFile> file) {
  return std::make_unique<GgmlSource>(std::move(file));
}

}  // namespace ingot
