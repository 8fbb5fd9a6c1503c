#include "backend/blocks/altup.h"

#include "backend/backend.h"

namespace ingot {
namespace {

void route_tokens(Backend& backend, const AltUpRouter& router, const Tensor& route /* out [n, n_streams] */,
                  const Tensor& x /* [n, dim] */, const Tensor& norm_out /* [n, dim] */) {
  backend.norm_matmul(route, x, norm_out, router.norm, router.w);
  backend.scale(route, 1.0f / static_cast<float>(x.cols), 1);  // a soft cap of 1 is tanh
}

Tensor stream_of(const Tensor& streams, int i, int64_t dim) { return streams.slice_cols((i - 1) * dim, dim); }

}  // namespace

void AltUpStartBlock::lay_out(Buffers& buffers) {
  buffers.has_experts(n_ids, static_cast<int>(x.cols));
  buffers.scratch_act(in, x.cols);
  buffers.scratch_act(rows, x.cols, n_ids);
}

void run_block(const AltUpStartBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), in = backend.token_rows(b.in), streams = backend.token_rows(b.streams),
               ids = backend.token_rows(b.head_ids);
  const int64_t n = x.rows * b.n_ids;
  const Tensor rows = b.rows.view(n, x.cols), other = streams.reshape(n, x.cols);
  backend.copy(in, x);
  backend.moe_matmul(rows, in, b.project, ids, {});
  backend.copy(other, rows);
  backend.match_size(other, x);
}

void AltUpEndBlock::lay_out(Buffers& buffers) {
  buffers.has_experts(n_ids, static_cast<int>(x.cols));
  buffers.scratch_act(rows, x.cols, n_ids);
  buffers.scratch_act(out, x.cols, n_ids);
}

void run_block(const AltUpEndBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), streams = backend.token_rows(b.streams),
               ids = backend.token_rows(b.head_ids);
  const int64_t n = x.rows * b.n_ids;
  const Tensor rows = b.rows.view(n, x.cols), out = b.out.view(n, x.cols), other = streams.reshape(n, x.cols);
  backend.copy(rows, other);
  backend.moe_matmul(out, rows, b.project, ids, {});
  backend.copy(other, out);
  backend.match_size(other, x);
  for (int i = 1; i <= b.n_ids; ++i) backend.add(x, stream_of(streams, i, x.cols));
  backend.scale(x, 1.0f / static_cast<float>(b.n_ids + 1), 0);
}

void AltUpPredictBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(in, x.cols);
  buffers.scratch_f32(route, n_streams);
  buffers.scratch_f32(coefs, int64_t{n_streams} * n_streams);
}

void run_block(const AltUpPredictBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), route = backend.token_rows(b.route), coefs = backend.token_rows(b.coefs);
  route_tokens(backend, b.router, route, x, backend.token_rows(b.in));
  backend.matmul(coefs, route, b.w_coefs);
  backend.mix_streams(x, backend.token_rows(b.streams), coefs);
}

void AltUpCorrectBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(in, x.cols);
  buffers.scratch_f32(route, n_streams);
  buffers.scratch_f32(coefs, n_streams);
  buffers.scratch_f32(gate, width);
  buffers.scratch_f32(branch, x.cols);
}

void run_block(const AltUpCorrectBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), route = backend.token_rows(b.route), coefs = backend.token_rows(b.coefs),
               streams = backend.token_rows(b.streams), gate = backend.token_rows(b.gate),
               branch = backend.token_rows(b.branch);
  route_tokens(backend, b.router, route, x, backend.token_rows(b.in));
  backend.matmul(coefs, route, b.w_coefs);
  backend.correct_streams(x, backend.token_rows(b.fork), streams, coefs);

  backend.copy(branch, x);
  if (b.x_scale) backend.scale_groups(branch, b.x_scale, GroupFactor::kAsIs);
  backend.matmul(gate, branch, b.w_gate);
  backend.act_mul(gate, gate, backend.token_rows(b.layer_inputs).slice_cols(int64_t{b.layer} * b.width, b.width),
                  b.act);
  backend.matmul(branch, gate, b.w_out);
  backend.norm(branch, branch, b.post_norm);
  for (int i = 1; i < b.n_streams; ++i) backend.add(stream_of(streams, i, x.cols), branch);
}

}  // namespace ingot
