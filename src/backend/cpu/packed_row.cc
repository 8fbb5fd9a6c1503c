// Reads one row of a weight from its panels: the inverse of pack_weight. A tied embedding is looked up in the panels of
// the output matrix this way, so memory holds the matrix once.
#include <bit>
#include <cstring>

#include "backend/cpu/packed_weight.h"
#include "base/half.h"

namespace ingot::cpu {
namespace {

float f16_at(const uint8_t* bytes) { return float_from_f16(quant::load_u16(bytes)); }

// A lane of a panel of quantized blocks.
class QuantLane {
 public:
  QuantLane(const PackedWeight& w, const FormatInfo& format, int lane)
      : w_(w), format_(format), kind_(kQuantKinds[w.kind]), layout_(block_layout(kind_)), lane_(lane) {}

  // out: [n_groups * 32] of the block, n_groups as in its layout
  void read_block(const uint8_t* block, float* out) const {
    const float base = layout_.super ? base_of(block, 0) : 0, min_base = layout_.super ? base_of(block, 1) : 0;
    const int part_size = kGroup / layout_.parts;
    for (int g = 0; g < layout_.n_groups; ++g, out += kGroup) {
      const uint8_t* record = record_of(block, g);
      const uint8_t* scales = layout_.shared ? block : record;
      uint8_t codes[kGroup];
      read_codes(record + layout_.codes_at, codes);
      for (int part = 0; part < layout_.parts; ++part) {
        const float scale = scale_of(scales, 0, part, base);
        const float min = kind_.has_min ? scale_of(scales, 1, part, min_base) : 0;
        for (int i = part * part_size; i < (part + 1) * part_size; ++i)
          out[i] = scale * static_cast<float>(level_of(codes[i])) + min;
      }
    }
  }

  int64_t block_bytes() const { return layout_.bytes; }
  int64_t block_size() const { return int64_t{kGroup} * layout_.n_groups; }

 private:
  const uint8_t* record_of(const uint8_t* block, int group) const {
    return block + layout_.head_bytes + group * layout_.record_bytes;
  }

  // The unit of a super-block's scales (field 0) or minima (field 1).
  float base_of(const uint8_t* block, int field) const {
    if (field == 1 && !kind_.has_min) return 0;
    uint16_t half = 0;
    if (kind_.scales == Scales::kSuperSixBits) {
      for (int g = 0; g < kSuperGroups; ++g) half |= static_cast<uint16_t>((record_of(block, g)[lane_] & 3) << (2 * g));
    } else {
      half = quant::load_u16(block + (field * kPanelRows + lane_) * 2);
    }
    return float_from_f16(half) * format_.scale_unit;
  }

  float scale_of(const uint8_t* scales, int field, int part, float base) const {
    const uint8_t* at = scales + field * layout_.mins_at + (part * kPanelRows + lane_) * layout_.scale_bytes;
    switch (kind_.scales) {
      case Scales::kSuper: return base * static_cast<float>(static_cast<int8_t>(*at));
      case Scales::kSuperNibbles: return base * static_cast<float>((*at >> (4 * field)) & 15);
      case Scales::kSuperSixBits: return base * static_cast<float>(static_cast<int8_t>(*at) >> 2);
      case Scales::kE8M0: return w_.factor * (*at == 0 ? 0x1p-127f : std::bit_cast<float>(uint32_t{*at} << 23));
      case Scales::kE4M3: return w_.factor * float_from_f16(static_cast<uint16_t>(*at << 7));
      case Scales::kF16: return w_.factor * f16_at(at);
      case Scales::kMultiples: break;  // only of unpacked file blocks
    }
    detail::check_failed(__FILE__, __LINE__, "scale_of: no such scales", "");
  }

  int level_of(uint8_t code) const {
    return format_.codebook != nullptr ? format_.codebook[code] : int{code} - format_.zero;
  }

  void read_codes(const uint8_t* planes, uint8_t* codes) const {
    const auto [low, high] = planes_of(kind_.bits);
    for (int i = 0; i < kGroup; ++i) {
      unsigned code = bits_at(planes, low, i);
      if (high > 0) code |= bits_at(planes + layout_.high_at, high, i) << low;
      codes[i] = static_cast<uint8_t>(w_.flips_codes ? code ^ 0x80 : code);
    }
  }

  // The bits of element i in a plane.
  unsigned bits_at(const uint8_t* plane, int bits, int i) const {
    const int n = 8 / bits, quad = i / 4;
    return plane[(quad / n * kPanelRows + lane_) * 4 + i % 4] >> (quad % n * bits) & ((1u << bits) - 1);
  }

  const PackedWeight& w_;
  const FormatInfo& format_;
  const QuantKind& kind_;
  const BlockLayout layout_;
  const int lane_;
};

float dense_at(const uint8_t* panel, Dense type, int64_t k, int lane) {
  switch (type) {
    case Dense::kF32: {
      float value;
      std::memcpy(&value, panel + (k * kPanelRows + lane) * 4, 4);
      return value;
    }
    case Dense::kF16: return f16_at(panel + (k * kPanelRows + lane) * 2);
    case Dense::kBF16: break;
  }
  return std::bit_cast<float>(uint32_t{quant::load_u16(panel + ((k / 2 * kPanelRows + lane) * 2 + k % 2) * 2)} << 16);
}

}  // namespace

bool packs_exactly(Format format) { return !is_float8(info(format)) && format != Format::NVFP4_SCALED; }

void read_packed_row(const PackedWeight& w, Format format, int64_t row, float* out) {
  const FormatInfo& f = info(format);
  const int lane = static_cast<int>(row % kPanelRows);
  const uint8_t* panel = w.panels() + row / kPanelRows * w.panel_bytes;
  if (w.file_blocks) {
    for (int64_t block = 0; block < w.n_in / f.block_size; ++block)
      f.decode(panel + (block * kPanelRows + lane) * f.block_bytes, out + block * f.block_size, 1);
  } else if (w.kind >= 0) {
    const QuantLane quants(w, f, lane);
    for (int64_t k = 0; k < w.n_in; k += quants.block_size(), panel += quants.block_bytes())
      quants.read_block(panel, out + k);
  } else {
    for (int64_t k = 0; k < w.n_in; ++k) out[k] = dense_at(panel, w.dense, k, lane);
  }
}

}  // namespace ingot::cpu
