#include "backend/cpu/packed_weight.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/half.h"

namespace ingot::cpu {
namespace {

constexpr int64_t kPackedAtOnce = 32 << 20;  // bytes of a file

// Packs the panels of a quantized weight, block by block, from rows unpacked by their format.
class QuantPacker {
 public:
  QuantPacker(const FormatInfo& format, const QuantKind& kind, const Weight& host, bool flips_codes, float factor)
      : format_(format),
        kind_(kind),
        layout_(block_layout(kind)),
        host_(host),
        flip_(flips_codes ? 0x80808080u : 0),
        inverse_(block_layout(kind).super ? 1.0f : 1.0f / factor) {}

  void pack_row(int64_t row, int lane, uint8_t* panel) const {
    const int64_t n = host_.n_in;
    std::vector<uint8_t> codes(n);
    std::vector<float> scales, mins;
    if (format_.unpack != nullptr) {
      scales.resize(n / format_.group);
      mins.resize(n / format_.group);
      format_.unpack(host_.row(row), codes.data(), scales.data(), mins.data(), n / format_.block_size);
    } else {
      scales.resize(n / kGroup);
      round_to_int8(row, codes.data(), scales.data());
    }
    const int block_k = kGroup * layout_.n_groups;
    const int n_scales = layout_.shared ? 1 : layout_.n_groups * layout_.parts;  // in a block
    for (int64_t b = 0; b < n / block_k; ++b) {
      uint8_t* block = panel + b * layout_.bytes;
      const uint8_t* source = host_.row(row) + b * (block_k / format_.block_size) * format_.block_bytes;
      put_scales(block, source, 0, &scales[b * layout_.n_groups * layout_.parts], n_scales, lane);
      if (kind_.has_min) put_scales(block, source, 1, &mins[b * layout_.n_groups * layout_.parts], n_scales, lane);
      for (int g = 0; g < layout_.n_groups; ++g)
        put_codes(record(block, g) + layout_.codes_at, &codes[b * block_k + g * kGroup], lane);
    }
  }

 private:
  uint8_t* record(uint8_t* block, int group) const { return block + layout_.head_bytes + group * layout_.record_bytes; }

  // Writes the scales (field 0) or minima (field 1) of a block: as they are, or as integer multiples of the block's own
  // f16.
  void put_scales(uint8_t* block, const uint8_t* source, int field, const float* values, int n_scales, int lane) const {
    const float step = layout_.super ? put_base(block, source, field, lane) : 0;
    for (int i = 0; i < n_scales; ++i) {
      uint8_t* scales = layout_.shared ? block : record(block, i / layout_.parts);
      uint8_t* to = scales + field * layout_.mins_at + (i % layout_.parts * kPanelRows + lane) * layout_.scale_bytes;
      if (layout_.super) {
        put_multiple(values[i], step, field, to);
      } else {
        put_scale(values[i] * inverse_, to);
      }
    }
  }

  // Writes the f16 of a super-block and returns the unit of its scales.
  float put_base(uint8_t* block, const uint8_t* source, int field, int lane) const {
    const float sign = field == 1 ? -1.0f : 1.0f;  // minima are -(dmin * m)
    const float base = sign * float_from_f16(load_scale_bits(format_.scale_fields[field], source));
    const uint16_t half = f16_from_float(base);
    if (kind_.scales == Scales::kSuperSixBits) {
      for (int g = 0; g < kSuperGroups; ++g) record(block, g)[lane] |= (half >> (2 * g)) & 3;
    } else {
      std::memcpy(block + (field * kPanelRows + lane) * 2, &half, 2);
    }
    return base * format_.scale_unit;
  }

  void put_multiple(float value, float step, int field, uint8_t* to) const {
    const float multiple = step != 0 && std::isfinite(step) ? std::round(value / step) : 0.0f;
    if (kind_.scales == Scales::kSuperNibbles) {
      CHECK(multiple >= 0 && multiple <= 15);
      *to |= static_cast<uint8_t>(static_cast<int>(multiple) << (4 * field));
    } else if (kind_.scales == Scales::kSuperSixBits) {
      CHECK(multiple >= -32 && multiple <= 31);
      *to |= static_cast<uint8_t>(static_cast<int>(multiple) * 4);
    } else {
      CHECK(multiple >= -128 && multiple <= 127);
      *to = static_cast<uint8_t>(static_cast<int8_t>(multiple));
    }
  }

