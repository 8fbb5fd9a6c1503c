// The embedding of a vision tower: the residual stream begins as products of the pixels of patches, with the vectors of
// the patches' places.
#pragma once
#include <cstdint>
#include <span>

#include "backend/block.h"

namespace ingot {

// The picture of a step, on the host, until the step is complete.
struct PictureInput {
  std::span<const uint8_t> rgb;      // [height, width, 3], and bytes up to a multiple of four
  std::span<const float> values;     // [3, 256]: of the bytes of each channel
  std::span<const int32_t> places;   // [n_patches]: row * columns + column, in patches
  std::span<const int32_t> rows;     // [n_patches, PatchesBlock::n_mixed] of the table
  std::span<const float> factors;    // as rows
  int width = 0;                     // in pixels
};

struct PatchesBlock {
  Tensor x;          // out: [max_tokens, dim]
  Weight w;          // [dim, 3 * patch * patch]
  Tensor bias;       // [1, dim] or empty
  Tensor positions;  // [max_tokens, dim] or empty: added to the patches, by their positions in the batch
  Tensor table;      // [n_rows, dim] or empty: each patch adds a mix of n_mixed rows
  int n_mixed = 0;
  int patch = 0;  // pixels of a patch's side
  const PictureInput* input = nullptr;
  // Scratch: i32 [max_tokens, packed bytes of a patch]; [3, 256]; i32 [1, max_tokens]; i32 and f32 [max_tokens, n_mixed];
  // [max_tokens, 3 * patch * patch]
  Tensor rgb, values, places, rows, factors, pixels;
  void lay_out(Buffers& buffers);
};
void run_block(const PatchesBlock& b, Backend& backend);

}  // namespace ingot
