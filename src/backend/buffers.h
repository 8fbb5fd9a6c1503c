// Buffers: assigns memory to the buffers of a list of blocks. The first pass measures, and the second sets addresses.
// Buffers from keep() get separate memory. The scratch buffers of all blocks start at the same address.
#pragma once
#include <algorithm>

#include "backend/batch.h"
#include "backend/ops.h"

namespace ingot {

class Backend;

class Buffers {
 public:
  Buffers(DType act, const StepLimits& limits) : act_(act), limits_(limits) {}

  void keep(Tensor& t, DType dtype, int64_t rows, int64_t cols) { place(t, kept_, dtype, rows, cols); }
  void begin_block();
  // scratch_f32 and scratch_act: [max_tokens * rows_a_token, cols], in f32 or in the type of activations.
  void scratch_f32(Tensor& t, int64_t cols, int64_t rows_a_token = 1);
  void scratch_act(Tensor& t, int64_t cols, int64_t rows_a_token = 1);
  void scratch(Tensor& t, DType dtype, int64_t rows, int64_t cols) { place(t, scratch_, dtype, rows, cols); }

  // Limits from which backends compute the size of their own scratch.
  void has_attention(const AttentionArgs& a);
  void widest(int64_t cols) { limits_.max_width = std::max(limits_.max_width, static_cast<int>(cols)); }
  void has_rope_axes() { limits_.n_rope_axes = kRopeAxes; }
  void has_experts(int64_t rows_a_token, int64_t widest);
  const StepLimits& limits() const { return limits_; }
  DType act() const { return act_; }

  size_t bytes() const;
  void allocate(Backend& backend);  // the measured sizes; the next pass sets addresses

 private:
  struct Arena {
    char* base = nullptr;
    size_t at = 0, peak = 0;
  };
  void place(Tensor& t, Arena& arena, DType dtype, int64_t rows, int64_t cols);

  DType act_;
  StepLimits limits_;
  Arena kept_, scratch_;
};

}  // namespace ingot