  void put_scale(float value, uint8_t* to) const {
    if (kind_.scales == Scales::kE8M0) {
      *to = static_cast<uint8_t>(bits_from_float(value) >> 23);
    } else if (kind_.scales == Scales::kE4M3) {
      *to = static_cast<uint8_t>(f16_from_float(value) >> 7);  // an f16 has these bits 7 places up, scaled by 2^-8
    } else {
      const uint16_t half = f16_from_float(value);
      std::memcpy(to, &half, 2);
    }
  }

  void put_codes(uint8_t* out, const uint8_t* codes, int lane) const {
    uint32_t quads[kGroup / 4];
    std::memcpy(quads, codes, kGroup);
    const Planes planes = planes_of(kind_.bits);
    put_plane(out, quads, 0, planes.low, lane);
    if (planes.high > 0) put_plane(out + layout_.high_at, quads, planes.low, planes.high, lane);
  }

  // Writes `bits` bits of each code, from bit `first` on.
  void put_plane(uint8_t* out, const uint32_t* quads, int first, int bits, int lane) const {
    const int n = 8 / bits;  // quads in a word
    const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
    for (int i = 0; i < kGroup / 4; i += n) {
      uint32_t word = 0;
      for (int j = 0; j < n; ++j) word |= (((quads[i + j] ^ flip_) >> first) & mask) << (j * bits);
      std::memcpy(out + (i / n * kPanelRows + lane) * 4, &word, 4);
    }
  }

  // Rounds a row to codes centred on 128. In each group, the code of the largest is 127 away from 128. If the largest
  // is NaN or Inf, so is the scale. scales: [n_in / 32]; of a longer group, only the first is written.
  void round_to_int8(int64_t row, uint8_t* codes, float* scales) const {
    std::vector<float> values(host_.n_in);
    decode_row(host_.format, host_.row(row), values.data(), host_.n_in);
    for (int64_t first = 0; first < host_.n_in; first += kind_.group) {
      const float* x = &values[first];
      float largest = 0;
      for (int i = 0; i < kind_.group; ++i)
        if (std::isnan(x[i]) || std::abs(x[i]) > largest) largest = std::abs(x[i]);
      scales[first / kGroup] = largest / 127;
      if (!(largest > 0) || !std::isfinite(largest) || !std::isfinite(127 / largest)) {
        std::fill_n(codes + first, kind_.group, uint8_t{128});
        continue;
      }
      for (int i = 0; i < kind_.group; ++i)
        codes[first + i] = static_cast<uint8_t>(static_cast<int>(x[i] * (127 / largest) + 128.5f));
    }
  }

