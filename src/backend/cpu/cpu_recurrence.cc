// Recurrent layers. The convolution's tasks are (sequence, some channels); the delta rule's tasks are (sequence, head,
// some columns of its matrix). A task processes all tokens of its sequence in order, so a token's numbers never depend
// on the batch.
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_states.h"

namespace ingot {

using cpu::CpuStates;
using cpu::kConvChannels;
using cpu::kStateCols;

size_t CpuBackend::state_bytes(const StateShape& shape) const { return CpuStates::bytes_of(shape); }

std::unique_ptr<StateCache> CpuBackend::make_states(const StateShape& shape) {
  auto states = std::make_unique<CpuStates>(shape);
  cpu::place_in_turn(states->memory, pool_.nodes());
  allocated_ += states->memory.size();
  return states;
}

void CpuBackend::short_conv(const ShortConvArgs& a) {
  const auto& states = static_cast<const CpuStates&>(*a.states);
  const Tensor &x = a.x, &weight = a.weight;
  const int buffer = a.buffer;
  const int64_t n_channels = x.cols;
  CHECK(weight.cols >= 2 && weight.cols <= cpu::kMaxConvWidth && weight.rows == n_channels);
  CHECK_EQ(states.buffer(buffer).size(), (weight.cols - 1) * n_channels);
  const int64_t n_parts = (n_channels + kConvChannels - 1) / kConvChannels;
  for_rows(batch().n_seqs() * n_parts, 8 * x.rows * x.cols, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / n_parts), in = batch().state_in[seq];
    const int64_t first = i % n_parts * kConvChannels, t = batch().q_start[seq];
    recurrence_.short_conv({.x = x.f32(t) + first,
                            .x_stride = x.stride,
                            .in_gate = a.in_gate ? a.in_gate.f32(t) + first : nullptr,
                            .out_gate = a.out_gate ? a.out_gate.f32(t) + first : nullptr,
                            .in_stride = a.in_gate.stride,
                            .out_stride = a.out_gate.stride,
                            .bias = a.bias ? a.bias.f32() + first : nullptr,
                            .silu = a.silu,
                            .weight = weight.f32(first),
                            .width = static_cast<int>(weight.cols),
                            .before = in < 0 ? nullptr : states.data(in, buffer) + first,
                            .after = states.data(batch().state_out[seq], buffer) + first,
                            .state_stride = n_channels,
                            .n_tokens = batch().q_len(seq),
                            .n_channels = static_cast<int>(std::min<int64_t>(kConvChannels, n_channels - first))});
  });
}

void CpuBackend::gate(Tensor x, Tensor gate) {
  for_rows(x.rows, 4 * x.rows * x.cols, [&](int64_t t, int) { recurrence_.gate(x.f32(t), gate.f32(t), x.cols); });
}

// Prepares the inputs of the rule in place: scales q and k, and writes the factor of the old matrix to alpha and the
// share of the correction to beta.
void CpuBackend::prepare_delta(const DeltaRuleArgs& a) {
  const StateBuffer& s = a.states->buffer(a.buffer);
  const int n_heads = static_cast<int>(s.count), key_dim = static_cast<int>(s.rows);
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
  for_rows(a.y.rows, a.y.rows * (4 * a.n_key_heads * key_dim + 16 * n_heads), [&](int64_t t, int) {
    for (int h = 0; h < 2 * a.n_key_heads; ++h)
      recurrence_.unit_length(a.qkv.f32(t) + int64_t{h} * key_dim, key_dim, h < a.n_key_heads ? q_scale : 1.0f);
    recurrence_.decay_steps({.step = a.alpha.f32(t),
                             .keep = a.alpha.f32(t),
                             .bias = a.dt.f32(),
                             .decay = a.decay.f32(),
                             .low = 0,
                             .high = std::numeric_limits<float>::infinity(),
                             .n = n_heads});
    recurrence_.scaled_sigmoid(a.beta.f32(t), a.share, n_heads);
  });
}

