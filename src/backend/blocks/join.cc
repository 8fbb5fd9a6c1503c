#include "backend/blocks/join.h"

namespace ingot {

void join(Backend& backend, const Join& j, const Tensor& x, const Tensor& branch, const Tensor& in, const Weight& w,
          const Tensor& bias, const Tensor& norm_out) {
  if (j.is_plain()) {
    backend.matmul_add(x, in, w, bias);
  } else {
    backend.matmul(branch, in, w, bias);
    if (j.sums && j.changes()) backend.all_reduce(branch);
    if (j.has_post_norm && j.scale == 1) {
      backend.add_normed(x, branch, j.post_norm);
    } else {
      if (j.has_post_norm) backend.norm(branch, branch, j.post_norm);
      if (j.scale != 1) backend.scale(branch, j.scale, 0);
      j.sums && !j.changes() ? backend.add_reduced(x, branch, norm_out, j.next_norm) : backend.add(x, branch);
    }
  }
  if (j.sum_norm.weight) backend.norm(x, x, j.sum_norm);
}

}  // namespace ingot