  const FormatInfo& format_;
  const QuantKind& kind_;
  const BlockLayout layout_;
  const Weight& host_;
  const uint32_t flip_;
  const float inverse_;  // inverse of the common factor of the scales
};

// Whether a scale is a small integer times the scale of the block. This holds for all formats with 256 elements a
// block and several scales.
bool has_super_blocks(const FormatInfo& f) {
  return f.block_size == kGroup * kSuperGroups && f.group * f.run < f.block_size;
}

// Whether the values of a block format are not evenly spaced, so that they have to be rounded to int8.
bool is_rounded(const FormatInfo& f) { return f.unpack == nullptr && f.block_size > 1; }

// The bits of a code in a panel; see planes_of().
int bits_of(const FormatInfo& f) {
  const int needed = std::bit_width(static_cast<unsigned>(f.levels - 1));
  return needed > 6 ? 8 : needed;
}

Scales scales_of(const FormatInfo& f) {
  if (has_super_blocks(f)) {
    if (f.codebook != nullptr || bits_of(f) > 3) return Scales::kSuper;
    return f.has_min ? Scales::kSuperNibbles : Scales::kSuperSixBits;
  }
  if (f.scale_fields[0].kind == quant::ScaleKind::kE8M0) return Scales::kE8M0;
  return f.scale_fields[0].kind == quant::ScaleKind::kUE4M3 ? Scales::kE4M3 : Scales::kF16;
}

int lowest_level(const FormatInfo& f) { return *std::min_element(f.codebook, f.codebook + f.levels); }

int span_of(const FormatInfo& f) {
  return f.codebook == nullptr ? 0 : *std::max_element(f.codebook, f.codebook + f.levels) - lowest_level(f);
}

// Whether panels hold the blocks of the file, and of which format.
std::optional<FileBlocks> file_blocks_of(Format format, Packing packing) {
  // In the order of FileBlocks.
  constexpr Format kFormats[] = {Format::IQ1_S, Format::IQ1_M,   Format::IQ2_XXS, Format::IQ2_XS,
                                 Format::IQ2_S, Format::IQ3_XXS, Format::IQ3_S,   Format::TQ1_0};
  const Format* found = std::find(std::begin(kFormats), std::end(kFormats), format);
  if (packing == Packing::kFast || found == std::end(kFormats)) return std::nullopt;
  return static_cast<FileBlocks>(found - kFormats);
}

// Returns the kind of kernel for a format, or -1 if there is none. If two kinds differ only in the span, returns the
// narrower one.
int kind_of(Format format, Packing packing) {
  const FormatInfo& f = info(format);
  if (f.block_size == 1) return -1;
  if (file_blocks_of(format, packing)) return byte_kind(f.group * f.run);
  const QuantKind wanted = is_rounded(f) ? QuantKind{8, 0, f.block_size, false, Scales::kF16}
                                         : QuantKind{bits_of(f), span_of(f), f.group * f.run, f.has_min, scales_of(f)};
  int best = -1;
  for (int i = 0; i < kQuantKindCount; ++i) {
    const QuantKind& k = kQuantKinds[i];
    const bool spans = (k.span > 0) == (wanted.span > 0) && k.span >= wanted.span;
    if (spans && k.bits == wanted.bits && k.group == wanted.group && k.has_min == wanted.has_min &&
        k.scales == wanted.scales && (best < 0 || k.span < kQuantKinds[best].span))
      best = i;
  }
  return best;
}

// The power of two by which a weight's scales are divided before they are stored. For f32 scales, the division brings
// the largest scale below 2^12. Then an f16 represents a bf16 scale exactly, unless that scale is 2^-28 of the largest
// or less. The product of an f32 and an E4M3 is rounded. The scales of NVFP4 are half of the E4M3 in the file, which
// kernels read divided by 2^8.
float factor_of(const FormatInfo& f, const Weight& host) {
  if (f.n_scale_fields > 0 && f.scale_fields[0].kind == quant::ScaleKind::kUE4M3) return 128.0f;
  if (f.n_scale_fields == 0 || f.scale_fields[0].kind != quant::ScaleKind::kF32) return f.scale_unit;
  constexpr float kMaxOfE4m3 = 240;  // half of the largest E4M3
  float largest = 0, reach = 1;
  const auto* blocks = static_cast<const uint8_t*>(host.codes);
  const int64_t n_blocks = host.n_experts * host.n_out * (host.n_in / f.block_size);
  for (int64_t b = 0; b < n_blocks; ++b)
    for (int i = 0; i < f.n_scale_fields; ++i) {
      if (f.scale_fields[i].kind == quant::ScaleKind::kUE4M3) reach = kMaxOfE4m3;
      if (f.scale_fields[i].kind != quant::ScaleKind::kF32) continue;
      const float value =
          std::abs(float_from_bits(quant::load_u32(blocks + b * f.block_bytes + f.scale_fields[i].offset)));
      if (std::isfinite(value) && value > largest) largest = value;
    }
  if (largest == 0) return 1;
  return std::ldexp(1.0f, std::clamp(std::ilogb(reach * largest) - 11, -120, 120));
}

void pack_file_blocks(const Weight& host, int64_t row, int lane, uint8_t* panel) {
  const FormatInfo& f = info(host.format);
  for (int64_t block = 0; block < host.n_in / f.block_size; ++block)
    std::memcpy(panel + (block * kPanelRows + lane) * f.block_bytes, host.row(row) + block * f.block_bytes,
                static_cast<size_t>(f.block_bytes));
}

void pack_dense_row(const Weight& host, Dense type, int64_t row, int lane, uint8_t* panel) {
  const int64_t n = host.n_in;
  if (type == Dense::kF32) {
    std::vector<float> values(n);
    decode_row(host.format, host.row(row), values.data(), n);
    for (int64_t k = 0; k < n; ++k) std::memcpy(panel + (k * kPanelRows + lane) * 4, &values[k], 4);
    return;
  }
  const bool converts = type == Dense::kBF16 && host.format == Format::F16;
  const uint8_t* from = host.row(row);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = type == Dense::kF16 ? k * kPanelRows + lane : (k / 2 * kPanelRows + lane) * 2 + k % 2;
    uint16_t bits = quant::load_u16(from + k * 2);
    if (converts) bits = static_cast<uint16_t>(bits_from_float(float_from_f16(bits)) >> 16);
    std::memcpy(panel + at * 2, &bits, 2);
  }
}

// Whether all numbers of a row of f16 have the 8 significant bits of bf16.
bool is_bf16_row(const uint8_t* row, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    const uint16_t bits = quant::load_u16(row + k * 2);
    if ((bits & 7) == 0) continue;
    if ((bits_from_float(float_from_f16(bits)) & 0xFFFF) != 0) return false;  // subnormal numbers may have fewer bits
  }
  return true;
}