void CpuBackend::delta_rule(const DeltaRuleArgs& a) {
  const auto& states = static_cast<const CpuStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  CHECK(s.by_column);
  const int64_t n_heads = s.count, key_dim = s.rows, value_dim = s.cols, n_strips = CpuStates::n_strips(s);
  const int64_t keys = a.n_key_heads * key_dim, per_seq = n_heads * n_strips;
  CHECK_EQ(a.qkv.cols, 2 * keys + n_heads * value_dim);
  prepare_delta(a);
  for_rows(batch().n_seqs() * per_seq, 4 * a.y.rows * a.y.cols * key_dim, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / per_seq), in = batch().state_in[seq];
    const int64_t h = i % per_seq / n_strips, strip = i % n_strips, t = batch().q_start[seq];
    const int64_t key_head = a.tiled ? h % a.n_key_heads : h / (n_heads / a.n_key_heads),
                  column = h * value_dim + strip * kStateCols;
    const float* row = a.qkv.f32(t);
    recurrence_.delta_rule({.q = row + key_head * key_dim,
                            .k = row + keys + key_head * key_dim,
                            .v = row + 2 * keys + column,
                            .qkv_stride = a.qkv.stride,
                            .keep = a.alpha.f32(t) + h,
                            .beta = a.beta.f32(t) + h,
                            .gate_stride = a.alpha.stride,
                            .before = in < 0 ? nullptr : states.strip(in, a.buffer, h, strip),
                            .after = states.strip(batch().state_out[seq], a.buffer, h, strip),
                            .y = a.y.f32(t) + column,
                            .y_stride = a.y.stride,
                            .n_tokens = batch().q_len(seq),
                            .key_dim = static_cast<int>(key_dim),
                            .n_cols = static_cast<int>(std::min<int64_t>(kStateCols, value_dim - strip * kStateCols))});
  });
}

void CpuBackend::ssm_scan(const SsmScanArgs& a) {
  const auto& states = static_cast<const CpuStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  CHECK(s.by_column);
  const int64_t n_heads = s.count, state_dim = s.rows, head_dim = s.cols, n_strips = CpuStates::n_strips(s),
                per_seq = n_heads * n_strips;
  CHECK_EQ(a.x.cols, n_heads * head_dim);
  CHECK_EQ(a.b.cols, a.n_groups * state_dim);
  for_rows(a.y.rows, 8 * a.y.rows * n_heads, [&](int64_t t, int) {
    recurrence_.decay_steps({.step = a.dt.f32(t),
                             .keep = a.keep.f32(t),
                             .bias = a.dt_bias.f32(),
                             .decay = a.decay.f32(),
                             .low = a.min_step,
                             .high = a.max_step,
                             .n = n_heads});
  });
  for_rows(batch().n_seqs() * per_seq, 4 * a.y.rows * a.y.cols * state_dim, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / per_seq), in = batch().state_in[seq];
    const int64_t h = i % per_seq / n_strips, strip = i % n_strips, t = batch().q_start[seq],
                  column = h * head_dim + strip * kStateCols, row = h / (n_heads / a.n_groups) * state_dim;
    recurrence_.ssm_scan({.x = a.x.f32(t) + column,
                          .b = a.b.f32(t) + row,
                          .c = a.c.f32(t) + row,
                          .x_stride = a.x.stride,
                          .b_stride = a.b.stride,
                          .c_stride = a.c.stride,
                          .keep = a.keep.f32(t) + h,
                          .step = a.dt.f32(t) + h,
                          .keep_stride = a.keep.stride,
                          .step_stride = a.dt.stride,
                          .skip = a.skip.f32()[h],
                          .before = in < 0 ? nullptr : states.strip(in, a.buffer, h, strip),
                          .after = states.strip(batch().state_out[seq], a.buffer, h, strip),
                          .y = a.y.f32(t) + column,
                          .y_stride = a.y.stride,
                          .n_tokens = batch().q_len(seq),
                          .state_dim = static_cast<int>(state_dim),
                          .n_cols = static_cast<int>(std::min<int64_t>(kStateCols, head_dim - strip * kStateCols))});
  });
}

// A task is some channels of a sequence.
void CpuBackend::selective_scan(const SelectiveScanArgs& a) {
  const auto& states = static_cast<const CpuStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  const int64_t n_channels = s.cols, state_dim = s.rows, n_strips = CpuStates::n_strips(s);
  CHECK(s.by_column && a.decay.stride == state_dim && state_dim <= cpu::kMaxSelectiveDim);
  CHECK_EQ(a.x.cols, n_channels);
  CHECK_EQ(a.b.cols, state_dim);
  for_rows(batch().n_seqs() * n_strips, 16 * a.y.rows * n_channels * state_dim, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / n_strips), in = batch().state_in[seq];
    const int64_t strip = i % n_strips, first = strip * kStateCols, t = batch().q_start[seq];
    recurrence_.selective_scan({.x = a.x.f32(t) + first,
                                .dt = a.dt.f32(t) + first,
                                .b = a.b.f32(t),
                                .c = a.c.f32(t),
                                .gate = a.gate ? a.gate.f32(t) + first : nullptr,
                                .x_stride = a.x.stride,
                                .dt_stride = a.dt.stride,
                                .b_stride = a.b.stride,
                                .c_stride = a.c.stride,
                                .gate_stride = a.gate.stride,
                                .decay = a.decay.f32(first),
                                .dt_bias = a.dt_bias.f32() + first,
                                .skip = a.skip.f32() + first,
                                .before = in < 0 ? nullptr : states.strip(in, a.buffer, 0, strip),
                                .after = states.strip(batch().state_out[seq], a.buffer, 0, strip),
                                .y = a.y.f32(t) + first,
                                .y_stride = a.y.stride,
                                .n_tokens = batch().q_len(seq),
                                .state_dim = static_cast<int>(state_dim),
                                .n_cols = static_cast<int>(std::min<int64_t>(kStateCols, n_channels - first))});
  });
}

