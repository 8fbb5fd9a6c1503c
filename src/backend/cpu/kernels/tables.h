// Declares the functions that the kernel sources of one instruction set put into its table (table.cc).
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/recurrence_kernels.h"

namespace ingot::cpu::INGOT_ISA {

// The header of the instruction set (isa/) has the largest number of tokens in a tile: kQuantTile, kDenseTile and
// kInt16Tile, which is 0 if 16-bit integers are not multiplied at twice the rate of f32.
struct QuantTiles {
  TileRow of[kQuantKindCount];
};
extern const QuantTiles kQuantTiles;
extern const TileRow kDenseTiles[kDenseCount];

void pack_activations(const float* x, int64_t stride, int m, int64_t n_in, const ActLayout& layout, uint8_t* tile);
void finish(const MatmulJob& job, const float* out, int64_t panel, int token, int m);
void matmul_in_parts(const MatmulJob& job, const PanelRange& range);  // part_tile.cc, if kInt16Tile > 0
void matmul_in_bytes(const MatmulJob& job, const PanelRange& range);  // file_blocks.cc
void dot_file_blocks(const MatmulJob& job, const PanelRange& range);
extern const FileBlockFns kFileBlocks[];  // [FileBlocks]
// ternary_rows.cc
void pack_ternary(const float* x, int64_t stride, int m, int64_t n_in, uint8_t* tile);
void dot_ternary_rows(const uint8_t* panel, const uint8_t* act, int m, int64_t n_in, float* out);
// bf16_panel.cc, if kBf16Blocks; tile: bf16 [n_in / 32, m, 32]
void pack_blocks(const float* x, int64_t stride, int m, int64_t n_in, uint8_t* tile);
void matmul_in_bf16(const MatmulJob& job, const PanelRange& range);
void matmul_in_int8(const MatmulJob& job, const PanelRange& range);  // int8_panel.cc, if kBf16Blocks
void matmul(const MatmulJob& job, const PanelRange& range);
void gate_up(const MatmulJob& gate, const MatmulJob& up, int act, const PanelRange& range);

void short_conv(const ConvJob& job);  // short_conv.cc

// rwkv7.cc
void mix_tokens(const MixJob& job);
void wkv7_inputs(const Wkv7Head& head);
void wkv7_outputs(const Wkv7Output& head);

void norm(float* y, const float* x, int64_t n, const float* weight, const float* bias, float eps, bool layer_norm);
void add(float* x, const float* y, int64_t n);
void add_scaled(float* x, const float* y, float factor, int64_t n);
void act_mul(float* y, const float* gate, const float* up, int64_t n, int act);
void act(float* x, int64_t n, int act);
void scale(float* x, int64_t n, float factor, float softcap);
void hadamard(float* x, int64_t n, int block);
void rope(float* x, int n_heads, int head_dim, const float* cosines, const float* sines, int n_freq, bool interleaved);
void write_kv(const float* k, const float* v, int head_dim, const KvLayout& kv, uint8_t* page, int slot);
void attention(const AttentionJob& job);
void merge_attention(const float* partials, int64_t part_stride, int parts, int group, int head_dim, const float* sinks,
                     float* y);

double peak_read(const void* data, int64_t n_bytes);
double peak_f32(int64_t iterations);
double peak_bf16(int64_t iterations);
double peak_int16(int64_t iterations);
double peak_int8(int64_t iterations);

}  // namespace ingot::cpu::INGOT_ISA
