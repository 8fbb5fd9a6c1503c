#include "backend/blocks/dense_experts.h"

#include "backend/backend.h"

namespace ingot {

void DenseExpertsBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(normed, x.cols);
  dense.x = experts.x = x;
  dense.normed = experts.normed = normed;
  dense.join.has_post_norm = true;  // requests the branch
  dense.lay_out(buffers);
  experts.sums = true;  // requests the sum
  experts.lay_out(buffers);
  buffers.scratch_f32(router_rows, x.cols);
}

void run_block(const DenseExpertsBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               hidden = backend.token_rows(b.dense.hidden), branch = backend.token_rows(b.dense.branch),
               sum = backend.token_rows(b.experts.sum), router_rows = backend.token_rows(b.router_rows);
  const FeedForwardBlock& d = b.dense;
  backend.gate_up(
      {.y = hidden, .x = x, .norm = d.norm, .normed = norm_out, .w_gate = &d.w_gate, .w_up = &d.w_up, .act = d.act});
  backend.matmul(branch, hidden, d.w_down);
  if (b.join.sums) backend.all_reduce(branch);
  backend.norm(branch, branch, b.dense_post_norm);

  backend.norm(router_rows, x, b.router_norm);
  backend.zero(sum);
  MoeArgs args = moe_args(b.experts, backend);
  args.residual = sum, args.x = x, args.norm = b.experts.norm, args.normed = norm_out, args.router_x = router_rows;
  backend.moe(args);
  if (b.join.sums) backend.all_reduce(sum);
  backend.add_normed(branch, sum, b.experts_post_norm);
  b.join.has_post_norm ? backend.add_normed(x, branch, b.join.post_norm) : backend.add(x, branch);
}

}  // namespace ingot
