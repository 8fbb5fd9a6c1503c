#include "backend/blocks/patches.h"

#include "backend/backend.h"

namespace ingot {

void PatchesBlock::lay_out(Buffers& buffers) {
  buffers.scratch_f32(pixels, w.n_in);
  if (adds) buffers.scratch_f32(added, x.cols);
}

void run_block(const PatchesBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), pixels = backend.token_rows(b.pixels);
  const std::span<const float> input = backend.batch().embeddings;
  const auto n_pixels = static_cast<size_t>(pixels.rows * pixels.cols);
  CHECK_EQ(input.size(), n_pixels + (b.adds ? static_cast<size_t>(x.rows * x.cols) : 0));
  backend.upload(pixels, input.data());
  backend.matmul(x, pixels, b.w, b.bias);
  if (b.positions) backend.add_positions(x, b.positions);
  if (!b.adds) return;
  const Tensor added = backend.token_rows(b.added);
  backend.upload(added, input.data() + n_pixels);
  backend.add(x, added);
}

}  // namespace ingot
