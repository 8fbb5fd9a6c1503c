// Converts the rows of a quantized matrix. Each layout has code that reads the codes, scales and minima of some rows;
// common code then creates the blocks. Works on tiles of 32 rows, because GPTQ and AWQ store rows side by side.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "io/huggingface/quantized_tensors.h"
#include "quant/affine.h"
#include "quant/f8_e4m3.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4_scaled.h"

namespace ingot {
namespace {

constexpr int64_t kTileRows = 32;
constexpr int64_t kLeastForThreads = 1 << 18;  // elements of a matrix; smaller matrices use one thread

uint32_t load_word(std::span<const uint8_t> bytes, int64_t i) { return quant::load_u32(bytes.data() + 4 * i); }

std::vector<float> numbers_of(const SafeTensor& tensor, std::span<const uint8_t> bytes) {
  std::vector<float> out(static_cast<size_t>(tensor.n_elements()));
  const std::string_view type = tensor.dtype->name;
  for (size_t i = 0; i < out.size(); ++i) {
    if (type == "F32") {
      out[i] = float_from_bits(load_word(bytes, static_cast<int64_t>(i)));
    } else if (type == "F8_E8M0" || type == "U8") {
      out[i] = std::ldexp(1.0f, bytes[i] - 127);
    } else {
      const uint16_t half = quant::load_u16(bytes.data() + 2 * i);
      out[i] = type == "F16" ? float_from_f16(half) : float_from_bf16(half);
    }
  }
  return out;
}

// Reads n codes from a stream of bits, the first code in the lowest bits.
void unpack_bits(const uint8_t* bytes, int bits, int64_t n, uint8_t* codes) {
  if (bits == 4 && n % 2 == 0) {
    for (int64_t i = 0; i < n / 2; ++i) codes[2 * i] = bytes[i] & 15, codes[2 * i + 1] = bytes[i] >> 4;
    return;
  }
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int64_t i = 0; i < n; i += 8) {
    const int64_t n_now = std::min<int64_t>(8, n - i);
    uint64_t word = 0;
    std::memcpy(&word, bytes + i / 8 * bits, static_cast<size_t>((n_now * bits + 7) / 8));
    for (int64_t j = 0; j < n_now; ++j, word >>= bits) codes[i + j] = static_cast<uint8_t>(word & mask);
  }
}

// The order of 8 neighbouring outputs in a word of AWQ: output j is nibble kAwqNibble[j].
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Some rows of an integer matrix, kTileRows at most.
struct Rows {
  explicit Rows(const QuantizedMatrix& m) {
    const int64_t max_rows = std::min(kTileRows, m.n_out);
    codes.resize(max_rows * m.n_in);
    scales.resize(max_rows * m.n_groups());
    mins.resize(max_rows * m.n_groups());
  }

  int64_t first = 0, n = 0;
  std::vector<uint8_t> codes;       // [n, n_in]
  std::vector<float> scales, mins;  // [n, n_groups]
};

class IntegerRows {
 public:
  IntegerRows(const Safetensors& files, const QuantizedMatrix& m)
      : m_(m), codes_(files.data(*m.codes)), scales_(numbers_of(*m.scales, files.data(*m.scales))) {
    if (m.order != nullptr) order_ = files.data(*m.order);
    if (m.zeros == nullptr) return;
    if (m.scheme.layout == QuantLayout::kMlxAffine) {
      biases_ = numbers_of(*m.zeros, files.data(*m.zeros));
      return;
    }
    zeros_ = files.data(*m.zeros);
    zeros_are_bytes_ = m.zeros->dtype->bits == 8;
    zero_offset_ =
        m.scheme.layout == QuantLayout::kGptq && m.scheme.symmetric ? symmetric_offset() : m.scheme.zeros_less_one;
  }

  void read(Rows& rows) const {
    if (m_.scheme.layout == QuantLayout::kAwq) {
      read_awq_codes(rows);
    } else {
      for (int64_t i = 0; i < rows.n; ++i) read_codes(rows.first + i, &rows.codes[i * m_.n_in]);
    }
    read_scales(rows);
  }

