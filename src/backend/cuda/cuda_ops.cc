// The ops of CudaBackend: small kernels on rows, and ops that a part of the backend runs. If the part has no kernel for
// an op's sizes, the op's default body runs.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/draft_input.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;

void CudaBackend::embed(Tensor x, const Weight& table, float scale) {
  cuda::embed_rows(x, weights_.ready(table), core_.step.view().tokens, scale, core_.device);
  check_launch("embed_rows");
}

void CudaBackend::norm(Tensor y, Tensor x, const NormArgs& args) {
  cuda::norm_rows(y, x, args, core_.device);
  check_launch("norm_rows");
}

void CudaBackend::add(Tensor x, Tensor y) {
  cuda::add_rows(x, y, false, core_.device);
  check_launch("add_rows");
}

void CudaBackend::add_normed(Tensor x, Tensor y, const NormArgs& args, float factor) {
  if (!cuda::can_add_normed(x, y, args)) return Backend::add_normed(x, y, args, factor);
  cuda::add_normed_rows(x, y, args, factor, core_.device);
  check_launch("add_normed_rows");
}

void CudaBackend::gated_norm(Tensor y, Tensor x, Tensor gate, const NormArgs& args) {
  if (!cuda::can_gated_norm(y, x, gate, args)) return Backend::gated_norm(y, x, gate, args);
  cuda::gated_norm_rows(y, x, gate, args, core_.device);
  check_launch("gated_norm_rows");
}

void CudaBackend::act_mul(Tensor y, Tensor gate, Tensor up, Activation act) {
  cuda::act_mul_rows(y, gate, up, act, core_.device);
  check_launch("act_mul_rows");
}

void CudaBackend::rope_angles(Tensor angles, Tensor inv_freq, float magnitude, Tensor axes) {
  cuda::angles_of_positions(angles, inv_freq, magnitude, axes, core_.step.view(), core_.device);
  check_launch("angles_of_positions");
}

void CudaBackend::rope(Tensor x, int n_heads, const RopeArgs& args) {
  cuda::rope_rows(x, n_heads, args, core_.device);
  check_launch("rope_rows");
}

void CudaBackend::hadamard(Tensor x, int block) {
  cuda::hadamard_rows(x, block, core_.device);
  check_launch("hadamard_rows");
}

void CudaBackend::act(Tensor x, Activation act, Tensor bias) {
  cuda::act_rows(x, act, bias, core_.device);
  check_launch("act_rows");
}

void CudaBackend::add_positions(Tensor x, Tensor table) {
  cuda::add_positions(x, table, core_.step.view().positions, core_.device);
  check_launch("add_positions");
}

void CudaBackend::pool(Tensor y, Tensor x, Pooling pooling) {
  cuda::pool(y, x, core_.step.view().q_start, pooling, core_.device);
  check_launch("pool");
}

void CudaBackend::cut_patches(Tensor y, const PatchArgs& args) {
  cuda::cut_patches(y, args, core_.device);
  check_launch("cut_patches");
}

void CudaBackend::add_mixed_rows(Tensor x, Tensor table, Tensor rows, Tensor factors) {
  cuda::add_mixed_rows(x, table, rows, factors, core_.device);
  check_launch("add_mixed_rows");
}

void CudaBackend::mean_rows(Tensor y, Tensor x) {
  cuda::mean_rows(y, x, core_.device);
  check_launch("mean_rows");
}

void CudaBackend::gather_rows(Tensor y, Tensor x) {
  cuda::gather(y, x, core_.step.view().logit_rows, core_.device);
  check_launch("gather");
}

void CudaBackend::scale(Tensor x, float factor, float softcap) {
  cuda::scale_rows(x, factor, softcap, core_.device);
  check_launch("scale_rows");
}

void CudaBackend::clamp(Tensor x, float low, float high) {
  cuda::clamp_rows(x, low, high, core_.device);
  check_launch("clamp_rows");
}

void CudaBackend::copy(Tensor y, Tensor x) {
  finish_copy();
  cuda::convert(y, x, core_.device);
  check_launch("convert");
}

void CudaBackend::zero(Tensor x) {
  CHECK(x.contiguous());
  const size_t bytes = static_cast<size_t>(x.rows * x.cols) * dtype_bytes(x.dtype);
  check(cudaMemsetAsync(x.data, 0, bytes, core_.device.stream()), "cudaMemsetAsync");
}

void CudaBackend::kv_write(KvCache& kv, int layer, Tensor k, Tensor v) { attention_.write(kv, layer, k, v); }

// The next product is not known here. With many rows, it reads a copy if the model has copies.
void CudaBackend::attention(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args) {
  attention_.attend(y, q, kv, args, /*rounds=*/!core_.deterministic && weights_.has_copies());
}

void CudaBackend::matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) { products_.run(y, x, w, bias); }

void CudaBackend::wkv7(const Wkv7Args& args) { recurrence_.wkv7(args); }

void CudaBackend::matmuls(std::span<const Product> products) { products_.run_all(products); }

void CudaBackend::matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) {
  cuda::Products::Input input{x};
  products_.run(residual, input, w, bias, /*accumulate=*/true);
}

