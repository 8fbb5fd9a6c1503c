// The beginning and the end that many kinds of blocks share: a norm of the residual stream, and the addition to it.
#pragma once
#include <utility>

#include "backend/backend.h"

namespace ingot {

// How the output of a block joins the residual stream: x += scale * post_norm(in w^T + bias), then x = sum_norm(x).
struct Join {
  NormArgs post_norm;  // weight [1, dim]; only with has_post_norm, which is set before the weights are loaded
  bool has_post_norm = false;
  NormArgs sum_norm;  // weight [1, dim] or empty: for encoders that normalise the sum
  float scale = 1;
  bool sums = false;   // each rank has some of the inputs; the products of all ranks are summed
  NormArgs next_norm;  // weight [1, dim] or empty: the norm of the next block, after a sum over ranks of plain products
  bool is_plain() const { return !changes() && !sums; }  // the product can be added to x directly
  // The place for next_norm, or null: then the product is not the last op, or is not summed.
  NormArgs* norm_after_sum() { return sums && !changes() && !sum_norm.weight ? &next_norm : nullptr; }
  bool changes() const { return has_post_norm || scale != 1; }  // the branch, before it is added
};

// Adds the projection of the block's output to the residual stream. norm_out: for j.next_norm.
void join(Backend& backend, const Join& j, const Tensor& x /* in, out [n, dim] */,
          const Tensor& branch /* scratch: [n, dim]; not used if j.is_plain() */, const Tensor& in /* [n, n_in] */,
          const Weight& w /* [dim, n_in] */, const Tensor& bias /* [1, dim] or empty */,
          const Tensor& norm_out /* [n, dim] */);

// The input of a block before its norm.
template <class B>
Tensor stream_of(const Backend& backend, const B& b) {
  return backend.token_rows(b.beside ? b.fork : b.x);
}
// The input of a block's first product, and the norm that this product still computes.
template <class B>
std::pair<Tensor, NormArgs> input_of(const Backend& backend, const B& b, const Tensor& norm_out) {
  const Tensor stream = stream_of(backend, b);
  const bool is_normed = b.follows_sum && backend.norms_sums(stream, b.norm);
  return is_normed ? std::pair{norm_out, NormArgs{}} : std::pair{stream, b.norm};
}

}  // namespace ingot