  // The group that column k belongs to.
  int64_t group_of(int64_t k) const { return order_.empty() ? k / m_.group() : load_word(order_, k); }

 private:
  bool is_transposed() const { return m_.scheme.layout == QuantLayout::kGptq || m_.scheme.layout == QuantLayout::kAwq; }

  // In kAwqRows, rows of scales are padded to more than the number of groups.
  int64_t scales_a_row() const {
    return m_.scheme.layout == QuantLayout::kAwqRows ? m_.scales->shape[1] : m_.n_groups();
  }

  void read_scales(Rows& rows) const {
    const int64_t n_groups = m_.n_groups();
    for (int64_t i = 0; i < rows.n; ++i)
      for (int64_t g = 0; g < n_groups; ++g) {
        const int64_t row = rows.first + i, at = i * n_groups + g;
        const float scale = scales_[scales_.size() == 1 ? 0
                                    : is_transposed()   ? g * m_.n_out + row
                                                        : row * scales_a_row() + g];
        rows.scales[at] = scale;
        rows.mins[at] = biases_.empty() ? -static_cast<float>(zero_of(row, g)) * scale : biases_[row * n_groups + g];
      }
  }

  // A word holds eight rows of a column; rows.first and n_out are multiples of 8.
  void read_awq_codes(Rows& rows) const {
    // Transposes blocks of columns in a buffer: the row stride is often a power of two, and rows would evict each other
    // from the cache.
    constexpr int64_t kStep = 64;
    for (int64_t begin = 0; begin < m_.n_in; begin += kStep)
      for (int64_t i = 0; i < rows.n; i += 8) {
        uint8_t transposed[8][kStep];
        const int64_t n = std::min(kStep, m_.n_in - begin);
        for (int64_t k = 0; k < n; ++k) {
          const uint32_t word = load_word(codes_, (begin + k) * (m_.n_out / 8) + (rows.first + i) / 8);
          for (int64_t j = 0; j < 8; ++j) transposed[j][k] = word >> (4 * kAwqNibble[j]) & 15;
        }
        for (int64_t j = 0; j < 8; ++j)
          std::memcpy(&rows.codes[(i + j) * m_.n_in + begin], transposed[j], static_cast<size_t>(n));
      }
  }

  void read_codes(int64_t row, uint8_t* to) const {
    const int64_t n_in = m_.n_in;
    const int bits = m_.scheme.bits;
    if (m_.scheme.layout == QuantLayout::kInt8) {
      for (int64_t k = 0; k < n_in; ++k) to[k] = codes_[row * n_in + k] ^ 0x80;
    } else if (m_.scheme.layout == QuantLayout::kGptq) {
      for (int64_t k = 0; k < n_in; k += 32) {  // 32 codes are `bits` words in one column
        uint32_t words[8];
        const int64_t n = std::min<int64_t>(32, n_in - k), first = k / 32 * bits;
        for (int64_t w = 0; w < n * bits / 32; ++w) words[w] = load_word(codes_, (first + w) * m_.n_out + row);
        unpack_bits(reinterpret_cast<const uint8_t*>(words), bits, n, to + k);
      }
    } else if (const int64_t n_words = m_.codes->shape[m_.codes->n_dims - 1]; m_.whole_codes) {
      for (int64_t k = 0; k < n_in; ++k) to[k] = static_cast<uint8_t>(code_at(codes_, row * n_words, 1, k));
    } else {
      unpack_bits(codes_.data() + row * n_words * 4, bits, n_in, to);
    }
  }

  // Code `i` of a stream of words with a stride, starting at word `first`.
  int code_at(std::span<const uint8_t> words, int64_t first, int64_t stride, int64_t i) const {
    const int64_t a_word = 32 / m_.scheme.bits,
                  bit = m_.whole_codes ? i / a_word * 32 + i % a_word * m_.scheme.bits : i * m_.scheme.bits;
    const int64_t word = bit / 32;
    const int shift = static_cast<int>(bit % 32);
    uint64_t both = load_word(words, first + word * stride);
    if (shift + m_.scheme.bits > 32) both |= uint64_t{load_word(words, first + (word + 1) * stride)} << 32;
    return static_cast<int>(both >> shift & ((1u << m_.scheme.bits) - 1));
  }

