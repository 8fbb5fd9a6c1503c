#include "backend/blocks/frames.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void FramesBlock::lay_out(Buffers& buffers) {
  buffers.scratch_f32(frames, n_features, 2);
  buffers.scratch_f32(near, 3 * int64_t{n_features}, 2);
  buffers.scratch_f32(hidden, x.cols, 2);
  buffers.scratch_f32(near_hidden, 3 * x.cols);
}

// The rows of a convolution's product for one window: for each frame, those before, at and after it, side by side.
static void lay_side_by_side(Backend& backend, const Tensor& near /* out [n, 3 * cols] */,
                             const Tensor& frames /* [n, cols] */) {
  const int64_t n = frames.rows, cols = frames.cols;
  backend.copy(near.slice_rows(1, n - 1).slice_cols(0, cols), frames.slice_rows(0, n - 1));
  backend.copy(near.slice_cols(cols, cols), frames);
  backend.copy(near.slice_rows(0, n - 1).slice_cols(2 * cols, cols), frames.slice_rows(1, n - 1));
}

void run_block(const FramesBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x);
  const int64_t n_rows = std::min<int64_t>(b.n_rows, x.rows), n_windows = x.rows / n_rows, n_frames = 2 * n_rows,
                n = n_windows * n_frames;
  const std::span<const float> input = backend.batch().embeddings;
  CHECK_EQ(static_cast<int64_t>(input.size()), n * b.n_features);
  CHECK_EQ(n_windows * n_rows, x.rows);
  const Tensor frames = b.frames.slice_rows(0, n), near = b.near.slice_rows(0, n), hidden = b.hidden.slice_rows(0, n),
               near_hidden = backend.token_rows(b.near_hidden);
  backend.upload(frames, input.data());
  backend.zero(near);
  for (int64_t w = 0; w < n_windows; ++w)
    lay_side_by_side(backend, near.slice_rows(w * n_frames, n_frames), frames.slice_rows(w * n_frames, n_frames));
  // In two halves, so that no product has more rows than the stream.
  for (const int64_t first : {int64_t{0}, x.rows})
    backend.matmul(hidden.slice_rows(first, x.rows), near.slice_rows(first, x.rows), b.w1, b.b1);
  backend.act(hidden, b.act);
  // Row t sees the frames 2t - 1, 2t and 2t + 1: a pair of frames, and the last one of the pair before.
  const Tensor pairs = hidden.reshape(x.rows, 2 * x.cols);
  backend.zero(near_hidden);
  backend.copy(near_hidden.slice_cols(x.cols, 2 * x.cols), pairs);
  for (int64_t w = 0; w < n_windows; ++w)
    backend.copy(near_hidden.slice_rows(w * n_rows + 1, n_rows - 1).slice_cols(0, x.cols),
                 pairs.slice_rows(w * n_rows, n_rows - 1).slice_cols(x.cols, x.cols));
  backend.matmul(x, near_hidden, b.w2, b.b2);
  backend.act(x, b.act);
  backend.add_positions(x, b.positions);
}

}  // namespace ingot
