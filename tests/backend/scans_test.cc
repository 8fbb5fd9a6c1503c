// The scans of state-space models, of Kimi's delta attention and of Griffin, as recurrence_test.cc.
#include <limits>

#include "backend/recurrence_rig.h"

namespace ingot {
namespace {

class Scans : public RecurrenceRig {};

// A layer of a state-space model, whose convolution may have gates and a bias. All inputs of a token are in one row.
struct ScanLayer {
  int n_heads, head_dim, n_groups, state_dim, conv_width;
  bool gates_in, gates_out, silu, has_bias;
  float min_step, max_step;
  std::vector<float> weight, bias, decay, dt_bias, skip;

  explicit ScanLayer(LayerRandom& random) {
    n_groups = random.integer(1, 3);
    n_heads = n_groups * random.integer(1, 4);
    head_dim = random.integer(1, 70);
    state_dim = random.integer(1, 200);
    conv_width = random.integer(2, 5);
    gates_in = random.integer(0, 1) == 1, gates_out = random.integer(0, 1) == 1, silu = random.integer(0, 1) == 1,
    has_bias = random.integer(0, 1) == 1;
    min_step = random.integer(0, 1) == 1 ? 0.3f : 0.0f;
    max_step = random.integer(0, 1) == 1 ? 1.0f : std::numeric_limits<float>::infinity();
    weight = random.normal(int64_t{channels()} * conv_width, 0, 0.5f);
    bias = random.normal(channels(), 0, 0.5f);
    decay = random.normal(n_heads, -1, 1.5f);
    for (float& d : decay) d = -std::exp(d);
    dt_bias = random.normal(n_heads, 0, 0.5f);
    skip = random.normal(n_heads, 0, 1);
  }
  int inner() const { return n_heads * head_dim; }
  int channels() const { return inner() + 2 * n_groups * state_dim; }
  int columns() const { return 3 * channels() + n_heads; }  // two gates, the channels, dt
  StateShape shape() const {
    const StateBuffer inputs{.name = "inputs", .rows = conv_width - 1, .cols = channels()},
        matrices{.name = "matrices", .count = n_heads, .rows = state_dim, .cols = head_dim, .by_column = true};
    return {.n_slots = 6, .buffers = {{.name = "other", .cols = 5}, inputs, matrices}};
  }
};

// The convolution, and the scan of its outputs in place.
std::vector<float> run(Backend& backend, StateCache& states, const ScanLayer& l, const Steps& steps,
                       const std::vector<float>& inputs) {
  const auto n = static_cast<int64_t>(steps.positions.size());
  const int keys = l.n_groups * l.state_dim;
  const Tensor all = upload(backend, n, l.columns(), inputs),
               channels = all.slice_cols(2 * l.channels(), l.channels()), x = channels.slice_cols(0, l.inner());
  backend.begin(steps.batch());
  backend.short_conv({.x = channels,
                      .weight = upload(backend, l.channels(), l.conv_width, l.weight),
                      .bias = l.has_bias ? upload(backend, 1, l.channels(), l.bias) : Tensor{},
                      .in_gate = l.gates_in ? all.slice_cols(0, l.channels()) : Tensor{},
                      .out_gate = l.gates_out ? all.slice_cols(l.channels(), l.channels()) : Tensor{},
                      .silu = l.silu,
                      .states = &states,
                      .buffer = 1});
  backend.ssm_scan({.y = x,
                    .x = x,
                    .b = channels.slice_cols(l.inner(), keys),
                    .c = channels.slice_cols(l.inner() + keys, keys),
                    .dt = all.slice_cols(3 * l.channels(), l.n_heads),
                    .keep = backend.alloc(DType::kF32, n, l.n_heads),
                    .decay = upload(backend, 1, l.n_heads, l.decay),
                    .dt_bias = upload(backend, 1, l.n_heads, l.dt_bias),
                    .skip = upload(backend, 1, l.n_heads, l.skip),
                    .n_groups = l.n_groups,
                    .min_step = l.min_step,
                    .max_step = l.max_step,
                    .states = &states,
                    .buffer = 2});
  const std::vector<float> after = values_of(backend, all);
  std::vector<float> outputs;
  for (int64_t t = 0; t < n; ++t) {
    const auto row = after.begin() + t * l.columns() + 2 * l.channels();
    outputs.insert(outputs.end(), row, row + l.channels());
  }
  return outputs;
}

TEST_P(Scans, ScanEqualsRefInAnySteps) {
  for (int round = 0; round < 12; ++round) {
    constexpr int kSeqs = 3;
    const ScanLayer layer(random_);
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    int past[kSeqs] = {}, at[kSeqs] = {};
    for (int i = 0; i < 4; ++i) {
      Steps steps;
      for (int seq = 0; seq < kSeqs; ++seq) {
        const int n = i == 2 && seq == 1 ? 150 : random_.integer(1, 9), out = 2 * seq + random_.integer(0, 1);
        steps.add(past[seq], n, at[seq], out);
        past[seq] += n, at[seq] = out;
      }
      const auto inputs = random_.normal(static_cast<int64_t>(steps.positions.size()) * layer.columns(), 0, 1);
      expect_close_rows(run(*backend_, *states, layer, steps, inputs), run(*ref_, *ref_states, layer, steps, inputs),
                        layer.channels());
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Scans, CutsOfAScanChangeNoBit) {
  const ScanLayer layer(random_);
  constexpr int kTokens = 100;
  const auto inputs = random_.normal(int64_t{kTokens} * layer.columns(), 0, 1);
  const auto states = backend_->make_states(layer.shape());
  Steps whole;
  whole.add(0, kTokens, 0, 0);
  const std::vector<float> expected = run(*backend_, *states, layer, whole, inputs);
  for (int begin = 0; begin < kTokens;) {
    const int n = std::min(random_.integer(1, 40), kTokens - begin);
    Steps steps;
    steps.add(begin, n, 1, 1);
    const std::vector<float> part(inputs.begin() + begin * layer.columns(),
                                  inputs.begin() + (begin + n) * layer.columns()),
        got = run(*backend_, *states, layer, steps, part);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], expected[static_cast<size_t>(begin) * layer.channels() + i])
          << "token " << begin + i / layer.channels();
    begin += n;
  }
}

// A layer whose channels have states that decay element by element. All inputs of a token are in one row.
struct SelectiveLayer {
  int n_channels, state_dim;
  std::vector<float> decay, dt_bias, skip;