// Most F16 files come from BF16 models. Their weights are bf16 numbers, and can be multiplied as bf16 at twice the rate
// of f32. Other F16 weights would lose 3 bits.
bool is_bf16_in_f16(const Weight& host, const Kernels& kernels, ThreadPool& pool) {
  if (host.format != Format::F16 || !kernels.bf16_dot || host.n_in % 2 != 0) return false;
  std::atomic<bool> exact = true;
  pool.parallel_for(host.n_experts * host.n_out, [&](int64_t row, int) {
    if (exact.load(std::memory_order_relaxed) && !is_bf16_row(host.row(row), host.n_in)) exact = false;
  });
  return exact;
}

Dense dense_of(Format format) {
  return format == Format::F16 ? Dense::kF16 : format == Format::BF16 ? Dense::kBF16 : Dense::kF32;
}

// Bytes of kPanelRows rows with n_in elements.
int64_t panel_bytes(Format format, int64_t n_in, Packing packing) {
  if (file_blocks_of(format, packing)) return kPanelRows * static_cast<int64_t>(row_bytes(format, n_in));
  if (const int kind = kind_of(format, packing); kind >= 0) {
    const BlockLayout layout = block_layout(kQuantKinds[kind]);
    return n_in / (kGroup * layout.n_groups) * layout.bytes;
  }
  const Dense type = dense_of(format);
  return (type == Dense::kBF16 ? n_in + n_in % 2 : n_in) * kPanelRows * (type == Dense::kF32 ? 4 : 2);
}

int64_t panels(int64_t n_out) { return (n_out + kPanelRows - 1) / kPanelRows; }