void CpuBackend::kda_inputs(const KdaInputsArgs& args) {
  const int64_t n_heads = args.beta.cols, dim = args.q.cols / n_heads;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for_rows(args.q.rows, 40 * args.q.rows * args.q.cols, [&](int64_t t, int) {
    for (int64_t h = 0; h < n_heads; ++h) {
      float *q = args.q.f32(t) + h * dim, *k = args.k.f32(t) + h * dim, *keep = args.keep.f32(t) + h * dim,
            *a = args.a.f32(t) + h * dim, *b = args.b.f32(t) + h * dim;
      recurrence_.unit_length(q, dim, q_scale);
      recurrence_.unit_length(k, dim, 1);
      recurrence_.keep_factors(keep, args.dt.f32() + h * dim, args.decay.f32()[h], dim);
      const float beta = 1.0f / (1.0f + std::exp(-args.beta.f32(t)[h]));
      for (int64_t i = 0; i < dim; ++i) a[i] = keep[i] * k[i], k[i] *= beta, b[i] = -k[i];
    }
  });
}

void CpuBackend::rank_one_rule(const RankOneRuleArgs& args) {
  const auto& states = static_cast<const CpuStates&>(*args.states);
  const StateBuffer& s = states.buffer(args.buffer);
  CHECK(s.by_column);
  const int64_t n_heads = s.count, key_dim = s.rows, value_dim = s.cols, n_strips = CpuStates::n_strips(s),
                per_seq = n_heads * n_strips;
  CHECK_EQ(args.q.cols, n_heads * key_dim);
  CHECK_EQ(args.v.cols, n_heads * value_dim);
  for_rows(batch().n_seqs() * per_seq, 6 * args.y.rows * args.y.cols * key_dim, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / per_seq), in = batch().state_in[seq];
    const int64_t h = i % per_seq / n_strips, strip = i % n_strips, t = batch().q_start[seq], row = h * key_dim,
                  column = h * value_dim + strip * kStateCols;
    recurrence_.rank_one_rule(
        {.q = args.q.f32(t) + row,
         .keep = args.keep.f32(t) + row,
         .a = args.a.f32(t) + row,
         .b = args.b.f32(t) + row,
         .k = args.k.f32(t) + row,
         .v = args.v.f32(t) + column,
         .q_stride = args.q.stride,
         .keep_stride = args.keep.stride,
         .a_stride = args.a.stride,
         .b_stride = args.b.stride,
         .k_stride = args.k.stride,
         .v_stride = args.v.stride,
         .before = in < 0 ? nullptr : states.strip(in, args.buffer, h, strip),
         .after = states.strip(batch().state_out[seq], args.buffer, h, strip),
         .y = args.y.f32(t) + column,
         .y_stride = args.y.stride,
         .n_tokens = batch().q_len(seq),
         .key_dim = static_cast<int>(key_dim),
         .n_cols = static_cast<int>(std::min<int64_t>(kStateCols, value_dim - strip * kStateCols))});
  });
}

// A task is some channels of a sequence.
void CpuBackend::rg_lru(const RgLruArgs& a) {
  const auto& states = static_cast<const CpuStates&>(*a.states);
  const int64_t n_channels = a.x.cols, n_parts = (n_channels + kConvChannels - 1) / kConvChannels;
  CHECK_EQ(states.buffer(a.buffer).size(), n_channels);
  for_rows(batch().n_seqs() * n_parts, 64 * a.x.rows * n_channels, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / n_parts), in = batch().state_in[seq];
    const int64_t first = i % n_parts * kConvChannels, t = batch().q_start[seq];
    recurrence_.rg_lru({.x = a.x.f32(t) + first,
                        .input_gate = a.input_gate.f32(t) + first,
                        .decay_gate = a.decay_gate.f32(t) + first,
                        .x_stride = a.x.stride,
                        .input_stride = a.input_gate.stride,
                        .decay_stride = a.decay_gate.stride,
                        .decay = a.decay.f32() + first,
                        .before = in < 0 ? nullptr : states.data(in, a.buffer) + first,
                        .after = states.data(batch().state_out[seq], a.buffer) + first,
                        .n_tokens = batch().q_len(seq),
                        .n_channels = static_cast<int>(std::min<int64_t>(kConvChannels, n_channels - first))});
  });
}

}  // namespace ingot
