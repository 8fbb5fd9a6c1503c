// The scans of state-space models, of Kimi's delta attention and of Griffin, as recurrence_test.cc.
#include <limits>

#include "backend/scans_rig.h"

namespace ingot {
namespace {

// A layer of a state-space model, whose convolution may have gates and a bias. All inputs of a token are in one row.
struct ScanLayer {
  int n_heads, head_dim, n_groups, state_dim, conv_width;
  bool gates_in, gates_out, silu, has_bias;
  float min_step, max_step;
  std::vector<float> weight, bias, decay, dt_bias, skip;

  // States with an odd number of rows never process many tokens at once.
  explicit ScanLayer(LayerRandom& random) : ScanLayer(random, random.integer(1, 70), random.integer(1, 4)) {}
  // With fewer than 8 outputs, the terms of all outputs of a token may cancel.
  ScanLayer(LayerRandom& random, int of_head, int more_heads)
      : ScanLayer(random, more_heads + 7 / of_head, of_head, 2 * random.integer(0, 99) + 1) {}
  ScanLayer(LayerRandom& random, int heads_of_group, int of_head, int of_state)
      : head_dim(of_head), state_dim(of_state) {
    n_groups = random.integer(1, 3);
    n_heads = n_groups * heads_of_group;
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
  int width() const { return inner(); }
  StateShape shape() const {
    const StateBuffer inputs{.name = "inputs", .rows = conv_width - 1, .cols = channels()},
        matrices{.name = "matrices", .count = n_heads, .rows = state_dim, .cols = head_dim, .by_column = true};
    return {.n_slots = GrowingSequences::kSlots, .buffers = {{.name = "other", .cols = 5}, inputs, matrices}};
  }
  std::vector<float> run(Backend& backend, StateCache& states, const Steps& steps,
                         const std::vector<float>& inputs) const;
};

// The convolution, and the scan of its outputs in place.
std::vector<float> ScanLayer::run(Backend& backend, StateCache& states, const Steps& steps,
                                  const std::vector<float>& inputs) const {
  const auto n = static_cast<int64_t>(steps.positions.size());
  const int keys = n_groups * state_dim;
  const Tensor all = upload(backend, n, columns(), inputs),
               convolved = all.slice_cols(2 * channels(), channels()), x = convolved.slice_cols(0, inner());
  backend.begin(steps.batch());
  backend.short_conv({.x = convolved,
                      .weight = upload(backend, channels(), conv_width, weight),
                      .bias = has_bias ? upload(backend, 1, channels(), bias) : Tensor{},
                      .in_gate = gates_in ? all.slice_cols(0, channels()) : Tensor{},
                      .out_gate = gates_out ? all.slice_cols(channels(), channels()) : Tensor{},
                      .silu = silu,
                      .states = &states,
                      .buffer = 1});
  backend.ssm_scan({.y = x,
                    .x = x,
                    .b = convolved.slice_cols(inner(), keys),
                    .c = convolved.slice_cols(inner() + keys, keys),
                    .dt = all.slice_cols(3 * channels(), n_heads),
                    .keep = backend.alloc(DType::kF32, n, n_heads),
                    .decay = upload(backend, 1, n_heads, decay),
                    .dt_bias = upload(backend, 1, n_heads, dt_bias),
                    .skip = upload(backend, 1, n_heads, skip),
                    .n_groups = n_groups,
                    .min_step = min_step,
                    .max_step = max_step,
                    .states = &states,
                    .buffer = 2});
  return columns_of(values_of(backend, all), columns(), 2 * channels(), inner());
}

TEST_P(Scans, ScanEqualsRefInAnySteps) {
  for (int round = 0; round < 12 && !HasFailure(); ++round) expect_ref(ScanLayer(random_), 150, 1);
}

TEST_P(Scans, CutsOfAScanChangeNoBit) { expect_same_in_cuts(ScanLayer(random_)); }

TEST_P(Scans, ScanEqualsRefOverManyTokens) {
  for (const int state_dim : {64, 128, 256})
    for (const int head_dim : {32, 64})
      if (!HasFailure()) expect_ref_over_many_tokens(ScanLayer(random_, 4, head_dim, state_dim));
}

TEST_P(Scans, CutsOfALongScanChangeNoBitWhereDeterministic) {
  const auto own = GetParam() == "cuda" ? create_cuda_backend({.device = "cuda", .deterministic = true}) : nullptr;
  expect_same_in_cuts(ScanLayer(random_, 4, 64, 128), own ? *own : *backend_, 200, 150);
}

// A layer whose channels have states that decay element by element. All inputs of a token are in one row.
struct SelectiveLayer {
  int n_channels, state_dim;
  bool gates;
  std::vector<float> decay, dt_bias, skip;

