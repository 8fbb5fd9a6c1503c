#include "backend/buffers.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

void Buffers::begin_block() { scratch_.at = 0; }

void Buffers::place(Tensor& t, Arena& arena, DType dtype, int64_t rows, int64_t cols) {
  t = {arena.base == nullptr ? nullptr : arena.base + arena.at, dtype, rows, cols, cols};
  const size_t bytes = static_cast<size_t>(rows * cols) * dtype_bytes(dtype);
  arena.at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  arena.peak = std::max(arena.peak, arena.at);
}

void Buffers::scratch_f32(Tensor& t, int64_t cols, int64_t rows_a_token) {
  limits_.max_width = std::max(limits_.max_width, static_cast<int>(cols));
  scratch(t, DType::kF32, limits_.max_tokens * rows_a_token, cols);
}

void Buffers::scratch_act(Tensor& t, int64_t cols, int64_t rows_a_token) {
  limits_.max_width = std::max(limits_.max_width, static_cast<int>(cols));
  scratch(t, act_, limits_.max_tokens * rows_a_token, cols);
}

void Buffers::has_attention(const AttentionArgs& a) {
  limits_.max_heads = std::max(limits_.max_heads, a.n_heads);
  limits_.head_dim = std::max(limits_.head_dim, a.head_dim);
}

void Buffers::has_experts(int64_t rows_a_token, int64_t widest) {
  constexpr int64_t kRowPadding = 64;
  const int64_t rows = limits_.max_tokens * rows_a_token;
  limits_.max_expert_rows = std::max(limits_.max_expert_rows, rows);
  limits_.max_expert_floats = std::max(limits_.max_expert_floats, rows * (widest + kRowPadding));
}

size_t Buffers::bytes() const { return kept_.peak + scratch_.peak; }

void Buffers::allocate(Backend& backend) {
  for (Arena* arena : {&kept_, &scratch_}) {
    // Backends count rows and columns in ints, so the arena has rows of this many bytes.
    constexpr size_t kRow = kAlignment;
    if (arena->peak == 0) continue;
    const auto rows = static_cast<int64_t>((arena->peak + kRow - 1) / kRow);
    arena->base = static_cast<char*>(backend.alloc(DType::kI32, rows, kRow / 4).data);
    arena->at = 0;
  }
}

}  // namespace ingot
