// Compares recurrent layers of a few ops with ref, in steps of any size.
#pragma once
#include <algorithm>
#include <vector>

#include "backend/recurrence_rig.h"

namespace ingot {

// Columns first .. first + n of rows with n_columns.
inline std::vector<float> columns_of(const std::vector<float>& rows, int n_columns, int first, int n) {
  std::vector<float> part;
  for (auto row = rows.begin(); row != rows.end(); row += n_columns)
    part.insert(part.end(), row + first, row + first + n);
  return part;
}

// States of one buffer, whose index is 1: no op may touch the buffer before it.
inline StateShape states_of(const StateBuffer& buffer) {
  return {.n_slots = GrowingSequences::kSlots, .buffers = {{.name = "other", .cols = 5}, buffer}};
}

// A layer has the shape of its states, a row of inputs for each token [columns()], and a row of outputs [width()].
class Scans : public RecurrenceRig {
 protected:
  // Sequences grow by a few tokens a step, and one of them once by n_long.
  template <class Layer>
  void expect_ref(const Layer& layer, int n_long, float deviation) {
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    GrowingSequences sequences;
    for (int i = 0; i < 4 && !HasFailure(); ++i) {
      const Steps steps = sequences.next(random_, i == 2 ? n_long : 0);
      const auto inputs =
          random_.normal(static_cast<int64_t>(steps.positions.size()) * layer.columns(), 0, deviation);
      expect_close_rows(layer.run(*backend_, *states, steps, inputs), layer.run(*ref_, *ref_states, steps, inputs),
                        layer.width());
    }
  }
  // Sequences so long that a GPU may process many tokens at once, with other roundings. They run next to short ones,
  // and start from a state.
  template <class Layer>
  void expect_ref_over_many_tokens(const Layer& layer) {
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    const int lengths[3][3] = {{65, 63, 64}, {random_.integer(64, 200), 128, 2}, {random_.integer(512, 800), 1, 270}};
    int past[3] = {};
    for (int step = 0; step < 3 && !HasFailure(); ++step) {
      Steps steps;
      for (int seq = 0; seq < 3; ++seq) {
        steps.add(past[seq], lengths[step][seq], 2 * seq + (step + 1) % 2, 2 * seq + step % 2);
        past[seq] += lengths[step][seq];
      }
      const auto inputs = random_.normal(static_cast<int64_t>(steps.positions.size()) * layer.columns(), 0, 1);
      expect_close_rows(layer.run(*backend_, *states, steps, inputs), layer.run(*ref_, *ref_states, steps, inputs),
                        layer.width(), GetParam() == "cuda" ? 4e-3 : 2e-5);
    }
  }
  // A sequence in one step, and in steps of any size up to `most`.
  template <class Layer>
  void expect_same_in_cuts(const Layer& layer) {
    expect_same_in_cuts(layer, *backend_, 100, 40);
  }
  template <class Layer>
  void expect_same_in_cuts(const Layer& layer, Backend& backend, int n_tokens, int most) {
    const auto inputs = random_.normal(int64_t{n_tokens} * layer.columns(), 0, 1);
    const auto states = backend.make_states(layer.shape());
    Steps whole;
    whole.add(0, n_tokens, 0, 0);
    const std::vector<float> expected = layer.run(backend, *states, whole, inputs);
    for (int begin = 0; begin < n_tokens;) {
      const int n = std::min(random_.integer(1, most), n_tokens - begin);
      Steps steps;
      steps.add(begin, n, 1, 1);
      const std::vector<float> part(inputs.begin() + begin * layer.columns(),
                                    inputs.begin() + (begin + n) * layer.columns()),
          got = layer.run(backend, *states, steps, part);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected[static_cast<size_t>(begin) * layer.width() + i])
            << "token " << begin + i / layer.width();
      begin += n;
    }
  }
};

}  // namespace ingot
