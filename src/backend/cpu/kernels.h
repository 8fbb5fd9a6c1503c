// The interface between CpuBackend and the kernels of an instruction set: a table of functions, and the layouts that
// both sides use.
//
// Weights are stored in panels of 32 output rows, so one vector load reads the same k of neighbouring rows, and no sum
// crosses lanes. Activations are first packed into tiles of a few tokens, [k, token], so that the inner loop reads both
// in order.
//
// Kernel sources include this header, so it must not define inline symbols with external linkage (see kernels/simd.h).
#pragma once
#include <stdint.h>

namespace ingot::cpu {

constexpr int kPanelRows = 32;
constexpr int kGroup = 32;       // elements of k that share one scale of the int8 activations
constexpr int kSuperGroups = 8;  // groups of a super-block: 256 elements
constexpr int kMaxTile = 32;     // tokens

// ---- quantized panels ----

// How the scale of a group of weights is stored: as f16; as a power of two, the exponent byte of an f32, where 0 means
// 2^-127; as E4M3 without a sign; as an int8 times an f16 of the super-block; as four bits times such an f16, with the
// scale and the minimum in a byte's low and high four bits; or as six bits times such an f16, in the high bits of a
// byte. The two low bits of the first scale of group g are then bits 2g and 2g + 1 of the f16. Unpacked file blocks
// with two scales for a group have multiples of such an f16, in the form that products of 16 bits need.
enum class Scales : uint8_t { kF16, kE8M0, kE4M3, kSuper, kSuperNibbles, kSuperSixBits, kMultiples };

// The quantized layouts that have kernels. Packing removes most differences between formats. The remaining ones are the
// fields of QuantKind.
struct QuantKind {
  int bits;   // 1 to 8; with a codebook, 4 at most; 7 bits fill a byte, in unpacked file blocks
  int span;   // with a codebook, the largest difference of two levels; 0: no codebook
  int group;  // elements that share a scale: 16, 32, 64, 128 or 256
  bool has_min;
  Scales scales;
};
constexpr QuantKind kQuantKinds[] = {
    {4, 0, 32, false, Scales::kF16},           // Q4_0
    {4, 0, 32, true, Scales::kF16},            // Q4_1 AFFINE4_32
    {5, 0, 32, false, Scales::kF16},           // Q5_0
    {5, 0, 32, true, Scales::kF16},            // Q5_1
    {8, 0, 32, false, Scales::kF16},           // Q8_0 F8_E4M3_32
    {8, 0, 128, false, Scales::kF16},          // F8_E4M3
    {8, 0, 32, true, Scales::kF16},            // AFFINE8_32
    {4, 0, 32, true, Scales::kSuper},          // Q4_K
    {5, 0, 32, true, Scales::kSuper},          // Q5_K
    {2, 0, 16, true, Scales::kSuperNibbles},   // Q2_K
    {3, 0, 16, false, Scales::kSuperSixBits},  // Q3_K
    {2, 0, 256, false, Scales::kF16},          // TQ1_0 TQ2_0
    {6, 0, 16, false, Scales::kSuper},         // Q6_K
    {2, 0, 64, false, Scales::kF16},           // Q2_0
    {1, 2, 128, false, Scales::kF16},          // Q1_0
    {4, 240, 32, false, Scales::kF16},         // IQ4_NL
    {4, 24, 32, false, Scales::kE8M0},         // MXFP4
    {4, 240, 32, false, Scales::kSuper},       // IQ4_XS
    {4, 124, 32, false, Scales::kSuper},       // IQ3_XXS
    {4, 30, 32, false, Scales::kSuper},        // IQ3_S
    {3, 86, 32, false, Scales::kSuper},        // IQ2_XXS
    {3, 86, 16, false, Scales::kSuper},        // IQ2_XS IQ2_S
    {3, 18, 32, false, Scales::kSuper},        // IQ1_S
    {3, 18, 16, false, Scales::kSuper},        // IQ1_M
    {7, 0, 32, false, Scales::kSuper},         // file blocks of IQ1_S IQ2_XXS IQ3_XXS IQ3_S, unpacked
    {7, 0, 16, false, Scales::kMultiples},     // file blocks of IQ1_M IQ2_XS IQ2_S, unpacked
    {7, 0, 256, false, Scales::kF16},          // file blocks of TQ1_0, unpacked
    {4, 24, 16, false, Scales::kE4M3},         // NVFP4
    {4, 24, 16, false, Scales::kF16},          // NVFP4_SCALED
    {4, 0, 64, true, Scales::kF16},            // AFFINE4_64
    {8, 0, 64, true, Scales::kF16},            // AFFINE8_64
};
constexpr int kQuantKindCount = sizeof(kQuantKinds) / sizeof(kQuantKinds[0]);

// The largest number that a kernel multiplies, with codes and levels counted from the lowest. Numbers below 128 are
// the same byte with and without a sign.
static constexpr int largest_code(const QuantKind& kind) { return kind.span > 0 ? kind.span : (1 << kind.bits) - 1; }

// Codes are split into planes, so that a panel is hardly larger than in the file: the low 8, 4, 2 or 1 bits of each
// code, then the other one or two bits. A plane of b bits holds [k / (32 / b), 32 rows, 4 bytes]: elements 4q to 4q + 3
// have their bits in the four bytes of a 32-bit word, at bit b * (q % (8 / b)) of each byte.
struct Planes {
  int low, high;  // bits
};
static constexpr Planes planes_of(int bits) {
  const int low = bits >= 7 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 1;
  return {low, bits > low ? bits - low : 0};
}

// Whether a kernel needs more than a shift and a mask for a code, or has other work that is worth doing once for many
// tokens.
static constexpr bool gains_from_bytes(const QuantKind& kind) {
  return planes_of(kind.bits).high > 0 || kind.span > 0 || kind.has_min;
}

// A panel is a run of blocks. A block covers 256 elements of k in super-blocks, otherwise the elements that share a
// scale, at least 32. A block has a head, and then a record for each group of 32 elements:
//   head     super-blocks: base scales, base minima f16 [32 rows], unless the scales have six bits; if groups share a
//            scale: scales, minima f16 [32]
//   record   scales, minima of the group [parts, 32 rows], unless the head has them; then the planes of the codes.
//            Multiples: [2 parts, 32 rows, twice in 16 bits]; then both, times minus the zero of the codes, [32, 2]
// where parts = max(32 / group, 1), and minima are present only with has_min. Most records are whole cache lines.
struct BlockLayout {
  int n_groups;  // of 32 elements
  int parts;
  bool super;
  bool shared;      // the groups share the scales of the head
  int scale_bytes;  // of one scale
  int head_bytes;
  int mins_at;   // from the start of the scales
  int codes_at;  // in the record
  int high_at;   // from the start of the codes
  int record_bytes;
  int bytes;
};
static constexpr BlockLayout block_layout(const QuantKind& kind) {
  const bool nibbles = kind.scales == Scales::kSuperNibbles, six_bits = kind.scales == Scales::kSuperSixBits;
  const bool multiples = kind.scales == Scales::kMultiples;
  const int fields = kind.has_min ? 2 : 1;
  BlockLayout b{};
  b.super = kind.scales == Scales::kSuper || nibbles || six_bits || multiples;
  b.shared = kind.group > kGroup;
  b.n_groups = b.super ? kSuperGroups : b.shared ? kind.group / kGroup : 1;
  b.parts = b.shared ? 1 : kGroup / kind.group;
  b.scale_bytes = multiples ? 4 : kind.scales == Scales::kF16 ? 2 : 1;
  const int field_bytes = b.parts * kPanelRows * b.scale_bytes;
  b.mins_at = nibbles ? 0 : field_bytes;
  const int scales_bytes = nibbles ? field_bytes : fields * field_bytes;
  b.head_bytes = six_bits ? 0 : b.super ? fields * 2 * kPanelRows : b.shared ? scales_bytes : 0;
  b.codes_at = b.shared ? 0 : multiples ? field_bytes + 4 * kPanelRows : scales_bytes;
  const Planes planes = planes_of(kind.bits);
  b.high_at = kGroup * kPanelRows * planes.low / 8;
  b.record_bytes = b.codes_at + kGroup * kPanelRows * (planes.low + planes.high) / 8;
  b.bytes = b.head_bytes + b.n_groups * b.record_bytes;
  return b;
}

// ---- panels of file blocks ----

// Blocks of these formats have no field for each code, so panels of codes are up to twice as large. Panels may hold the
// blocks of the file instead, [n_in / 256, 32 rows, bytes of a block]. They are multiplied row by row for few tokens;
// for more, 32 rows of blocks are unpacked to a block of a kind with one byte for each code.
enum class FileBlocks : uint8_t { kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS, kIQ3_S, kTQ1_0 };
struct FileBlockFns {
  void (*unpack_rows)(const uint8_t* blocks, uint8_t* block);
  // Multiplies up to kFewTokens tokens by a panel: out [m, 32 rows].
  void (*dot_rows)(const uint8_t* panel, const uint8_t* act, int m, int64_t n_in, float* out);
};
constexpr int kFewTokens = 4;

static constexpr bool is_unpacked(const QuantKind& kind) { return kind.bits == 7; }
static constexpr int byte_kind(int group) {
  int kind = 0;
  while (!is_unpacked(kQuantKinds[kind]) || kQuantKinds[kind].group != group) ++kind;
  return kind;
}
constexpr int kByteKind16 = byte_kind(16), kByteKind32 = byte_kind(32), kByteKind256 = byte_kind(256);
constexpr int kMaxByteBlock = block_layout(kQuantKinds[kByteKind16]).bytes;

// ---- dense panels: [k, 32 rows]; bf16 as [k / 2, 32 rows, 2], an odd k padded with zero ----

enum class Dense : uint8_t { kF32, kF16, kBF16 };
constexpr int kDenseCount = 3;

// ---- packed activations ----

// The layout of packed activations for a kind of weight. A tile of m tokens holds, if dense: f32 [n_in, m], or with
// bf16 pairs bf16 [n_in / 2, m, 2], or with blocks bf16 [n_in / 32, m, 32]. Otherwise it holds for each group of 32:
// int32 start [parts, m], f32 scale [m], with has_min f32 sum [parts, m], int8 [8, m, 4]. `start` is -zero * (sum of
// the int8), `sum` is scale * (sum of the int8). With sums_only, start [0, m] is the sums of both halves of the int8,
// in 16 bits each. With by_token, the int8 are [m, 32]. With int16_limit it holds for each group: f32 scale [m], with
// has_min f32 sum [m], int16 [16, m, 2]. With by_row, tokens follow one another, and a token holds for each 256
// elements: f32 scale [8 groups], f32 start * scale [8, parts], int8 [256]. With by_row and int16_limit, it holds for
// each 256 elements what ternary_rows.cc needs.
struct ActLayout {
  bool dense = false;
  bool bf16 = false;
  bool blocks = false;
  bool has_min = false;
  int parts = 1;
  int zero = 0;
  bool sums_only = false;
  bool by_row = false;
  bool by_token = false;
  int int16_limit = 0;  // the largest integer of 16 bits; 0: int8, up to 127
};
static inline bool same(const ActLayout& a, const ActLayout& b) {
  return a.dense == b.dense && a.bf16 == b.bf16 && a.blocks == b.blocks && a.has_min == b.has_min &&
         a.parts == b.parts && a.zero == b.zero && a.int16_limit == b.int16_limit && a.by_row == b.by_row &&
         a.by_token == b.by_token && a.sums_only == b.sums_only;
}
constexpr int kTernaryActBytes = 9 * 4 + 2 * kGroup * kSuperGroups;
static inline int64_t act_token_bytes(const ActLayout& a, int64_t n_in) {
  if (a.dense) return a.bf16 ? (n_in + 1) / 2 * 4 : n_in * 4;
  if (a.by_row && a.int16_limit > 0) return n_in / (kGroup * kSuperGroups) * kTernaryActBytes;
  if (a.int16_limit > 0) return n_in / kGroup * (2 * kGroup + 4 + (a.has_min ? 4 : 0));
  return n_in / kGroup * (kGroup + 4 + 4 * a.parts * (a.has_min ? 2 : 1));
}

// Tokens are split into as few tiles as possible, whose sizes differ by at most one.
struct Tiling {
  int n_tokens;
  int n_tiles;
};
static inline Tiling make_tiling(int n_tokens, int max_tile) {
  return {n_tokens, (n_tokens + max_tile - 1) / max_tile};
}
static inline int tile_begin(const Tiling& t, int tile) {
  const int extra = t.n_tokens % t.n_tiles;
  return tile * (t.n_tokens / t.n_tiles) + (tile < extra ? tile : extra);
}

// ---- matmul ----

// The type into which a part of a panel is unpacked, once for many tokens. Products of this type are faster. kBF16 and
// kBlocks: the activations are bf16 in blocks (Kernels::block_tiles); with kBlocks, the panel stays as it is. kBytes:
// codes of less than 8 bits, or file blocks. kRows: file blocks are multiplied row by row, for up to kFewTokens tokens.
// kInt8: codes for Kernels::byte_unit, with the same bits as kNo.
enum class Unpacked : uint8_t { kNo, kF32, kInt16, kInt8, kBF16, kBlocks, kBytes, kRows };
constexpr int kUnpackTiles = 4;        // with fewer tiles of tokens, unpacking costs more time than it saves
constexpr int kBlockTokens = 4;        // with fewer tokens, block tiles read weights more slowly
constexpr int kUnpackBf16Tokens = 64;  // as kUnpackTiles, for kBF16
constexpr int kPanelsUnpacked = 8;     // at a time, for kBF16

// As kUnpackTiles, for kInt8. Sums of half a group cost the unit as much as sums of a whole one, and vectors multiply
// groups with a common scale faster.
static constexpr int least_int8_tokens(const QuantKind& kind) {
  const BlockLayout b = block_layout(kind);
  return b.parts == 1 && !b.shared ? 8 : 13;
}

// F16 weights as 16-bit integers with a scale for each row and 32 of k. Sums of 32 products fit in 32 bits. The limit
// of the activations is a multiple of 127, so numbers that are exact in int8 are exact here.
constexpr int kInt16Weight = 8191, kInt16Activation = 127 * 64;
static_assert(int64_t{kGroup} * kInt16Weight * kInt16Activation < int64_t{1} << 31);

// Multiplies one tile of tokens by one panel: out [m, 32 rows].
using TileFn = void (*)(const uint8_t* panel, const uint8_t* act, int64_t n_in, const uint8_t* codebook, float* out);
struct TileRow {
  TileFn of[kMaxTile];  // [m - 1]
};

// Products of a tile of tokens and several panels of bf16 weights, over a part of k, on a matrix unit.
struct BlockRun {
  const uint8_t* panels;  // [n_panels], each bf16 [n_blocks * 16, 32 rows, 2]
  int64_t panel_bytes;    // from panel to panel
  int n_panels;
  const uint8_t* act;    // bf16 [n_blocks, m, 32]
  const uint8_t* later;  // bf16 [n_blocks, m, 32], activations that are prefetched meanwhile
  int64_t n_blocks;      // of 32 of k
  bool adds;             // false: sums begin with zero
  float* sums;           // [n_panels, kMaxTile, 32 rows], the first m tokens of each
};
using BlockFn = void (*)(const BlockRun& run);
struct BlockRow {
  BlockFn of[kMaxTile];  // [m - 1]
};

// Sums of the products of a tile of tokens and the bytes of a panel, on a matrix unit: exact integers, one for each
// group of 32 elements of k or, with two parts, for each half of such a group.
constexpr int kByteTile = 16;  // tokens, and rows of a tile of sums
constexpr int kByteSums = 8;   // of a run, for each token and row
using ByteSums = int32_t[kByteSums][2][kByteTile][kByteTile];  // [groups, parts; 32 rows as 2 of 16, tokens, rows]
struct ByteRun {
  const uint8_t* codes;     // [n_groups, 8 quads, 32 rows, 4]
  const uint8_t* act;       // int8 [m, 32] of the first group
  int64_t act_group_bytes;  // from group to group
  int n_groups;             // at most kByteSums / parts
  const uint8_t* later;     // prefetched meanwhile
  int n_later;              // lines of 64 bytes, for each group
  ByteSums* sums;           // the first m tokens of each
};
struct ByteUnit {
  void (*configure)(int m, int parts);    // before the first run of a thread, or another m
  void (*release)();                      // after the last run
  void (*run[2][2])(const ByteRun& run);  // [parts - 1][0: codes with a sign, 1: without]
};

struct Kernels;
struct RecurrenceKernels;
struct MatmulJob {
  const TileFn* tiles;  // [m - 1]
  const uint8_t* panels;
  int64_t panel_bytes;
  int64_t n_in, n_out;
  const uint8_t* codebook;  // [16] in the layout of the kernel, or null
  const uint8_t* act;       // the packed tiles, one after another
  int64_t act_token_bytes;
  Tiling tiling;
  float factor;  // multiplies the product
  float* y;      // [n_tokens, n_out]
  int64_t y_stride;
  const float* bias;                // [n_out] or null
  bool accumulate;                  // true: y += the result
  Unpacked unpacked;                // kF32: sums are in parts of k
  int kind;                         // in kQuantKinds; -1: dense
  Dense dense;                      // the type of dense weights
  int zero;                         // of the codes
  const FileBlockFns* file_blocks;  // of panels of file blocks, else null
  const Kernels* kernels;           // the instruction set of `tiles`
};
struct PanelRange {
  int64_t panel_begin, panel_end;
  int tile_begin, tile_end;
};

// ---- attention ----

enum class KvType : uint8_t { kF32, kF16, kBF16, kQ8_0, kE4M3, kQ4_0 };
static inline int kv_bits(KvType type) {
  return type == KvType::kF32                             ? 32
         : type == KvType::kQ8_0 || type == KvType::kE4M3 ? 8
         : type == KvType::kQ4_0                          ? 4
                                                          : 16;
}
constexpr int kKeyChunk = 16;  // keys stored together in a page, as [head_dim, 16]
constexpr int kKeyBlock = 64;  // keys in one step of the online softmax
constexpr int kKvGroup = 32;   // elements of a head that share a scale in kQ8_0 and kQ4_0
constexpr int kMaxQueryRows = 48;

// A page of one head. First come the keys, [chunks of 16 tokens, head_dim, 16], then the values, [block_size,
// value_stride]. kQ8_0 stores elements as signed bytes, followed by f16 scales of the keys and then of the values, both
// [chunks, groups, 16]. kQ4_0 has the same scales. It stores elements plus 8 in four bits: of each 32 elements, byte i
// has element i in its low bits and element 16 + i in its high bits, so an odd head_dim is padded. Offsets are in
// bytes.
struct KvLayout {
  KvType type;
  int value_stride;  // elements, a multiple of 32
  int64_t values_at;
  int64_t key_scales_at, value_scales_at;
  bool values_are_keys;  // values and their scales are not stored: attention transposes the keys
};
static inline int64_t kv_chunk_bytes(KvType type, int head_dim) {  // of 16 keys
  return (int64_t)(type == KvType::kQ4_0 ? (head_dim + 1) / 2 * 2 : head_dim) * kKeyChunk * kv_bits(type) / 8;
}
static inline int kv_groups(int head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

// Where the page of a block is, counted from the page of block 0: blocks are in groups. All strides are in bytes.
struct BlockPlaces {
  int64_t stride;  // from block to block of a group
  int32_t group;   // blocks, a power of two
  int64_t group_stride;
};
static inline int64_t offset_of(const BlockPlaces& places, int32_t block) {
  const int32_t in_group = block & (places.group - 1);
  return (block - in_group) / places.group * places.group_stride + in_group * places.stride;
}

// A part of attention for one KV head: the query heads of its group for some tokens, over the keys [key_begin,
// key_end).
struct AttentionJob {
  const uint8_t* pages;  // of block 0
  BlockPlaces places;
  KvLayout kv;
  int block_size;
  const int32_t* blocks;

  const float* q;    // at the first token and the first head of the group
  int64_t q_stride;  // from token to token
  int group;         // query heads of this KV head
  int n_tokens;
  int head_dim;
  int position;  // of the first token; the other tokens follow
  int key_begin, key_end;
  int window;  // 0: none
  bool causal;
  bool sees_all;  // a token sees all keys of the range from its window on, whatever causal says
  float scale, softcap;
  const float* sinks;  // [group] or null; if parts are merged, only the merge reads the sinks

  float* y;  // like q; written when partial is null
  int64_t y_stride;
  float* partial;  // [n_tokens * group, 2 + head_dim]: largest score, sum, unnormalised output
  float* scratch;  // attention_scratch_floats()
};
static inline int64_t attention_scratch_floats(int head_dim) {
  const int64_t dim = (head_dim + kPanelRows - 1) / kPanelRows * kPanelRows;
  return (kMaxQueryRows + kMaxTile) * (2 * dim + kKeyBlock) + 2 * kMaxQueryRows + kKeyBlock * dim;
}

// ---- the table ----

struct Kernels {
  const char* isa;
  int quant_tile;  // largest number of tokens in a tile, int8 and dense
  int dense_tile;
  int int16_tile;      // 0 if 16-bit integers are not multiplied at twice the rate of f32
  bool unpacks_bytes;  // codes that are slow to read are unpacked to bytes for many tokens
  bool signed_codes;   // 8-bit codes are stored minus 128
  bool bf16_dot;       // bf16 weights need bf16 activations

  const TileRow* quant_tiles;       // [kQuantKindCount]
  const FileBlockFns* file_blocks;  // [FileBlocks]
  const TileRow* dense_tiles;       // [kDenseCount]
  const TileRow* block_tiles;       // for bf16 weights and activations in blocks; null: none
  const BlockRow* block_runs;       // the same for several unpacked panels
  int block_tile;                   // the largest number of tokens of block_tiles and block_runs
  const ByteUnit* byte_unit;        // null: none
  void (*pack_activations)(const float* x, int64_t stride, int m, int64_t n_in, const ActLayout& layout, uint8_t* tile);
  void (*matmul)(const MatmulJob& job, const PanelRange& range);
  // y = act(gate) * up, where y is the gate job's y.
  void (*gate_up)(const MatmulJob& gate, const MatmulJob& up, int act, const PanelRange& range);

  void (*norm)(float* y, const float* x, int64_t n, const float* weight, const float* bias, float eps, bool layer_norm);
  void (*add)(float* x, const float* y, int64_t n);
  void (*add_scaled)(float* x, const float* y, float factor, int64_t n);  // x += factor * y
  void (*act_mul)(float* y, const float* gate, const float* up, int64_t n, int act);
  void (*act)(float* x, int64_t n, int act);
  void (*scale)(float* x, int64_t n, float factor, float softcap);
  void (*hadamard)(float* x, int64_t n, int block);  // Backend::hadamard of one row; n is a multiple of block
  // Rotates all heads of one token; cosines and sines are [n_freq].
  void (*rope)(float* x, int n_heads, int head_dim, const float* cosines, const float* sines, int n_freq,
               bool interleaved);
  // Writes the key and value of one token and one head to place `slot` of a page.
  void (*write_kv)(const float* k, const float* v, int head_dim, const KvLayout& kv, uint8_t* page, int slot);
  void (*attention)(const AttentionJob& job);
  // Merges the partial results of `parts` jobs of one token, `part_stride` floats apart, into y [group, head_dim].
  void (*merge_attention)(const float* partials, int64_t part_stride, int parts, int group, int head_dim,
                          const float* sinks, float* y);

  // Kernels of the peak measurement. Each returns the number of operations, or of bytes read.
  double (*peak_read)(const void* data, int64_t n_bytes);
  double (*peak_f32)(int64_t iterations);
  double (*peak_bf16)(int64_t iterations);   // f32 if bf16_dot is false
  double (*peak_int16)(int64_t iterations);  // f32 if int16_tile is 0
  double (*peak_int8)(int64_t iterations);

  const RecurrenceKernels* recurrence;  // recurrence_kernels.h
};

}  // namespace ingot::cpu
