#include "backend/blocks/rwkv7.h"

#include "backend/backend.h"

namespace ingot {
namespace {

enum Mixes : uint8_t { kOfR, kOfDecay, kOfK, kOfV, kOfRate, kOfGate };

enum class Between : uint8_t { kNothing, kTanh, kSigmoid };

// y = f(x down^T) up^T + bias; low: scratch.
void multiply(Backend& backend, const Tensor& y, const Tensor& x, const LowRank& w, const Tensor& low, Between f) {
  const Tensor part = low.slice_cols(0, w.down.n_out);
  backend.matmul(part, x, w.down);
  if (f == Between::kTanh) backend.scale(part, 1, 1);  // a cap of 1 is the hyperbolic tangent
  if (f == Between::kSigmoid) backend.act(part, Activation::kSigmoid);
  backend.matmul(y, part, w.up, w.bias);
}

}  // namespace

void Rwkv7Block::lay_out(Buffers& buffers) {
  buffers.scratch_act(mixed, 6 * x.cols);
  buffers.scratch_act(low, largest_rank);
  for (Tensor* rows : {&r, &k, &v, &keep, &a, &b, &v_gate, &gates, &read}) buffers.scratch_f32(*rows, x.cols);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const Rwkv7Block& b, Backend& backend) {
  const auto rows = [&](const Tensor& t) { return backend.token_rows(t); };
  const Tensor x = rows(b.x), norm_out = rows(b.normed), mixed = rows(b.mixed), low = rows(b.low), r = rows(b.r),
               k = rows(b.k), v = rows(b.v), keep = rows(b.keep), rate = rows(b.b), a = rows(b.a),
               gates = rows(b.gates), read = rows(b.read), v_gate = b.is_first ? Tensor{} : rows(b.v_gate);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  if (first_norm.weight) backend.norm(norm_out, input, first_norm);
  backend.mix_tokens({.y = mixed, .x = norm_out, .mix = b.mix, .states = b.states, .buffer = b.first_state});
  const auto mix = [&](int i) { return mixed.slice_cols(i * x.cols, x.cols); };
  backend.matmul(r, mix(kOfR), b.wr);
  backend.matmul(k, mix(kOfK), b.wk);
  backend.matmul(v, mix(kOfV), b.wv);
  multiply(backend, keep, mix(kOfDecay), b.decay, low, Between::kTanh);
  multiply(backend, rate, mix(kOfRate), b.rate, low, Between::kNothing);
  multiply(backend, gates, mix(kOfGate), b.gate, low, Between::kSigmoid);
  if (v_gate) multiply(backend, v_gate, mix(kOfV), b.value, low, Between::kNothing);
  backend.wkv7_inputs({.k = k,
                       .keep = keep,
                       .b = rate,
                       .a = a,
                       .v = v,
                       .v_gate = v_gate,
                       .v_first = rows(b.streams),
                       .k_k = b.k_k,
                       .k_a = b.k_a,
                       .n_heads = b.n_heads});
  backend.rank_one_rule({.y = read, .q = r, .keep = keep, .a = a, .b = rate, .k = k, .v = v, .states = b.states,
                         .buffer = b.first_state + 1});
  backend.wkv7_outputs({.y = read, .r = r, .k = k, .v = v, .gate = gates, .r_k = b.r_k, .norm = b.head_norm,
                        .n_heads = b.n_heads});
  join(backend, b.join, x, rows(b.branch), read, b.wo, {}, norm_out);
}

}  // namespace ingot
