#include "engine/speculate/oracle.h"

#include <algorithm>

#include "backend/philox.h"

namespace ingot {

Proposal OracleProposer::propose(std::span<const int32_t> history, int n, const GoesOn&) {
  const size_t begin = std::min(history.size() - n_prompt_, output_.size());
  const size_t n_most = static_cast<size_t>(n_fixed_ > 0 ? std::min(n, n_fixed_) : n);
  const size_t end = std::min(begin + n_most, output_.size());
  Proposal proposal{.tokens = {output_.begin() + static_cast<ptrdiff_t>(begin),
                               output_.begin() + static_cast<ptrdiff_t>(end)}};
  for (size_t i = begin; i < end; ++i)
    if (uniform_draw(seed_, i) >= p_right_) proposal.tokens[i - begin] = (output_[i] + 1) % n_vocab_;
  return proposal;
}

void GivenAnswers::sample(std::span<const SampleRow> rows) {
  rows_.assign(rows.begin(), rows.end());
  params_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t token = static_cast<uint64_t>(rows[i].history.front()) + 7919 * rows[i].history.size();
    force(params_[i], static_cast<int32_t>(token % static_cast<uint64_t>(info().n_vocab)), -1);
    rows_[i].params = &params_[i];
  }
  runner_.sample(rows_);
}

}  // namespace ingot
