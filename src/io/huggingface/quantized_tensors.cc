#include "io/huggingface/quantized_tensors.h"

#include <algorithm>
#include <functional>

namespace ingot {
namespace {

using Dims = std::vector<int64_t>;

std::string dims_text(std::span<const int64_t> dims) {
  std::string text;
  for (const int64_t dim : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", dim);
  return "[" + text + "]";
}

// A quantized matrix is recognised by the tensor that holds its codes.
struct Marker {
  const char* suffix;     // of the tensor's name, after the module's name
  const char* companion;  // another tensor that must exist too; empty: none is needed
  const char* dtype;      // empty: any
};
constexpr Marker kMarkers[] = {{".weight", ".scales", ""},         {".weight", "", "U32"},
                               {".weight", "", "F8_E4M3"},         {".weight", "", "I8"},
                               {".weight", ".weight_scale", "U8"}, {".qweight", "", ""},
                               {".weight_packed", "", ""},         {"_blocks", "_scales", "U8"}};

// Tensors for activations and the KV cache, which ingot does not use.
constexpr const char* kNotNeeded[] = {".input_scale",  ".activation_scale", ".input_zero_point",
                                      ".output_scale", ".k_scale",          ".v_scale",
                                      ".q_scale",      ".kv_scale",         ".input_global_scale"};

const char* name_of(QuantLayout layout) {
  constexpr const char* kNames[] = {
      "MLX",   "MLX MXFP4", "MLX MXFP8",      "MLX NVFP4",      "GPTQ", "AWQ",      "AWQ gemv", "INT",
      "MXFP4", "NVFP4",     "ModelOpt MXFP4", "ModelOpt NVFP4", "INT",  "FP8 E4M3", "MXFP4"};
  return kNames[static_cast<int>(layout)];
}

std::string type_of(const QuantizedMatrix& m) {
  const QuantScheme& s = m.scheme;
  std::string text = name_of(s.layout);
  if (s.layout == QuantLayout::kFloat8 && s.block_cols == 0) return text;
  if (s.layout == QuantLayout::kFloat8)
    return s.block_cols == m.n_in ? text + " rows" : fmt::format("{} {}x{}", text, s.block_rows, s.block_cols);
  constexpr QuantLayout kFixed[] = {QuantLayout::kMlxMxfp4,      QuantLayout::kMlxMxfp8,    QuantLayout::kMlxNvfp4,
                                    QuantLayout::kPackedMxfp4,   QuantLayout::kPackedNvfp4, QuantLayout::kModelOptMxfp4,
                                    QuantLayout::kModelOptNvfp4, QuantLayout::kMxfp4Blocks};
  if (std::find(std::begin(kFixed), std::end(kFixed), s.layout) != std::end(kFixed)) return text;
  text += fmt::format(" {}-bit", s.bits);
  if (s.group > 0) text += fmt::format(" g{}", s.group);
  return m.order != nullptr ? text + " act-order" : text;
}

}  // namespace

// Finds and checks the tensors of one matrix.
class QuantizedTensors::Finder {
 public:
  Finder(QuantizedTensors& owner, std::string module, const QuantScheme& scheme) : owner_(owner) {
    m_.module = std::move(module);
    m_.scheme = scheme;
  }

  QuantizedMatrix find(const SafeTensor& codes) {
    m_.codes = &codes;
    add(codes);
    switch (m_.scheme.layout) {
      case QuantLayout::kMlxAffine:
      case QuantLayout::kMlxMxfp4:
      case QuantLayout::kMlxMxfp8:
      case QuantLayout::kMlxNvfp4: find_mlx(); break;
      case QuantLayout::kGptq: find_gptq(); break;
      case QuantLayout::kAwq: find_awq(); break;
      case QuantLayout::kAwqRows: find_awq_rows(); break;
      case QuantLayout::kPacked: find_packed(); break;
      case QuantLayout::kPackedMxfp4:
      case QuantLayout::kPackedNvfp4:
      case QuantLayout::kModelOptMxfp4:
      case QuantLayout::kModelOptNvfp4: find_packed_floats(); break;
      case QuantLayout::kInt8: find_int8(); break;
      case QuantLayout::kFloat8: find_float8(); break;
      case QuantLayout::kMxfp4Blocks: find_blocks(); break;
    }
    m_.type = type_of(m_);
    return std::move(m_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const SafeTensor& tensor, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{}: tensor '{}': {} for {} weights", printable(owner_.source_), printable(tensor.name, 128),
                fmt::format(format, std::forward<Args>(args)...), type_of(m_));
  }