void describe_quant(PackedWeight& w, const FormatInfo& f, int kind, const Kernels& kernels, float factor) {
  const QuantKind& k = kQuantKinds[kind];
  const BlockLayout layout = block_layout(k);
  w.kind = kind;
  w.factor = factor;
  w.flips_codes = kernels.signed_codes && k.bits == 8;
  // Levels of a codebook are counted from the lowest. Levels above 7 bits are stored minus 128 if the kernel needs
  // signed codes; the levels of a wide codebook are then stored unchanged.
  const bool is_signed = largest_code(k) >= 128 && kernels.signed_codes;
  const int offset = f.codebook != nullptr ? (is_signed ? 0 : -lowest_level(f)) : is_signed ? -128 : 0;
  w.activations = {.has_min = k.has_min, .parts = layout.parts, .zero = (is_rounded(f) ? 128 : f.zero) + offset};
  if (k.span > 0)
    for (int i = 0; i < 16; ++i) w.codebook[i] = static_cast<uint8_t>(f.codebook[i] + offset);
  if (is_signed && kernels.int16_tile > 0) {
    w.unpacked = Unpacked::kInt16;
    w.many_activations = {.has_min = k.has_min, .int16_limit = 127};
  } else if (kernels.unpacks_bytes && gains_from_bytes(k)) {
    w.unpacked = Unpacked::kBytes;
    w.many_activations = w.activations;
  }
  w.token_activations = w.activations;
  w.token_activations.by_token = true;
  if (w.file_blocks) {
    w.unpacked = Unpacked::kBytes;
    w.few_activations = w.activations;
    w.few_activations.by_row = true;
    w.activations.sums_only = k.scales == Scales::kMultiples;
    if (w.file_blocks == FileBlocks::kTQ1_0) w.few_activations.int16_limit = kInt16Activation;
    w.batch_changes_bits = true;
  }
  if (kernels.block_tiles != nullptr) {
    w.unpacked = Unpacked::kBF16;
    w.many_activations = {.dense = true, .bf16 = true, .blocks = true};
    w.batch_changes_bits = true;
  }
}

void describe_dense(PackedWeight& w, Dense type, const Kernels& kernels) {
  w.dense = type;
  w.activations = {.dense = true, .bf16 = type == Dense::kBF16 && kernels.bf16_dot};
  if (w.activations.bf16 && kernels.block_tiles != nullptr && w.n_in % kGroup == 0) {
    w.unpacked = Unpacked::kBlocks;
    w.many_activations = {.dense = true, .bf16 = true, .blocks = true};
    w.batch_changes_bits = true;
  }
  if (type == Dense::kF32 || w.activations.bf16) return;
  const bool in_int16 = kernels.int16_tile > 0 && w.n_in % kGroup == 0;
  w.unpacked = in_int16 ? Unpacked::kInt16 : Unpacked::kF32;
  w.many_activations = in_int16 ? ActLayout{.int16_limit = kInt16Activation} : w.activations;
  w.batch_changes_bits = true;
}

}  // namespace

Unpacked exact_form(const PackedWeight& w, const Kernels& kernels, int64_t n_rows) {
  const bool can_unpack = kernels.byte_unit != nullptr && w.kind >= 0 && !w.file_blocks;
  return can_unpack && n_rows >= least_int8_tokens(kQuantKinds[w.kind]) ? Unpacked::kInt8 : common_form(w);
}

Unpacked unpacked_for(const PackedWeight& w, const Kernels& kernels, int64_t n_rows) {
  if (w.file_blocks && n_rows <= kFewTokens) return Unpacked::kRows;
  const bool can_unpack = in_blocks(w.unpacked)            ? kernels.block_tiles != nullptr
                          : w.unpacked == Unpacked::kBytes ? kernels.unpacks_bytes
                                                           : true;
  if (!can_unpack) return exact_form(w, kernels, n_rows);  // the weight was packed for another instruction set
  const int least = w.unpacked == Unpacked::kBlocks ? kBlockTokens
                    : w.unpacked == Unpacked::kBF16 ? kUnpackBf16Tokens
                                                    : (kUnpackTiles - 1) * max_tile(w, kernels, w.unpacked) + 1;
  return n_rows < least ? exact_form(w, kernels, n_rows) : w.unpacked;
}

const char* multiplies_as(Format format, const Kernels& kernels) {
  if (kind_of(format, Packing::kFast) >= 0) return kernels.block_tiles != nullptr ? "bf16" : "int8";
  if (format == Format::BF16 && kernels.bf16_dot) return "bf16";
  return kernels.int16_tile > 0 && info(format).block_size == 1 && format != Format::F32 ? "int16" : "f32";
}

bool packs_alike(Format format, Packing packing) {
  const int kind = kind_of(format, packing);
  return kind >= 0 && largest_code(kQuantKinds[kind]) < 128;
}