  int stored_zero(int64_t row, int64_t group) const {
    const int64_t zero_words = m_.n_out * m_.scheme.bits / 32;
    switch (m_.scheme.layout) {
      case QuantLayout::kGptq: return code_at(zeros_, group * zero_words, 1, row);
      case QuantLayout::kAwq:
        return static_cast<int>(load_word(zeros_, group * (m_.n_out / 8) + row / 8) >> (4 * kAwqNibble[row % 8]) & 15);
      case QuantLayout::kAwqRows: return code_at(zeros_, row * m_.zeros->shape[1], 1, group);
      default: return code_at(zeros_, group, m_.n_groups(), row);
    }
  }

  int zero_of(int64_t row, int64_t group) const {
    const int middle = 1 << (m_.scheme.bits - 1);
    if (zeros_.empty()) return middle;
    if (zeros_are_bytes_)
      return middle + static_cast<int8_t>(zeros_[zeros_.size() == 1 ? 0 : row * m_.n_groups() + group]);
    // The sum wraps as in AutoGPTQ: the largest code plus 1 is 0.
    return (stored_zero(row, group) + zero_offset_) & (2 * middle - 1);
  }

  // The zero points of a symmetric matrix are known, so the stored values identify which of GPTQ's two formats the file
  // has. config.json names the wrong format in some models.
  int symmetric_offset() const {
    const int middle = 1 << (m_.scheme.bits - 1), first = stored_zero(0, 0);
    return first == middle ? 0 : first == middle - 1 ? 1 : m_.scheme.zeros_less_one;
  }

  const QuantizedMatrix& m_;
  const std::span<const uint8_t> codes_;
  const std::vector<float> scales_;
  std::vector<float> biases_;
  std::span<const uint8_t> zeros_, order_;
  bool zeros_are_bytes_ = false;
  int zero_offset_ = 0;
};

template <class T>
void put_affine(const QuantizedMatrix& m, const Rows& rows, uint8_t* out) {
  const int64_t group = m.group(), n_groups = m.n_groups();
  for (int64_t i = 0; i < rows.n; ++i)
    for (int64_t k = 0; k < m.n_in; k += T::block_size, out += T::block_bytes)
      T::put(&rows.codes[i * m.n_in + k], rows.scales[i * n_groups + k / group], rows.mins[i * n_groups + k / group],
             out);
}

template <class T>
void put_numbers(const QuantizedMatrix& m, const IntegerRows& reader, const Rows& rows, uint8_t* out) {
  for (int64_t i = 0; i < rows.n; ++i)
    for (int64_t k = 0; k < m.n_in; ++k, out += T::block_bytes) {
      const int64_t g = i * m.n_groups() + reader.group_of(k);
      const float value = rows.scales[g] * rows.codes[i * m.n_in + k] + rows.mins[g];
      T::encode(&value, out);
    }
}

// The format for an integer matrix. Columns that are not in group order cannot form blocks, so such a matrix becomes
// f16, with the same values as in GPTQ's own kernels.
Format integer_format(const QuantizedMatrix& m) {
  if (m.order != nullptr) return Format::F16;
  const bool four = m.scheme.bits <= 4;
  if (m.n_in % 64 == 0 && m.group() % 64 == 0) return four ? Format::AFFINE4_64 : Format::AFFINE8_64;
  if (m.n_in % 32 == 0 && m.group() % 32 == 0) return four ? Format::AFFINE4_32 : Format::AFFINE8_32;
  return Format::F32;
}

void put_rows(const QuantizedMatrix& m, Format format, const IntegerRows& reader, const Rows& rows, uint8_t* out) {
  if (format == Format::AFFINE4_64) return put_affine<quant::AFFINE4_64>(m, rows, out);
  if (format == Format::AFFINE4_32) return put_affine<quant::AFFINE4_32>(m, rows, out);
  if (format == Format::AFFINE8_64) return put_affine<quant::AFFINE8_64>(m, rows, out);
  if (format == Format::AFFINE8_32) return put_affine<quant::AFFINE8_32>(m, rows, out);
  if (format == Format::F16) return put_numbers<quant::F16>(m, reader, rows, out);
  put_numbers<quant::F32>(m, reader, rows, out);
}

// ---- numbers of 8 and 4 bits ----

class FloatRows {
 public:
  FloatRows(const Safetensors& files, const QuantizedMatrix& m, const std::string& source)
      : m_(m), codes_(files.data(*m.codes)) {
    const auto scales = files.data(*m.scales);
    if (m.scheme.layout == QuantLayout::kFloat8) {
      scales_ = numbers_of(*m.scales, scales);
      return;
    }
    // NaN is all ones in E8M0, and all ones except the sign in E4M3. Scales have no sign.
    exponents_ = scales;
    const int last = m.scheme.group == 16 ? 0x7E : 0xFE;
    for (size_t i = 0; i < scales.size(); ++i)
      if (scales[i] > last)
        throw Error("{}: tensor '{}': element {} is {}, which is not a scale: expected 0 to {}", printable(source),
                    printable(m.scales->name, 128), i, scales[i], last);
    if (m.global == nullptr) return;
    const float global = numbers_of(*m.global, files.data(*m.global))[0];
    tensor_scale_ = m.scheme.layout == QuantLayout::kPackedNvfp4 ? 1 / global : global;
    if (!(std::isfinite(global) && global > 0 && std::isfinite(tensor_scale_)))
      throw Error("{}: tensor '{}': the scale of the whole matrix is {}: expected a number above 0", printable(source),
                  printable(m.global->name, 128), global);
  }

