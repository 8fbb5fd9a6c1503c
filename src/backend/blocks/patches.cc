#include "backend/blocks/patches.h"

#include "backend/backend.h"

namespace ingot {

void PatchesBlock::lay_out(Buffers& buffers) {
  const int64_t n = buffers.limits().max_tokens;
  buffers.scratch(rgb, DType::kI32, n, (w.n_in + 3) / 4);
  buffers.scratch(values, DType::kF32, 3, 256);
  buffers.scratch(places, DType::kI32, 1, n);
  if (n_mixed > 0) buffers.scratch(rows, DType::kI32, n, n_mixed);
  if (n_mixed > 0) buffers.scratch(factors, DType::kF32, n, n_mixed);
  buffers.scratch_act(pixels, w.n_in);
}

void run_block(const PatchesBlock& b, Backend& backend) {
  CHECK(b.input != nullptr);
  const PictureInput& in = *b.input;
  const Tensor x = backend.token_rows(b.x), pixels = backend.token_rows(b.pixels);
  CHECK_EQ(static_cast<int64_t>(in.places.size()), x.rows);
  const PatchArgs args{.rgb = b.rgb.view(1, static_cast<int64_t>(in.rgb.size() / 4)),
                       .values = b.values,
                       .places = b.places.view(1, x.rows),
                       .width = in.width,
                       .patch = b.patch};
  backend.upload(args.rgb, in.rgb.data());
  backend.upload(args.values, in.values.data());
  backend.upload(args.places, in.places.data());
  backend.cut_patches(pixels, args);
  backend.matmul(x, pixels, b.w, b.bias);
  if (b.positions) backend.add_positions(x, b.positions);
  if (!b.table) return;
  const Tensor rows = b.rows.view(x.rows, b.n_mixed), factors = b.factors.view(x.rows, b.n_mixed);
  backend.upload(rows, in.rows.data());
  backend.upload(factors, in.factors.data());
  backend.add_mixed_rows(x, b.table, rows, factors);
}

}  // namespace ingot