void CudaBackend::norm_matmul(Tensor y, Tensor x, Tensor normed, const NormArgs& args, const Weight& w, Tensor bias) {
  cuda::Products::Input input = products_.input_of(x, normed, args, w);
  products_.run(y, input, w, bias, /*accumulate=*/false);
}

void CudaBackend::gate_up(const GateUpArgs& args) { products_.gate_up(args); }

void CudaBackend::qkv(const QkvArgs& args) {
  if (!products_.qkv(args)) Backend::qkv(args);
}

void CudaBackend::plain_layers(const PlainLayersBlock& block) {
  if (!fused_.run(block)) Backend::plain_layers(block);
}

// One launch for the embedding and the norms, one for the projection.
void CudaBackend::draft_input(const DraftInputBlock& b) {
  const Tensor x = token_rows(b.x), pair = token_rows(b.pair), hidden = b.hidden ? token_rows(b.hidden) : x;
  if (!cuda::can_draft_pair(b, pair, hidden)) return Backend::draft_input(b);
  weights_.ready(b.table);
  cuda::draft_pair(b, pair, hidden, core_.step.view().tokens, core_.device);
  check_launch("draft_pair");
  matmul(x, pair, b.project, {});
}

void CudaBackend::moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) {
  experts_.route_logits(ids, weights, logits, args);
}

void CudaBackend::moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) {
  experts_.matmul(y, x, w, ids, bias);
}

void CudaBackend::moe_combine(Tensor residual, Tensor y, Tensor weights) { experts_.combine(residual, y, weights); }

void CudaBackend::moe(const MoeArgs& args) {
  if (!experts_.run(args)) Backend::moe(args);
}

void CudaBackend::scale_by_position(Tensor x, const PositionScale& args) {
  cuda::scale_by_position_rows(x, args, core_.step.view().positions, core_.device);
  check_launch("scale_by_position_rows");
}

void CudaBackend::scale_groups(Tensor x, Tensor factors, GroupFactor kind) {
  cuda::scale_group_rows(x, factors, kind, core_.device);
  check_launch("scale_group_rows");
}

void CudaBackend::xielu(Tensor x, const Xielu& args) {
  cuda::xielu_rows(x, args, core_.device);
  check_launch("xielu_rows");
}

void CudaBackend::match_size(Tensor y, Tensor x) {
  cuda::match_size_rows(y, x, core_.device);
  check_launch("match_size_rows");
}

void CudaBackend::mix_streams(Tensor x, Tensor streams, Tensor coefs) {
  cuda::mix_stream_rows(x, streams, coefs, core_.device);
  check_launch("mix_stream_rows");
}

void CudaBackend::correct_streams(Tensor x, Tensor predicted, Tensor streams, Tensor coefs) {
  cuda::correct_stream_rows(x, predicted, streams, coefs, core_.device);
  check_launch("correct_stream_rows");
}

void CudaBackend::keep_above(Tensor x, float deviations) {
  cuda::keep_above_rows(x, deviations, core_.device);
  check_launch("keep_above_rows");
}

void CudaBackend::gate(Tensor x, Tensor gate) { recurrence_.gate(x, gate); }

void CudaBackend::short_conv(const ShortConvArgs& args) { recurrence_.short_conv(args); }

void CudaBackend::delta_rule(const DeltaRuleArgs& args) { recurrence_.delta_rule(args); }

void CudaBackend::ssm_scan(const SsmScanArgs& args) { recurrence_.ssm_scan(args); }
void CudaBackend::selective_scan(const SelectiveScanArgs& args) { recurrence_.selective_scan(args); }
void CudaBackend::rg_lru(const RgLruArgs& args) { recurrence_.rg_lru(args); }
void CudaBackend::kda_inputs(const KdaInputsArgs& args) { recurrence_.kda_inputs(args); }
void CudaBackend::rank_one_rule(const RankOneRuleArgs& args) { recurrence_.rank_one_rule(args); }
void CudaBackend::mix_tokens(const MixTokensArgs& args) { recurrence_.mix_tokens(args); }
void CudaBackend::wkv7_inputs(const Wkv7InputsArgs& args) { recurrence_.wkv7_inputs(args); }
void CudaBackend::wkv7_outputs(const Wkv7OutputsArgs& args) { recurrence_.wkv7_outputs(args, args.y); }

void CudaBackend::connect(std::shared_ptr<Communicator> ranks) {
  rank_ops_.connect(ranks);
  Backend::connect(std::move(ranks));
}

void CudaBackend::all_reduce(Tensor x) { rank_ops_.all_reduce(x); }

void CudaBackend::all_gather(Tensor y, Tensor x) { rank_ops_.all_gather(y, x); }

void CudaBackend::add_reduced(Tensor x, Tensor y, Tensor norm_out, const NormArgs& args) {
  if (!rank_ops_.add_reduced(x, y, norm_out, args)) Backend::add_reduced(x, y);
}

bool CudaBackend::norms_sums(const Tensor& x, const NormArgs& args) const { return rank_ops_.norms_sums(x, args); }

}  // namespace ingot
