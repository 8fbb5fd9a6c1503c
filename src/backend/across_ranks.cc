// The ops of several ranks: default bodies that use a communicator on the host.
#include <algorithm>
#include <cstring>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"

namespace ingot {

void Backend::zero(Tensor x) {
  HostRows host(*this);
  x = host.out(x);
  CHECK(x.contiguous());
  std::memset(x.data, 0, static_cast<size_t>(x.rows * x.cols) * sizeof(float));
}

void Backend::all_reduce(Tensor x) {
  CHECK(ranks_ != nullptr);
  HostRows host(*this);
  x = host.inout(x);
  CHECK(x.contiguous());
  ranks_->all_reduce(x.f32(), x.rows * x.cols);
}

void Backend::all_gather(Tensor y, Tensor x) {
  CHECK(ranks_ != nullptr);
  CHECK_EQ(y.rows, ranks_->size() * x.rows);
  HostRows host(*this);
  y = host.out(y), x = host.in(x);
  CHECK(x.contiguous() && y.contiguous());
  ranks_->all_gather(y.data, x.data, static_cast<size_t>(x.rows * x.cols) * sizeof(float));
}

// The norms of queries and keys over the heads of all ranks. Each rank copies its own heads to rows of zeros, and
// all_reduce adds the rows.
void Backend::norm_across_ranks(const HeadsOfRanks& heads, const QkvArgs& a) {
  const Tensor all = heads.rows.slice_rows(0, a.q.rows), q = all.slice_cols(0, heads.q_dim),
               k = all.slice_cols(heads.q_dim, heads.k_dim);
  const Tensor own_q = q.slice_cols(heads.first_q, a.q.cols), own_k = k.slice_cols(heads.first_k, a.k.cols);
  zero(all);
  copy(own_q, a.q);
  if (heads.adds_k) copy(own_k, a.k);
  all_reduce(all);
  if (a.q_norm.weight) norm(q, q, a.q_norm);
  if (a.k_norm.weight) norm(k, k, a.k_norm);
  copy(a.q, own_q);
  copy(a.k, own_k);
}

}  // namespace ingot
