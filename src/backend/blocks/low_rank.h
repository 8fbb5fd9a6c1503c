// A product of two matrices of low rank, with a bias: (x down^T) up^T + bias.
#pragma once
#include "backend/tensor.h"

namespace ingot {

struct LowRank {
  Weight down;  // [rank, n_in] or empty: no product
  Weight up;    // [n_out, rank]
  Tensor bias;  // [1, n_out] or empty
};

}  // namespace ingot