  explicit SelectiveLayer(LayerRandom& random) : SelectiveLayer(random, random.integer(1, 64)) {}
  SelectiveLayer(LayerRandom& random, int of_state) : state_dim(of_state) {
    n_channels = random.integer(8, 150);  // with fewer, the terms of all outputs of a token may cancel
    gates = random.integer(0, 1) == 1;
    decay = random.normal(int64_t{n_channels} * state_dim, -1, 1.5f);
    for (float& d : decay) d = -std::exp(d);
    dt_bias = random.normal(n_channels, 0, 2);
    skip = random.normal(n_channels, 0, 1);
  }
  int columns() const { return 3 * n_channels + 2 * state_dim; }  // x, dt, gates, b, c
  int width() const { return n_channels; }
  StateShape shape() const {
    return states_of({.name = "states", .rows = state_dim, .cols = n_channels, .by_column = true});
  }
  std::vector<float> run(Backend& backend, StateCache& states, const Steps& steps,
                         const std::vector<float>& inputs) const {
    const auto n = static_cast<int64_t>(steps.positions.size());
    const Tensor all = upload(backend, n, columns(), inputs), x = all.slice_cols(0, n_channels);
    backend.begin(steps.batch());
    backend.selective_scan({.y = x,
                            .x = x,
                            .dt = all.slice_cols(n_channels, n_channels),
                            .gate = gates ? all.slice_cols(2 * n_channels, n_channels) : Tensor{},
                            .b = all.slice_cols(3 * n_channels, state_dim),
                            .c = all.slice_cols(3 * n_channels + state_dim, state_dim),
                            .decay = upload(backend, n_channels, state_dim, decay),
                            .dt_bias = upload(backend, 1, n_channels, dt_bias),
                            .skip = upload(backend, 1, n_channels, skip),
                            .states = &states,
                            .buffer = 1});
    return columns_of(values_of(backend, all), columns(), 0, n_channels);
  }
};

TEST_P(Scans, SelectiveScanEqualsRefInAnySteps) {
  for (int round = 0; round < 12 && !HasFailure(); ++round) expect_ref(SelectiveLayer(random_), 150, 1.5f);
}

// Lengths around those at which a GPU cuts a sequence into parts.
TEST_P(Scans, SelectiveScanEqualsRefOverManyTokens) {
  for (const int state_dim : {3, 16, 17})
    for (const int n_long : {256, random_.integer(257, 400), 320})
      if (!HasFailure()) expect_ref(SelectiveLayer(random_, state_dim), n_long, 1);
}

TEST_P(Scans, CutsOfALongSelectiveScanChangeNoBitWhereDeterministic) {
  const auto own = GetParam() == "cuda" ? create_cuda_backend({.device = "cuda", .deterministic = true}) : nullptr;
  expect_same_in_cuts(SelectiveLayer(random_, 16), own ? *own : *backend_, 400, 300);
}

TEST_P(Scans, CutsOfASelectiveScanChangeNoBit) { expect_same_in_cuts(SelectiveLayer(random_)); }

// Kimi's delta attention: its inputs, and the rule. All inputs of a token are in one row.
struct KdaLayer {
  int head_dim, n_heads, keys;
  std::vector<float> decay, dt;

