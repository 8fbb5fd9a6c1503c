// Declares the functions that the kernel sources of one instruction set put into its table (table.cc).
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {

#if defined(__aarch64__)
constexpr int kQuantTile = 8;  // largest number of tokens in a tile; Arm's vectors are short, but there are 32 of them
#else
constexpr int kQuantTile = W == 16 ? 6 : 4;
#endif
constexpr int kDenseTile = W == 16 ? 12 : 6;
#if defined(INGOT_INT16_DOT)
constexpr int kInt16Tile = W == 16 ? 8 : 6;
#else
constexpr int kInt16Tile = 0;
#endif
extern const TileFn kQuantTiles[kQuantKindCount][kMaxTile];
extern const TileFn kDenseTiles[kDenseCount][kMaxTile];

void pack_activations(const float* x, int64_t stride, int m, int64_t n_in, const ActLayout& layout, uint8_t* tile);
void finish(const MatmulJob& job, const float* out, int64_t panel, int token, int m);
void matmul_in_int16(const MatmulJob& job, const PanelRange& range);
void matmul(const MatmulJob& job, const PanelRange& range);
void gate_up(const MatmulJob& gate, const MatmulJob& up, int act, const PanelRange& range);

void norm(float* y, const float* x, int64_t n, const float* weight, const float* bias, float eps, bool layer_norm);
void add(float* x, const float* y, int64_t n);
void add_scaled(float* x, const float* y, float factor, int64_t n);
void act_mul(float* y, const float* gate, const float* up, int64_t n, int act);
void act(float* x, int64_t n, int act);
void scale(float* x, int64_t n, float factor, float softcap);
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
