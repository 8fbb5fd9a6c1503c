// ProductList: products of full and of low rank. All first ones run at once, and then the second ones of low rank.
#pragma once
#include <array>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "backend/blocks/low_rank.h"

namespace ingot {

class ProductList {
 public:
  // low: scratch, [n, sum of the ranks]. The weights must outlive run().
  explicit ProductList(const Tensor& low) : low_(low) {}

  // y [n, n_out] = x [n, n_in] w^T
  void add(const Tensor& y, const Tensor& x, const Weight& w) { first_.add({.y = y, .x = x, .w = &w}); }
  // y [n, n_out] = f(x [n, n_in] down^T) up^T + bias, where f is an activation or a cap, as in Product.
  void add(const Tensor& y, const Tensor& x, const LowRank& w, std::optional<Activation> act = {}, float cap = 0) {
    const Tensor part = low_.slice_cols(n_low_, w.down.n_out);
    n_low_ += w.down.n_out;
    first_.add({.y = part, .x = x, .w = &w.down, .act = act, .cap = cap});
    second_.add({.y = y, .x = part, .w = &w.up, .bias = w.bias});
  }
  void run(Backend& backend) const {
    backend.matmuls(first_.all());
    if (second_.n > 0) backend.matmuls(second_.all());
  }

 private:
  // At most eight, in place, because a step must not allocate.
  struct Few {
    std::array<Product, 8> products;
    size_t n = 0;
    void add(const Product& p) { products.at(n++) = p; }
    std::span<const Product> all() const { return std::span(products).first(n); }
  };
  const Tensor low_;
  int64_t n_low_ = 0;
  Few first_, second_;
};

}  // namespace ingot
