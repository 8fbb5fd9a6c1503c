#include "backend/blocks/experts.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void ExpertsBlock::lay_out(Buffers& buffers) {
  const int64_t n_used = route.n_used, widest = std::max<int64_t>(ffn_dim, (shared_dim + n_used - 1) / n_used);
  const int64_t n_rows = buffers.limits().max_tokens;
  buffers.has_experts(n_used, std::max({static_cast<int>(x.cols), ffn_dim, shared_dim}));
  buffers.scratch(logits, DType::kF32, n_rows, n_experts);
  buffers.scratch(ids, DType::kI32, n_rows, n_used);
  buffers.scratch(weights, DType::kF32, n_rows, n_used);
  buffers.scratch_act(gate, widest, n_used);
  buffers.scratch_act(up, widest, n_used);
  buffers.scratch_act(out, std::max<int64_t>(x.cols, latent_dim), n_used);
  if (shared_dim > 0) buffers.scratch_act(hidden, shared_dim);
  if (shared_scale != 1) buffers.scratch_f32(branch, x.cols);
  if (sums) buffers.scratch_f32(sum, x.cols);
  if (latent_dim > 0) buffers.scratch_act(latent, latent_dim);
  if (latent_dim > 0) buffers.scratch_f32(latent_sum, latent_dim);
}

// Adds the output of the shared expert to x.
static void shared_expert(Backend& backend, const ExpertsBlock& b, const Tensor& x, const Tensor& norm_out) {
  const int64_t n = x.rows, dim = b.shared_dim;
  if (!b.shared_router) {
    const Tensor hidden = backend.token_rows(b.hidden);
    if (b.shared_gate) {
      backend.gate_up({.y = hidden, .x = norm_out, .w_gate = &b.shared_gate, .w_up = &b.shared_up, .act = b.act});
    } else {
      backend.matmul(hidden, norm_out, b.shared_up);
      backend.act(hidden, b.act);
    }
    return join(backend, {.scale = b.shared_scale}, x, backend.token_rows(b.branch), hidden, b.shared_down, {}, {});
  }
  backend.moe({.residual = x,
               .x = norm_out,
               .w_router = &b.shared_router,
               .route = {.scoring = Scoring::kSigmoid, .scale = b.shared_scale},
               .w_gate = &b.shared_gate,
               .w_up = &b.shared_up,
               .w_down = &b.shared_down,
               .act = b.act,
               .logits = b.logits.view(n, 1),
               .ids = b.ids.view(n, 1),
               .weights = b.weights.view(n, 1),
               .gate = b.gate.view(n, dim),
               .up = b.up.view(n, dim),
               .out = b.out.view(n, x.cols)});
}

// Experts whose inputs are scaled: both products are linear in the input, so the scale moves behind the gate's product,
// and for up to the output.
static void scaled_experts(Backend& backend, const ExpertsBlock& b, const Tensor& to, const Tensor& norm_out) {
  const Tensor x = backend.token_rows(b.x), logits = backend.token_rows(b.logits), ids = backend.token_rows(b.ids),
               weights = backend.token_rows(b.weights);
  const int64_t rows = x.rows * b.route.n_used;
  const Tensor gate = b.gate.view(rows, b.ffn_dim), up = b.up.view(rows, b.ffn_dim), out = b.out.view(rows, x.cols);
  backend.norm_matmul(logits, stream_of(backend, b), norm_out, b.norm, b.w_router, b.b_router);
  backend.moe_route(ids, weights, logits, b.route);
  backend.moe_matmul(gate, norm_out, b.w_gate, ids, b.b_gate);
  backend.moe_matmul(up, norm_out, b.w_up, ids, b.b_up);
  backend.scale_groups(gate, weights.reshape(rows, 1), GroupFactor::kAsIs);
  backend.act_mul(gate, gate, up, b.act);
  backend.moe_matmul(out, gate, b.w_down, ids, b.b_down);
  backend.moe_combine(to, out, weights);
}

// Experts without a gate, of the stream or of a projection of the stream. The router always reads the stream.
static void ungated_experts(Backend& backend, const ExpertsBlock& b, const Tensor& to, const Tensor& norm_out) {
  const Tensor logits = backend.token_rows(b.logits), ids = backend.token_rows(b.ids),
               weights = backend.token_rows(b.weights), latent = backend.token_rows(b.latent),
               sum = backend.token_rows(b.latent_sum);
  const int64_t rows = norm_out.rows * b.route.n_used;
  const Tensor up = b.up.view(rows, b.ffn_dim), out = b.out.view(rows, b.w_latent ? b.latent_dim : to.cols);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(logits, input, norm_out, first_norm, b.w_router, b.b_router);
  backend.moe_route(ids, weights, logits, b.route);
  if (b.w_latent) backend.matmul(latent, norm_out, b.w_latent);
  backend.moe_matmul(up, b.w_latent ? latent : norm_out, b.w_up, ids, b.b_up);
  backend.act(up, b.act);
  backend.moe_matmul(out, up, b.w_down, ids, b.b_down);
  if (!b.w_latent) return backend.moe_combine(to, out, weights);
  backend.zero(sum);
  backend.moe_combine(sum, out, weights);
  backend.matmul_add(to, sum, b.w_from_latent);
}

MoeArgs moe_args(const ExpertsBlock& b, Backend& backend) {
  const int64_t rows = backend.token_rows(b.x).rows * b.route.n_used;
  return {.w_router = &b.w_router,
          .b_router = b.b_router,
          .route = b.route,
          .w_gate = &b.w_gate,
          .w_up = &b.w_up,
          .w_down = &b.w_down,
          .b_gate = b.b_gate,
          .b_up = b.b_up,
          .b_down = b.b_down,
          .act = b.act,
          .logits = backend.token_rows(b.logits),
          .ids = backend.token_rows(b.ids),
          .weights = backend.token_rows(b.weights),
          .gate = b.gate.view(rows, b.ffn_dim),
          .up = b.up.view(rows, b.ffn_dim),
          .out = b.out.view(rows, b.x.cols)};
}

void run_block(const ExpertsBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed);
  const Tensor to = b.sums ? backend.token_rows(b.sum) : x;
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  if (b.sums) backend.zero(to);
  if (b.scales_input) {
    scaled_experts(backend, b, to, norm_out);
  } else if (!b.w_gate) {
    ungated_experts(backend, b, to, norm_out);
  } else {
    MoeArgs args = moe_args(b, backend);
    args.residual = to, args.x = input, args.norm = first_norm, args.normed = norm_out;
    backend.moe(args);
  }
  if (b.shared_up) shared_expert(backend, b, to, norm_out);
  if (b.sums) backend.add_reduced(x, to, norm_out, b.next_norm);
}

}  // namespace ingot
