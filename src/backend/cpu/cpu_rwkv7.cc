// The ops of RWKV-7 besides its rule.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_states.h"

namespace ingot {

using cpu::CpuStates;
using cpu::kConvChannels;

// A task is some channels of a sequence.
void CpuBackend::mix_tokens(const MixTokensArgs& a) {
  const auto& states = static_cast<const CpuStates&>(*a.states);
  const int64_t dim = a.x.cols, n_parts = (dim + kConvChannels - 1) / kConvChannels;
  CHECK_EQ(a.y.cols, a.mix.rows * dim);
  CHECK(a.mix.stride == dim && states.buffer(a.buffer).size() == dim);
  for_rows(batch().n_seqs() * n_parts, 2 * a.y.rows * a.y.cols, [&](int64_t i, int) {
    const int seq = static_cast<int>(i / n_parts), in = batch().state_in[seq];
    const int64_t first = i % n_parts * kConvChannels, t = batch().q_start[seq];
    recurrence_.mix_tokens({.y = a.y.f32(t) + first,
                            .x = a.x.f32(t) + first,
                            .y_stride = a.y.stride,
                            .x_stride = a.x.stride,
                            .dim = dim,
                            .mix = a.mix.f32() + first,
                            .n_mixes = static_cast<int>(a.mix.rows),
                            .before = in < 0 ? nullptr : states.data(in, a.buffer) + first,
                            .after = states.data(batch().state_out[seq], a.buffer) + first,
                            .n_tokens = batch().q_len(seq),
                            .n_channels = static_cast<int>(std::min<int64_t>(kConvChannels, dim - first))});
  });
}

// A task of both is a token.
void CpuBackend::wkv7_inputs(const Wkv7InputsArgs& a) {
  const int64_t dim = a.k.cols / a.n_heads;
  for_rows(a.k.rows, 60 * a.k.rows * a.k.cols, [&](int64_t t, int) {
    for (int64_t i = 0; i < a.k.cols; i += dim)
      recurrence_.wkv7_inputs({.k = a.k.f32(t) + i,
                               .keep = a.keep.f32(t) + i,
                               .b = a.b.f32(t) + i,
                               .a = a.a.f32(t) + i,
                               .v = a.v.f32(t) + i,
                               .v_first = a.v_first.f32(t) + i,
                               .v_gate = a.v_gate ? a.v_gate.f32(t) + i : nullptr,
                               .k_k = a.k_k.f32() + i,
                               .k_a = a.k_a.f32() + i,
                               .n = dim});
  });
}

void CpuBackend::wkv7_outputs(const Wkv7OutputsArgs& a) {
  const int64_t dim = a.y.cols / a.n_heads;
  for_rows(a.y.rows, 12 * a.y.rows * a.y.cols, [&](int64_t t, int) {
    for (int64_t i = 0; i < a.y.cols; i += dim)
      recurrence_.wkv7_outputs({.y = a.y.f32(t) + i,
                                .r = a.r.f32(t) + i,
                                .k = a.k.f32(t) + i,
                                .v = a.v.f32(t) + i,
                                .gate = a.gate.f32(t) + i,
                                .r_k = a.r_k.f32() + i,
                                .weight = a.norm.weight.f32() + i,
                                .bias = a.norm.bias.f32() + i,
                                .eps = a.norm.eps,
                                .n = dim});
  });
}

}  // namespace ingot