  void add(const SafeTensor& tensor) {
    if (owner_.parts_.insert(tensor.name).second) m_.n_bytes += tensor.n_bytes;
  }

  const SafeTensor* look_up(const char* suffix) {
    const SafeTensor* tensor = owner_.files_.find(m_.module + suffix);
    if (tensor != nullptr) add(*tensor);
    return tensor;
  }
  const SafeTensor* need(const char* suffix, std::initializer_list<const char*> dtypes, const Dims& dims) {
    const SafeTensor* tensor = look_up(suffix);
    if (tensor == nullptr)
      throw Error("{}: tensor '{}{}' is missing: expected {} {} for {} weights", printable(owner_.source_),
                  printable(m_.module, 128), suffix, *dtypes.begin(), dims_text(dims), type_of(m_));
    check(*tensor, dtypes, dims);
    return tensor;
  }
  void check(const SafeTensor& tensor, std::initializer_list<const char*> dtypes, const Dims& dims) const {
    const auto same_type = [&](const char* dtype) { return std::string_view(dtype) == tensor.dtype->name; };
    if (std::none_of(dtypes.begin(), dtypes.end(), same_type) || !std::ranges::equal(tensor.dims(), dims))
      fail(tensor, "{} {} ({} bytes): expected {} {}", tensor.dtype->name, dims_text(tensor.dims()), tensor.n_bytes,
           *dtypes.begin(), dims_text(dims));
  }
  void check_codes(int rank, std::initializer_list<const char*> dtypes) const {
    check(*m_.codes, dtypes, {m_.codes->dims().begin(), m_.codes->dims().end()});
    if (m_.codes->n_dims != rank) fail(*m_.codes, "{} dimensions: expected {}", m_.codes->n_dims, rank);
    for (const int64_t dim : m_.codes->dims())
      if (dim == 0) fail(*m_.codes, "has no elements: expected at least one");
  }
  // The elements of a dimension that is packed into n_words words.
  int64_t unpacked(int64_t n_words) const {
    const int64_t bits = n_words * 32;
    if (n_words > INT32_MAX || bits % m_.scheme.bits != 0)
      fail(*m_.codes, "{} words do not hold a whole number of codes: expected whole codes", n_words);
    return bits / m_.scheme.bits;
  }
  void set_shape(int64_t n_out, int64_t n_in) {
    m_.n_out = n_out;
    m_.n_in = n_in;
    if (n_in % m_.group() != 0)
      fail(*m_.codes, "rows of {} elements do not fill whole groups: expected a multiple of {}", n_in, m_.group());
  }

  static constexpr std::initializer_list<const char*> kFloats = {"F16", "BF16", "F32"}, kWords = {"I32", "U32"},
                                                       kScales = {"F32", "BF16", "F16", "F8_E8M0", "U8"};

  void find_mlx() {
    check_codes(m_.codes->n_dims == 3 ? 3 : 2, {"U32"});  // 3 dimensions: experts one after another
    Dims dims(m_.codes->dims().begin(), m_.codes->dims().end());
    set_shape(m_.codes->n_elements() / dims.back(), unpacked(dims.back()));
    dims.back() = m_.n_groups();
    if (m_.scheme.layout != QuantLayout::kMlxAffine) {
      m_.scales = need(".scales", {"U8"}, dims);
      if (const SafeTensor* biases = look_up(".biases")) fail(*biases, "the tensor exists: expected none");
      if (const SafeTensor* global = look_up(".global_scale"))
        fail(*global, "a scale of the whole tensor is not supported: expected none");
      return;
    }
    m_.scales = need(".scales", kFloats, dims);
    m_.zeros = need(".biases", kFloats, dims);
  }