  explicit SelectiveLayer(LayerRandom& random) {
    n_channels = random.integer(1, 150);
    state_dim = random.integer(1, 64);
    decay = random.normal(int64_t{n_channels} * state_dim, -1, 1.5f);
    for (float& d : decay) d = -std::exp(d);
    dt_bias = random.normal(n_channels, 0, 2);
    skip = random.normal(n_channels, 0, 1);
  }
  int columns() const { return 2 * n_channels + 2 * state_dim; }  // x, dt, b, c
  StateShape shape() const {
    return {.n_slots = 6,
            .buffers = {{.name = "other", .cols = 5},
                        {.name = "states", .rows = state_dim, .cols = n_channels, .by_column = true}}};
  }
};

std::vector<float> run(Backend& backend, StateCache& states, const SelectiveLayer& l, const Steps& steps,
                       const std::vector<float>& inputs) {
  const auto n = static_cast<int64_t>(steps.positions.size());
  const Tensor all = upload(backend, n, l.columns(), inputs), x = all.slice_cols(0, l.n_channels);
  backend.begin(steps.batch());
  backend.selective_scan({.y = x,
                          .x = x,
                          .dt = all.slice_cols(l.n_channels, l.n_channels),
                          .b = all.slice_cols(2 * l.n_channels, l.state_dim),
                          .c = all.slice_cols(2 * l.n_channels + l.state_dim, l.state_dim),
                          .decay = upload(backend, l.n_channels, l.state_dim, l.decay),
                          .dt_bias = upload(backend, 1, l.n_channels, l.dt_bias),
                          .skip = upload(backend, 1, l.n_channels, l.skip),
                          .states = &states,
                          .buffer = 1});
  const std::vector<float> after = values_of(backend, all);
  std::vector<float> outputs;
  for (int64_t t = 0; t < n; ++t) {
    const auto row = after.begin() + t * l.columns();
    outputs.insert(outputs.end(), row, row + l.n_channels);
  }
  return outputs;
}

TEST_P(Scans, SelectiveScanEqualsRefInAnySteps) {
  for (int round = 0; round < 12; ++round) {
    constexpr int kSeqs = 3;
    const SelectiveLayer layer(random_);
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    int past[kSeqs] = {}, at[kSeqs] = {};
    for (int i = 0; i < 4; ++i) {
      Steps steps;
      for (int seq = 0; seq < kSeqs; ++seq) {
        const int n = i == 2 && seq == 1 ? 150 : random_.integer(1, 9), out = 2 * seq + random_.integer(0, 1);
        steps.add(past[seq], n, at[seq], out);
        past[seq] += n, at[seq] = out;
      }
      const auto inputs = random_.normal(static_cast<int64_t>(steps.positions.size()) * layer.columns(), 0, 1.5f);
      expect_close_rows(run(*backend_, *states, layer, steps, inputs), run(*ref_, *ref_states, layer, steps, inputs),
                        layer.n_channels);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Scans, CutsOfASelectiveScanChangeNoBit) {
  const SelectiveLayer layer(random_);
  constexpr int kTokens = 100;
  const auto inputs = random_.normal(int64_t{kTokens} * layer.columns(), 0, 1);
  const auto states = backend_->make_states(layer.shape());
  Steps whole;
  whole.add(0, kTokens, 0, 0);
  const std::vector<float> expected = run(*backend_, *states, layer, whole, inputs);
  for (int begin = 0; begin < kTokens;) {
    const int n = std::min(random_.integer(1, 40), kTokens - begin);
    Steps steps;
    steps.add(begin, n, 1, 1);
    const std::vector<float> part(inputs.begin() + begin * layer.columns(),
                                  inputs.begin() + (begin + n) * layer.columns()),
        got = run(*backend_, *states, layer, steps, part);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], expected[static_cast<size_t>(begin) * layer.n_channels + i]) << "token " << begin;
    begin += n;
  }
}

// Kimi's delta attention: its inputs, and the rule. All inputs of a token are in one row.
std::vector<float> run_kda(Backend& backend, StateCache& states, const Steps& steps, int64_t n_heads,
                           const std::vector<float>& inputs, const std::vector<float>& decay,
                           const std::vector<float>& dt) {
  const auto n = static_cast<int64_t>(steps.positions.size()), keys = static_cast<int64_t>(dt.size());
  const Tensor all = upload(backend, n, 4 * keys + n_heads, inputs), y = backend.alloc(DType::kF32, n, keys),
               a = backend.alloc(DType::kF32, n, keys), b = backend.alloc(DType::kF32, n, keys);
  const Tensor q = all.slice_cols(0, keys), k = all.slice_cols(keys, keys), keep = all.slice_cols(3 * keys, keys);
  backend.begin(steps.batch());
  backend.kda_inputs({.q = q,
                      .k = k,
                      .keep = keep,
                      .a = a,
                      .b = b,
                      .beta = all.slice_cols(4 * keys, n_heads),
                      .decay = upload(backend, n_heads, 1, decay),
                      .dt = upload(backend, 1, keys, dt)});
  backend.rank_one_rule({.y = y, .q = q, .keep = keep, .a = a, .b = b, .k = k, .v = all.slice_cols(2 * keys, keys),
                         .states = &states, .buffer = 1});
  return values_of(backend, y);
}

TEST_P(Scans, KdaEqualsRefInAnySteps) {
  for (const int head_dim : {6, 33, 64, 128, 200}) {
    constexpr int kSeqs = 3;
    const int n_heads = random_.integer(1, 3), keys = n_heads * head_dim;
    const StateShape shape{
        .n_slots = 6,
        .buffers = {{.name = "other", .cols = 5},
                    {.name = "m", .count = n_heads, .rows = head_dim, .cols = head_dim, .by_column = true}}};
    std::vector<float> decay = random_.normal(n_heads, 0, 1), dt = random_.normal(keys, -1, 1);
    for (float& d : decay) d = -std::exp(d);
    const auto states = backend_->make_states(shape), ref_states = ref_->make_states(shape);
    int past[kSeqs] = {}, at[kSeqs] = {};
    for (int i = 0; i < 3; ++i) {
      Steps steps;
      for (int seq = 0; seq < kSeqs; ++seq) {
        const int n = i == 1 && seq == 1 ? 70 : random_.integer(1, 9), out = 2 * seq + random_.integer(0, 1);
        steps.add(past[seq], n, at[seq], out);
        past[seq] += n, at[seq] = out;
      }
      const auto inputs = random_.normal(static_cast<int64_t>(steps.positions.size()) * (4 * keys + n_heads), 0, 1);
      expect_close_rows(run_kda(*backend_, *states, steps, n_heads, inputs, decay, dt),
                        run_kda(*ref_, *ref_states, steps, n_heads, inputs, decay, dt), keys);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Scans, RgLruEqualsRefInAnySteps) {
  for (const int n_channels : {1, 50, 64, 130}) {
    constexpr int kSeqs = 3;
    const StateShape shape{.n_slots = 6, .buffers = {{.name = "other", .cols = 5}, {.name = "h", .cols = n_channels}}};
    const auto states = backend_->make_states(shape), ref_states = ref_->make_states(shape);
    const std::vector<float> decay = random_.normal(n_channels, -2, 4);
    const auto run_lru = [&](Backend& backend, StateCache& cache, const Steps& steps, const std::vector<float>& rows) {
      const auto n = static_cast<int64_t>(steps.positions.size());
      const Tensor all = upload(backend, n, 3 * n_channels, rows), x = all.slice_cols(0, n_channels);
      backend.begin(steps.batch());
      backend.rg_lru({.x = x,
                      .input_gate = all.slice_cols(n_channels, n_channels),
                      .decay_gate = all.slice_cols(2 * n_channels, n_channels),
                      .decay = upload(backend, 1, n_channels, decay),
                      .states = &cache,
                      .buffer = 1});
      return values_of(backend, all);
    };
    int past[kSeqs] = {}, at[kSeqs] = {};
    for (int i = 0; i < 3; ++i) {
      Steps steps;
      for (int seq = 0; seq < kSeqs; ++seq) {
        const int n = i == 1 && seq == 1 ? 70 : random_.integer(1, 9), out = 2 * seq + random_.integer(0, 1);
        steps.add(past[seq], n, at[seq], out);
        past[seq] += n, at[seq] = out;
      }
      const auto rows = random_.normal(static_cast<int64_t>(steps.positions.size()) * 3 * n_channels, 0, 2);
      expect_close_rows(run_lru(*backend_, *states, steps, rows), run_lru(*ref_, *ref_states, steps, rows),
                        3 * n_channels);
      if (testing::Test::HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Scans, testing::ValuesIn(instruction_sets()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Cuda, Scans, testing::Values("cuda"));

}  // namespace
}  // namespace ingot
