#include "backend/blocks/rwkv7.h"

#include "backend/backend.h"
#include "backend/blocks/product_list.h"

namespace ingot {
namespace {

enum Mixes : uint8_t { kOfR, kOfDecay, kOfK, kOfV, kOfRate, kOfGate };

}  // namespace

void Rwkv7Block::lay_out(Buffers& buffers) {
  buffers.scratch_act(mixed, 6 * x.cols);
  buffers.scratch_act(low, ranks);
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
  ProductList products(low);
  products.add(r, mix(kOfR), b.wr);
  products.add(k, mix(kOfK), b.wk);
  products.add(v, mix(kOfV), b.wv);
  products.add(keep, mix(kOfDecay), b.decay, {}, 1);  // a cap of 1 is the hyperbolic tangent
  products.add(rate, mix(kOfRate), b.rate);
  products.add(gates, mix(kOfGate), b.gate, Activation::kSigmoid);
  if (v_gate) products.add(v_gate, mix(kOfV), b.value);
  products.run(backend);
  constexpr float kLeastKeep = 0.54f;  // exp(-0.6065), and room for rounding
  const Tensor out = backend.act_dtype() == read.dtype ? read : mix(0);
  backend.wkv7(
      {.out = out,
       .inputs = {.k = k,
                  .keep = keep,
                  .b = rate,
                  .a = a,
                  .v = v,
                  .v_gate = v_gate,
                  .v_first = rows(b.streams),
                  .k_k = b.k_k,
                  .k_a = b.k_a,
                  .n_heads = b.n_heads},
       .rule = {.y = read,
                .q = r,
                .keep = keep,
                .a = a,
                .b = rate,
                .k = k,
                .least_keep = kLeastKeep,
                .v = v,
                .states = b.states,
                .buffer = b.first_state + 1},
       .outputs = {
           .y = read, .r = r, .k = k, .v = v, .gate = gates, .r_k = b.r_k, .norm = b.head_norm, .n_heads = b.n_heads}});
  join(backend, b.join, x, rows(b.branch), out, b.wo, {}, norm_out);
}

}  // namespace ingot