  void find_gptq() {
    check_codes(2, kWords);
    set_shape(m_.codes->shape[1], unpacked(m_.codes->shape[0]));
    const int64_t zero_bits = m_.n_out * m_.scheme.bits;
    if (zero_bits % 32 != 0)
      fail(*m_.codes, "{} outputs of {} bits do not fill whole words: expected whole words", m_.n_out, m_.scheme.bits);
    m_.scales = need(".scales", kFloats, {m_.n_groups(), m_.n_out});
    m_.zeros = need(".qzeros", kWords, {m_.n_groups(), zero_bits / 32});
    find_order(".g_idx");
  }

  void find_awq() {
    check_codes(2, kWords);
    set_shape(unpacked(m_.codes->shape[1]), m_.codes->shape[0]);
    m_.scales = need(".scales", kFloats, {m_.n_groups(), m_.n_out});
    m_.zeros = need(".qzeros", kWords, {m_.n_groups(), m_.codes->shape[1]});
  }

  // Rows of scales and zero points have the length that AutoAWQ's kernels need: a word for every 8 groups, padded for
  // small groups.
  void find_awq_rows() {
    check_codes(2, kWords);
    set_shape(m_.codes->shape[0], unpacked(m_.codes->shape[1]));
    const int64_t step = m_.group() >= 128 ? 1 : m_.group() == 64 ? 2 : m_.group() == 32 ? 4 : 0;
    if (step == 0) fail(*m_.codes, "groups of {}: expected 32, 64 or a multiple of 128", m_.group());
    const int64_t n_words = ((m_.n_groups() + 7) / 8 + step - 1) / step * step;
    m_.scales = need(".scales", kFloats, {m_.n_out, 8 * n_words});
    m_.zeros = need(".qzeros", kWords, {m_.n_out, n_words});
  }

  void find_packed() {
    check_codes(2, kWords);
    const int64_t n_out = m_.codes->shape[0], n_words = m_.codes->shape[1];
    const SafeTensor* shape = need(".weight_shape", {"I64", "I32"}, {2});
    const auto [shape_out, n_in] = sizes_in(*shape);
    if (shape_out != n_out || n_in <= 0 || n_in > INT32_MAX ||
        (n_words != words_for(n_in, false) && n_words != words_for(n_in, true)))
      fail(*shape, "is {}: expected the shape of the codes, which is [{}, {} words]", dims_text(Dims{shape_out, n_in}),
           n_out, n_words);
    m_.whole_codes = n_words == words_for(n_in, true);
    if (m_.whole_codes && n_words == words_for(n_in, false) && n_words > 1 && 32 % m_.scheme.bits != 0)
      fail(*m_.codes,
           "rows of {} elements have the same size in both packings: expected a size that shows which one is used",
           n_in);
    set_shape(n_out, n_in);
    m_.scales = find_scale(".weight_scale");
    find_packed_zeros();
    find_order(".weight_g_idx");
  }

  void find_packed_zeros() {
    const SafeTensor* zeros = look_up(".weight_zero_point");
    if (m_.scheme.symmetric) return;  // zero points are all zero or absent
    if (zeros != nullptr && std::string_view(zeros->dtype->name) == "I8") {
      check(*zeros, {"I8"}, {m_.n_out, m_.n_groups()});
      m_.zeros = zeros;
    } else {
      m_.zeros = need(".weight_zero_point", kWords, {words_for(m_.n_out, m_.whole_codes), m_.n_groups()});
    }
  }