MatmulJob job_of(const PackedWeight& w, const Kernels& kernels, int n_rows, const uint8_t* act, Tensor y,
                 Unpacked unpacked) {
  return {.tiles = in_blocks(unpacked) ? kernels.block_tiles->of
                   : w.kind >= 0       ? kernels.quant_tiles[w.kind].of
                                       : kernels.dense_tiles[static_cast<int>(w.dense)].of,
          .panels = w.panels(),
          .panel_bytes = w.panel_bytes,
          .n_in = w.n_in,
          .n_out = w.n_out,
          .codebook = w.codebook,
          .act = act,
          .act_token_bytes = act_token_bytes(activations_of(w, unpacked), w.n_in),
          .tiling = make_tiling(n_rows, max_tile(w, kernels, unpacked)),
          .factor = w.factor,
          .y = y.f32(),
          .y_stride = y.stride,
          .unpacked = unpacked,
          .kind = w.kind,
          .dense = w.dense,
          .zero = w.activations.zero,
          .file_blocks = w.file_blocks ? &kernels.file_blocks[static_cast<int>(*w.file_blocks)] : nullptr,
          .kernels = &kernels};
}

size_t packed_bytes(const Weight& shape, Packing packing) {
  return static_cast<size_t>(shape.n_experts * panels(shape.n_out) * panel_bytes(shape.format, shape.n_in, packing));
}

PackedWeight pack_weight(const Weight& host, const Kernels& kernels, ThreadPool& pool, Packing packing) {
  const FormatInfo& format = info(host.format);
  const int kind = kind_of(host.format, packing);
  const Dense dense = is_bf16_in_f16(host, kernels, pool) ? Dense::kBF16 : dense_of(host.format);
  PackedWeight w;
  w.n_out = host.n_out;
  w.n_in = host.n_in;
  w.n_panels = panels(host.n_out);
  w.panel_bytes = panel_bytes(host.format, host.n_in, packing);
  std::fill_n(w.choice.for_rows, kRowClasses, &kernels);
  w.file_blocks = file_blocks_of(host.format, packing);
  const float factor = factor_of(format, host);
  if (kind >= 0) {
    describe_quant(w, format, kind, kernels, factor);
  } else {
    describe_dense(w, dense, kernels);
  }
  w.memory = Memory(packed_bytes(host, packing));  // zeroed, so rows past n_out multiply to zero
  place_by_thread(w.memory, host.n_experts, pool);
  const QuantPacker packer(format, kQuantKinds[std::max(kind, 0)], host, w.flips_codes, factor);
  const auto pack_panel = [&](int64_t expert, int64_t panel) {
    uint8_t* to = w.memory.data() + (expert * w.n_panels + panel) * w.panel_bytes;
    const int64_t first = expert * host.n_out, end = first + std::min(host.n_out, (panel + 1) * kPanelRows);
    int lane = 0;
    for (int64_t row = first + panel * kPanelRows; row < end; ++row, ++lane) {
      if (w.file_blocks) {
        pack_file_blocks(host, row, lane, to);
      } else if (kind >= 0) {
        packer.pack_row(row, lane, to);
      } else {
        pack_dense_row(host, dense, row, lane, to);
      }
    }
  };
  // A loop for each expert: each thread packs the panels that it multiplies later. Packed rows of a mapped file leave
  // memory at once, because a large matrix would be in memory twice for a while.
  const int64_t row_size = static_cast<int64_t>(row_bytes(host.format, host.n_in)),
                run = std::max<int64_t>(1, kPackedAtOnce / (row_size * kPanelRows));
  for (int64_t expert = 0; expert < host.n_experts; ++expert)
    for (int64_t first = 0; first < w.n_panels; first += run) {
      const int64_t n = std::min(run, w.n_panels - first), row = first * kPanelRows;
      pool.parallel_for(n, [&](int64_t panel, int) { pack_panel(expert, first + panel); });
      const int64_t n_rows = std::min(n * kPanelRows, host.n_out - row);
      if (n < w.n_panels)
        give_back_mapped({host.row(expert * host.n_out + row), static_cast<size_t>(n_rows * row_size)});
    }
  return w;
}

}  // namespace ingot::cpu