  KdaLayer(LayerRandom& random, int dim) : head_dim(dim), n_heads(random.integer(1, 3)), keys(n_heads * dim) {
    decay = random.normal(n_heads, 0, 1);
    for (float& d : decay) d = -std::exp(d);
    dt = random.normal(keys, -1, 1);
  }
  int columns() const { return 4 * keys + n_heads; }  // q, k, v, keep, beta
  int width() const { return keys; }
  StateShape shape() const {
    return states_of({.name = "m", .count = n_heads, .rows = head_dim, .cols = head_dim, .by_column = true});
  }
  std::vector<float> run(Backend& backend, StateCache& states, const Steps& steps,
                         const std::vector<float>& inputs) const {
    const auto n = static_cast<int64_t>(steps.positions.size());
    const Tensor all = upload(backend, n, columns(), inputs), y = backend.alloc(DType::kF32, n, keys),
                 a = backend.alloc(DType::kF32, n, keys), b = backend.alloc(DType::kF32, n, keys);
    const Tensor q = all.slice_cols(0, keys), k = all.slice_cols(keys, keys), v = all.slice_cols(2 * keys, keys),
                 keep = all.slice_cols(3 * keys, keys);
    backend.begin(steps.batch());
    backend.kda_inputs({.q = q,
                        .k = k,
                        .keep = keep,
                        .a = a,
                        .b = b,
                        .beta = all.slice_cols(4 * keys, n_heads),
                        .decay = upload(backend, n_heads, 1, decay),
                        .dt = upload(backend, 1, keys, dt)});
    backend.rank_one_rule(
        {.y = y, .q = q, .keep = keep, .a = a, .b = b, .k = k, .v = v, .states = &states, .buffer = 1});
    return values_of(backend, y);
  }
};

TEST_P(Scans, CutsOfKdaChangeNoBit) {
  for (const int head_dim : {20, 64, 128, 200})
    if (!HasFailure()) expect_same_in_cuts(KdaLayer(random_, head_dim));
}

TEST_P(Scans, KdaEqualsRefInAnySteps) {
  for (const int head_dim : {6, 33, 64, 128, 200})
    if (!HasFailure()) expect_ref(KdaLayer(random_, head_dim), 70, 1);
}

// Griffin's recurrence. All inputs of a token are in one row; the first of them become the output, the others stay.
struct LruLayer {
  int n_channels;
  std::vector<float> decay;

  LruLayer(LayerRandom& random, int n) : n_channels(n), decay(random.normal(n, -2, 4)) {}
  int columns() const { return 3 * n_channels; }  // x, input_gate, decay_gate
  int width() const { return columns(); }
  StateShape shape() const {
    return states_of({.name = "h", .cols = n_channels});
  }
  std::vector<float> run(Backend& backend, StateCache& states, const Steps& steps,
                         const std::vector<float>& inputs) const {
    const auto n = static_cast<int64_t>(steps.positions.size());
    const Tensor all = upload(backend, n, columns(), inputs);
    backend.begin(steps.batch());
    backend.rg_lru({.x = all.slice_cols(0, n_channels),
                    .input_gate = all.slice_cols(n_channels, n_channels),
                    .decay_gate = all.slice_cols(2 * n_channels, n_channels),
                    .decay = upload(backend, 1, n_channels, decay),
                    .states = &states,
                    .buffer = 1});
    return values_of(backend, all);
  }
};

TEST_P(Scans, RgLruEqualsRefInAnySteps) {
  for (const int n_channels : {1, 50, 64, 130})
    if (!HasFailure()) expect_ref(LruLayer(random_, n_channels), 70, 2);
}

TEST_P(Scans, RgLruEqualsRefOverManyTokens) {
  for (const int n_channels : {1, 50, 130})
    if (!HasFailure()) expect_ref_over_many_tokens(LruLayer(random_, n_channels));
}

TEST_P(Scans, CutsOfALongRgLruChangeNoBitWhereDeterministic) {
  const auto own = GetParam() == "cuda" ? create_cuda_backend({.device = "cuda", .deterministic = true}) : nullptr;
  expect_same_in_cuts(LruLayer(random_, 64), own ? *own : *backend_, 400, 300);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Scans, testing::ValuesIn(instruction_sets()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Cuda, Scans, testing::Values("cuda"));

}  // namespace
}  // namespace ingot