  void find_packed_floats() {
    check_codes(2, {"U8"});
    if (m_.codes->shape[1] > INT32_MAX) fail(*m_.codes, "rows of {} bytes: expected fewer", m_.codes->shape[1]);
    set_shape(m_.codes->shape[0], 2 * m_.codes->shape[1]);
    if (const SafeTensor* scale = look_up(".pre_quant_scale"))
      fail(*scale, "scales the matrix's input column by column, which is not supported: expected no such tensor");
    if (m_.scheme.group == 32) {
      m_.scales = need(".weight_scale", {"U8", "F8_E8M0"}, {m_.n_out, m_.n_groups()});
      return;
    }
    m_.scales = need(".weight_scale", {"F8_E4M3"}, {m_.n_out, m_.n_groups()});
    if (m_.scheme.layout == QuantLayout::kPackedNvfp4) {
      m_.global = need(".weight_global_scale", {"F32"}, {1});
    } else if (const SafeTensor* scalar = look_up(".weight_scale_2"); scalar != nullptr && scalar->n_dims == 0) {
      check(*scalar, {"F32"}, {});
      m_.global = scalar;
    } else {
      m_.global = need(".weight_scale_2", {"F32"}, {1});
    }
  }

  void find_int8() {
    check_codes(2, {"I8"});
    set_shape(m_.codes->shape[0], m_.codes->shape[1]);
    m_.scales = find_scale(".weight_scale");
    const auto dims = m_.scales->dims();
    if (m_.scheme.symmetric) {
      look_up(".weight_zero_point");
    } else {
      m_.zeros = need(".weight_zero_point", {"I8"}, {dims.begin(), dims.end()});
    }
  }

  void find_float8() {
    check_codes(2, {"F8_E4M3"});
    m_.n_out = m_.codes->shape[0];
    m_.n_in = m_.codes->shape[1];
    QuantScheme& s = m_.scheme;
    m_.scales = look_up(".weight_scale_inv");
    if (m_.scales == nullptr) m_.scales = look_up(".weight_scale");
    if (m_.scales == nullptr)
      throw Error("{}: tensor '{}.weight_scale' is missing: {} weights need it", printable(owner_.source_),
                  printable(m_.module, 128), type_of(m_));
    if (m_.scales->n_elements() == 1) {
      s.block_rows = s.block_cols = 0;
    } else if (s.block_cols == 0) {
      s.block_rows = 1;
      s.block_cols = m_.n_in;
      if (m_.scales->n_dims == 1) return check(*m_.scales, kScales, {m_.n_out});
    }
    if (s.block_cols == 0) return check(*m_.scales, kScales, {m_.scales->dims().begin(), m_.scales->dims().end()});
    check(*m_.scales, kScales,
          {(m_.n_out + s.block_rows - 1) / s.block_rows, (m_.n_in + s.block_cols - 1) / s.block_cols});
  }

  // Experts are stored one after another: [experts * out, in].
  void find_blocks() {
    check_codes(4, {"U8"});
    const auto dims = m_.codes->dims();
    if (dims[3] != 16) fail(*m_.codes, "blocks of {} bytes: expected 16", dims[3]);
    set_shape(dims[0] * dims[1], dims[2] * 32);
    m_.scales = need("_scales", {"U8"}, {dims[0], dims[1], dims[2]});
  }

  // [out, groups], or one scale for the matrix if the scheme has no groups.
  const SafeTensor* find_scale(const char* suffix) {
    const SafeTensor* scale = look_up(suffix);
    if (scale != nullptr && m_.scheme.group == 0 && scale->n_elements() == 1) {
      check(*scale, kFloats, {scale->dims().begin(), scale->dims().end()});
      return scale;
    }
    return need(suffix, kFloats, {m_.n_out, m_.n_groups()});
  }