  void gather_row(int64_t row, Format format, uint8_t* out) const {
    if (format == Format::F8_E4M3) {
      put_float8<quant::F8_E4M3>(row, out);
    } else if (format == Format::F8_E4M3_32) {
      put_float8<quant::F8_E4M3_32>(row, out);
    } else if (format == Format::MXFP4) {
      const uint8_t* from = &codes_[row * m_.n_in / 2];
      for (int64_t k = 0; k < m_.n_in; k += 32, from += 16, out += quant::MXFP4::block_bytes) {
        out[0] = exponents_[(row * m_.n_in + k) / 32];
        put_nibbles<16>(from, out + 1);
      }
    } else if (format == Format::NVFP4 || format == Format::NVFP4_SCALED) {
      const uint8_t* from = &codes_[row * m_.n_in / 2];
      for (int64_t k = 0; k < m_.n_in; k += 64, from += 32, out += quant::NVFP4::block_bytes) {
        if (format == Format::NVFP4_SCALED) std::memcpy(out, &tensor_scale_, 4), out += 4;
        for (int g = 0; g < 4; ++g) {
          out[g] = exponents_[(row * m_.n_in + k) / 16 + g];
          put_nibbles<8>(from + 8 * g, out + 4 + 8 * g);
        }
      }
    } else {
      for (int64_t k = 0; k < m_.n_in; ++k) {
        const float value = scale_at(row, k) * number_at(row * m_.n_in + k);
        std::memcpy(out + 4 * k, &value, 4);
      }
    }
  }

 private:
  // Repacks 2n codes in n bytes from sequential order to the first n codes in the low nibbles.
  template <int n>
  static void put_nibbles(const uint8_t* from, uint8_t* out) {
    uint8_t codes[2 * n];
    unpack_bits(from, 4, 2 * n, codes);
    quant::pack_nibbles<n>(codes, out);
  }

  template <class T>
  void put_float8(int64_t row, uint8_t* out) const {
    for (int64_t k = 0; k < m_.n_in; k += T::block_size, out += T::block_bytes)
      T::put(&codes_[row * m_.n_in + k], scale_at(row, k), out);
  }