  void find_order(const char* suffix) {
    if (owner_.files_.find(m_.module + suffix) == nullptr) return;
    m_.order = need(suffix, {"I32"}, {m_.n_in});
    const auto bytes = owner_.files_.data(*m_.order);
    bool in_order = true;
    for (int64_t i = 0; i < m_.n_in; ++i) {
      int32_t group;
      std::memcpy(&group, &bytes[static_cast<size_t>(i) * 4], 4);
      if (group < 0 || group >= m_.n_groups())
        fail(*m_.order, "element {} is {}: expected a group, 0 to {}", i, group, m_.n_groups() - 1);
      in_order &= group == i / m_.group();
    }
    if (in_order) m_.order = nullptr;
  }

  // The number of words for n codes, packed as a stream of bits or as whole codes.
  int64_t words_for(int64_t n, bool whole_codes) const {
    const int64_t bits = m_.scheme.bits, a_word = 32 / bits;
    return whole_codes ? (n + a_word - 1) / a_word : (n * bits + 31) / 32;
  }

  std::pair<int64_t, int64_t> sizes_in(const SafeTensor& shape) const {
    const auto bytes = owner_.files_.data(shape);
    const size_t width = shape.dtype->bits / 8;
    int64_t sizes[2] = {};
    for (size_t i = 0; i < 2; ++i) std::memcpy(&sizes[i], &bytes[i * width], width);  // little-endian and not negative
    return {sizes[0], sizes[1]};
  }

  QuantizedTensors& owner_;
  QuantizedMatrix m_;
};

QuantizedTensors::QuantizedTensors(const Safetensors& files, const std::optional<HfQuantization>& quantization,
                                   std::string source)
    : files_(files), source_(std::move(source)) {
  for (const SafeTensor& tensor : files.tensors()) {
    for (const Marker& marker : kMarkers) {
      if (!tensor.name.ends_with(marker.suffix) ||
          (*marker.dtype != 0 && std::string_view(marker.dtype) != tensor.dtype->name))
        continue;
      const std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(marker.suffix).size());
      if (*marker.companion != 0 && files.find(module + marker.companion) == nullptr) continue;
      if (!quantization)
        throw Error(
            "{}: tensor '{}' is part of a quantized matrix, but config.json does not describe its quantization: use "
            "the config.json that belongs to these weights",
            printable(source_), printable(tensor.name, 128));
      const QuantScheme* scheme = quantization->find(module);
      if (scheme == nullptr)
        throw Error("{}: tensor '{}' is quantized, and the {} quantization in config.json does not cover it",
                    printable(source_), printable(tensor.name, 128), quantization->method());
      matrices_.push_back(Finder(*this, module, *scheme).find(tensor));
      break;
    }
  }
  std::sort(matrices_.begin(), matrices_.end(), [](const auto& a, const auto& b) { return a.module < b.module; });
  for (size_t i = 1; i < matrices_.size(); ++i)
    if (matrices_[i].module == matrices_[i - 1].module)
      throw Error("{}: '{}' has its weight twice: as '{}' and as '{}'", printable(source_),
                  printable(matrices_[i].module, 128), printable(matrices_[i - 1].codes->name, 128),
                  printable(matrices_[i].codes->name, 128));
  if (quantization)
    for (const auto& [module, scheme] : quantization->overrides())
      if (scheme && find(module) == nullptr)
        throw Error("{}: config.json describes the quantization of '{}', but the files have no such quantized matrix",
                    printable(source_), printable(module, 128));
}

const QuantizedMatrix* QuantizedTensors::find(std::string_view module) const {
  const auto it = std::lower_bound(matrices_.begin(), matrices_.end(), module,
                                   [](const QuantizedMatrix& m, std::string_view name) { return m.module < name; });
  return it != matrices_.end() && it->module == module ? &*it : nullptr;
}

bool QuantizedTensors::is_part(const SafeTensor& tensor) const {
  return parts_.contains(tensor.name) || std::any_of(std::begin(kNotNeeded), std::end(kNotNeeded),
                                                     [&](const char* suffix) { return tensor.name.ends_with(suffix); });
}

}  // namespace ingot