  float scale_at(int64_t row, int64_t k) const {
    const QuantScheme& s = m_.scheme;
    if (s.group == 16) return 0.5f * quant::float_from_ue4m3(exponents_[(row * m_.n_in + k) / 16]) * tensor_scale_;
    if (s.layout != QuantLayout::kFloat8) return std::ldexp(1.0f, exponents_[(row * m_.n_in + k) / 32] - 127);
    if (s.block_cols == 0) return scales_[0];
    return scales_[row / s.block_rows * ((m_.n_in + s.block_cols - 1) / s.block_cols) + k / s.block_cols];
  }

  float number_at(int64_t i) const {
    if (m_.scheme.layout == QuantLayout::kFloat8) return quant::float_from_e4m3(codes_[i]);
    return quant::NVFP4::codebook[codes_[i / 2] >> (4 * (i % 2)) & 15];
  }

  const QuantizedMatrix& m_;
  const std::span<const uint8_t> codes_;
  std::vector<float> scales_;
  std::span<const uint8_t> exponents_;
  float tensor_scale_ = 1;
};

Format float_format(const QuantizedMatrix& m) {
  const auto has_blocks_of = [&](int64_t n) {
    return m.n_in % n == 0 && (m.scheme.block_cols % n == 0 || m.scheme.block_cols >= m.n_in);
  };
  switch (m.scheme.layout) {
    case QuantLayout::kFloat8:
      return has_blocks_of(128) ? Format::F8_E4M3 : has_blocks_of(32) ? Format::F8_E4M3_32 : Format::F32;
    case QuantLayout::kMlxMxfp8: return Format::F8_E4M3_32;
    case QuantLayout::kMlxNvfp4: return m.n_in % 64 == 0 ? Format::NVFP4 : Format::F32;
    case QuantLayout::kPackedNvfp4:
    case QuantLayout::kModelOptNvfp4: return m.n_in % 64 == 0 ? Format::NVFP4_SCALED : Format::F32;
    default: return Format::MXFP4;
  }
}

bool is_integer(QuantLayout layout) {
  return layout == QuantLayout::kMlxAffine || layout == QuantLayout::kGptq || layout == QuantLayout::kAwq ||
         layout == QuantLayout::kAwqRows || layout == QuantLayout::kPacked || layout == QuantLayout::kInt8;
}

}  // namespace

Format QuantizedTensors::format_of(const QuantizedMatrix& m) {
  return is_integer(m.scheme.layout) ? integer_format(m) : float_format(m);
}

GatheredMatrix QuantizedTensors::gather(const QuantizedMatrix& m) const {
  GatheredMatrix out;
  const auto allocate = [&](Format format) {
    out.format = format;
    const size_t n_bytes = static_cast<size_t>(m.n_out) * row_bytes(format, m.n_in);
    out.data.resize((n_bytes + 7) / 8);
    return reinterpret_cast<uint8_t*>(out.data.data());
  };
  ThreadPool pool(m.n_out * m.n_in < kLeastForThreads ? 1 : 0);
  if (is_integer(m.scheme.layout)) {
    const IntegerRows reader(files_, m);
    uint8_t* to = allocate(format_of(m));
    std::vector<Rows> rows(pool.size(), Rows(m));
    pool.parallel_for((m.n_out + kTileRows - 1) / kTileRows, [&](int64_t tile, int thread) {
      Rows& mine = rows[thread];
      mine.first = tile * kTileRows;
      mine.n = std::min(kTileRows, m.n_out - mine.first);
      reader.read(mine);
      put_rows(m, out.format, reader, mine, to + mine.first * row_bytes(out.format, m.n_in));
    });
    return out;
  }
  const FloatRows reader(files_, m, source_);
  uint8_t* to = allocate(format_of(m));
  pool.parallel_for(
      m.n_out, [&](int64_t row, int) { reader.gather_row(row, out.format, to + row * row_bytes(out.format, m.n_in)); });
  return out;
}

}  // namespace ingot
