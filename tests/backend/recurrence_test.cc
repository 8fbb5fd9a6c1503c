// The ops of recurrent layers on every instruction set, and on the GPU if there is one, against ref. Sequences of any
// length run in steps of any size, and states move from slot to slot. The tests also check the data that a step must
// not change. The models' goldens show that ref computes the right result.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cuda/create_cuda.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

class LayerRandom {
 public:
  explicit LayerRandom(uint64_t seed) : engine_(seed) {}
  int integer(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  std::vector<float> normal(int64_t n, float mean, float deviation) {
    std::normal_distribution<float> draw(mean, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = draw(engine_);
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

Tensor upload(Backend& backend, int64_t rows, int64_t cols, const std::vector<float>& values) {
  const Tensor t = backend.alloc(DType::kF32, rows, cols);
  backend.upload(t, values.data());
  return t;
}

std::vector<float> values_of(Backend& backend, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
  backend.download(values.data(), t);
  return values;
}

// One recurrent layer of some shape, with its parameters and a step's inputs: the same on every backend.
struct Layer {
  int n_slots = 0, n_channels = 0, conv_width = 0, n_heads = 0, key_dim = 0, value_dim = 0;
  int n_key_heads = 1;
  bool tiled = false;
  std::vector<float> weight, decay, dt;

  Layer(LayerRandom& random, int slots, int dim = 0 /* any */) : n_slots(slots) {
    n_key_heads = random.integer(1, dim > 0 ? 2 : 3);
    n_heads = n_key_heads * random.integer(1, dim > 0 ? 4 : 3);
    conv_width = random.integer(2, 5);
    key_dim = dim > 0 ? dim : random.integer(8, 40);
    value_dim = dim > 0 ? dim : random.integer(1, 70);
    n_channels = 2 * n_key_heads * key_dim + n_heads * value_dim;
    tiled = random.integer(0, 1) == 1;
    weight = random.normal(int64_t{n_channels} * conv_width, 0, 0.5f);
    decay = random.normal(n_heads, 0, 1);
    for (float& d : decay) d = -std::exp(d);
    dt = random.normal(n_heads, 0, 0.5f);
  }
  // Of two layers. A buffer of another part is between them.
  StateShape shape() const {
    const StateBuffer inputs{.name = "inputs", .rows = conv_width - 1, .cols = n_channels},
        matrices{.name = "matrices", .count = n_heads, .rows = key_dim, .cols = value_dim, .by_column = true};
    return {.n_slots = n_slots, .buffers = {inputs, matrices, {.name = "other", .cols = 5}, inputs, matrices}};
  }
  static int first_state(int layer) { return 3 * layer; }
};

struct Inputs {
  std::vector<float> channels, beta, alpha;
  Inputs(LayerRandom& random, const Layer& layer, int n)
      : channels(random.normal(int64_t{n} * layer.n_channels, 0, 1)),
        beta(random.normal(int64_t{n} * layer.n_heads, 0, 1)),
        alpha(random.normal(int64_t{n} * layer.n_heads, -1, 1.5f)) {}
};

struct Steps {
  std::vector<int32_t> positions, q_start, kv_len, state_in, state_out, tokens;
  // n tokens of each sequence after `past` tokens.
  void add(int past, int n, int in, int out) {
    if (q_start.empty()) q_start.push_back(0);
    for (int i = 0; i < n; ++i) positions.push_back(past + i);
    q_start.push_back(static_cast<int32_t>(positions.size()));
    kv_len.push_back(past + n);
    state_in.push_back(past == 0 ? -1 : in);
    state_out.push_back(out);
    tokens.assign(positions.size(), 0);
  }
  Batch batch() const {
    return {.tokens = tokens,
            .positions = positions,
            .q_start = q_start,
            .kv_len = kv_len,
            .state_in = state_in,
            .state_out = state_out};
  }
};

// Both ops of a layer, one after the other.
std::vector<float> run(Backend& backend, StateCache& states, const Layer& l, const Steps& steps, const Inputs& inputs,
                       int layer) {
  const auto n = static_cast<int64_t>(steps.positions.size());
  const Layer& s = l;
  const Tensor x = upload(backend, n, s.n_channels, inputs.channels),
               y = backend.alloc(DType::kF32, n, int64_t{s.n_heads} * s.value_dim);
  backend.begin(steps.batch());
  backend.short_conv({.x = x,
                      .weight = upload(backend, s.n_channels, s.conv_width, l.weight),
                      .states = &states,
                      .buffer = Layer::first_state(layer)});
  backend.delta_rule({.y = y,
                      .qkv = x,
                      .beta = upload(backend, n, s.n_heads, inputs.beta),
                      .alpha = upload(backend, n, s.n_heads, inputs.alpha),
                      .decay = upload(backend, 1, s.n_heads, l.decay),
                      .dt = upload(backend, 1, s.n_heads, l.dt),
                      .n_key_heads = l.n_key_heads,
                      .tiled = l.tiled,
                      .states = &states,
                      .buffer = Layer::first_state(layer) + 1});
  return values_of(backend, y);
}

// Keys have at least 8 elements. Fewer elements may all be so small that rounding decides the direction of the key.
void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 5e-5 * (1 + std::fabs(b[i]))) << "element " << i;
}

// The backend of an instruction set, or of "cuda"; null if there is none.
std::unique_ptr<Backend> backend_named(const std::string& name) {
  if (name != "cuda") return create_cpu_backend({.n_threads = 2, .isa = name});
  try {
    return create_cuda_backend({.device = "cuda"});
  } catch (const UsageError&) {
    return nullptr;
  }
}

class Recurrence : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!backend_) GTEST_SKIP() << "no GPU";
  }
  const uint64_t seed_ = test_seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  LayerRandom random_{seed_};
  std::unique_ptr<Backend> backend_ = backend_named(GetParam()), ref_ = create_ref_backend();
};

TEST_P(Recurrence, EqualsRefInAnySteps) {
  for (int round = 0; round < 12; ++round) {
    constexpr int kSeqs = 3;
    const Layer layer(random_, 2 * kSeqs);
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    int past[kSeqs] = {}, at[kSeqs] = {};
    for (int i = 0; i < 4; ++i) {
      Steps steps;
      for (int seq = 0; seq < kSeqs; ++seq) {  // each sequence has two slots, and may stay in one
        const int n = random_.integer(1, 9), out = 2 * seq + random_.integer(0, 1);
        steps.add(past[seq], n, at[seq], out);
        past[seq] += n;
        at[seq] = out;
      }
      const Inputs inputs(random_, layer, static_cast<int>(steps.positions.size()));
      for (const int l : {0, 1})
        expect_near(run(*backend_, *states, layer, steps, inputs, l), run(*ref_, *ref_states, layer, steps, inputs, l));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A sequence of n tokens, split into steps of at most most_tokens. Each step also has another sequence.
void expect_same_in_cuts(Backend& backend, LayerRandom& random, const Layer& layer, int n, int most_tokens) {
  const int n_channels = layer.n_channels, n_heads = layer.n_heads;
  const Inputs all(random, layer, n);
  const auto states = backend.make_states(layer.shape());
  Steps whole;
  whole.add(0, n, 0, 0);
  const std::vector<float> expected = run(backend, *states, layer, whole, all, 0);
  const size_t width = expected.size() / n;
  for (int begin = 0; begin < n;) {
    const int k = std::min(random.integer(1, most_tokens), n - begin), other = random.integer(1, 5);
    Steps steps;
    steps.add(begin, k, 1, 1);
    steps.add(0, other, 2, 2);
    Inputs part(random, layer, k + other);
    std::copy_n(all.channels.begin() + begin * n_channels, k * n_channels, part.channels.begin());
    std::copy_n(all.beta.begin() + begin * n_heads, k * n_heads, part.beta.begin());
    std::copy_n(all.alpha.begin() + begin * n_heads, k * n_heads, part.alpha.begin());
    const std::vector<float> got = run(backend, *states, layer, steps, part, 0);
    for (size_t i = 0; i < k * width; ++i)
      ASSERT_EQ(got[i], expected[begin * width + i]) << "token " << begin + i / width;
    begin += k;
  }
}

TEST_P(Recurrence, CutsAndOtherSequencesChangeNoBit) {
  expect_same_in_cuts(*backend_, random_, Layer(random_, 3), 30, 8);
}

TEST_P(Recurrence, CutsOfManyTokensChangeNoBitWhereDeterministic) {
  const auto own = GetParam() == "cuda" ? create_cuda_backend({.device = "cuda", .deterministic = true}) : nullptr;
  expect_same_in_cuts(own ? *own : *backend_, random_, Layer(random_, 3, 128), 200, 150);
}

// Heads as in models, and sequences so long that a GPU processes many tokens at once. They run next to short sequences
// and start from a state. Decays range from none to full, shares from none to all of a value; some cases have all keys
// equal.
TEST_P(Recurrence, EqualsRefOverManyTokens) {
  const bool rounds_to_halves = GetParam() == "cuda";
  for (int round = 0; round < 6; ++round) {
    const Layer layer(random_, 8, 128);
    const Layer& s = layer;
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    int past[4] = {};
    for (int step = 0; step < 2; ++step) {
      const int lengths[2][4] = {{step == 0 ? 65 : 1, 64, random_.integer(1, 63), 127},
                                 {random_.integer(64, 200), 63, 200, 2}};
      Steps steps;
      for (int seq = 0; seq < 4; ++seq) {
        const int n = lengths[round % 2][seq];
        steps.add(past[seq], n, 2 * seq + (step + 1) % 2, 2 * seq + step % 2);
        past[seq] += n;
      }
      const int n = static_cast<int>(steps.positions.size());
      Inputs inputs(random_, layer, n);
      const int same = round % 3;
      for (int t = 0; t < n; ++t) {
        if (same == 1)  // not queries too: for a query at right angles to the key, only rounding errors would remain
          for (int c = layer.n_key_heads * 128; c < 2 * layer.n_key_heads * 128; ++c)
            inputs.channels[int64_t{t} * s.n_channels + c] = inputs.channels[c];
        for (int h = 0; h < s.n_heads && round > 1; ++h) {
          const int kind = random_.integer(0, 5);
          float &alpha = inputs.alpha[int64_t{t} * s.n_heads + h], &beta = inputs.beta[int64_t{t} * s.n_heads + h];
          alpha = kind == 0 && same != 1 ? 60.0f : kind < 4 ? -40.0f : alpha;
          beta = random_.integer(0, 3) == 0 ? -50.0f : random_.integer(0, 1) == 0 ? 50.0f : beta;
        }
      }
      const std::vector<float> got = run(*backend_, *states, layer, steps, inputs, 1),
                               want = run(*ref_, *ref_states, layer, steps, inputs, 1);
      const int64_t width = int64_t{s.n_heads} * 128;
      for (int seq = 0; seq < 4; ++seq)
        for (int h = 0; h < s.n_heads; ++h) {
          double squares = 0, errors = 0;
          for (int64_t t = steps.q_start[seq]; t < steps.q_start[seq + 1]; ++t)
            for (int c = 0; c < 128; ++c) {
              const double w = want[t * width + h * 128 + c], error = got[t * width + h * 128 + c] - w;
              ASSERT_TRUE(std::isfinite(error)) << "round " << round << ", step " << step << ", token " << t;
              squares += w * w, errors += error * error;
            }
          // If decay leaves a token only its own key, and the query is at right angles to that key, outputs cancel but
          // errors do not.
          ASSERT_LE(std::sqrt(errors), (!rounds_to_halves ? 2e-5
                                        : same == 1       ? 1.5e-2
                                                          : 4e-3) *
                                           (std::sqrt(squares) + 5e-3))
              << "round " << round << ", step " << step << ", sequence " << seq << ", head " << h << " of "
              << s.n_heads;
        }
    }
  }
}

// A step that writes to another slot leaves its input slot unchanged, so other sequences can start from the input slot
// too.
TEST_P(Recurrence, ASlotThatIsOnlyReadStays) {
  const Layer layer(random_, 4);
  for (Backend* backend : {backend_.get(), ref_.get()}) {
    const auto states = backend->make_states(layer.shape());
    Steps first, next, again;
    first.add(0, 7, 0, 0);
    next.add(7, 5, 0, 1);
    again.add(7, 5, 0, 2);
    run(*backend, *states, layer, first, Inputs(random_, layer, 7), 1);
    const Inputs inputs(random_, layer, 5), others(random_, layer, 5);
    const std::vector<float> once = run(*backend, *states, layer, next, inputs, 1);
    EXPECT_NE(run(*backend, *states, layer, again, others, 1), once);
    EXPECT_EQ(run(*backend, *states, layer, again, inputs, 1), once);
  }
}

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

// Sums over the state have rounding errors in proportion to their terms.
void expect_close_rows(const std::vector<float>& got, const std::vector<float>& want, int64_t width) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t row = 0; row < got.size(); row += static_cast<size_t>(width)) {
    double squares = 0, errors = 0;
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i)
      squares += double{want[i]} * want[i], errors += std::pow(double{got[i]} - want[i], 2);
    ASSERT_LE(std::sqrt(errors), 2e-5 * (1e-3 + std::sqrt(squares))) << "token " << row / static_cast<size_t>(width);
  }
}

TEST_P(Recurrence, ScanEqualsRefInAnySteps) {
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

TEST_P(Recurrence, CutsOfAScanChangeNoBit) {
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

TEST_P(Recurrence, GateEqualsRef) {
  for (const int64_t cols : {1, 7, 16, 100, 513}) {
    const std::vector<float> x = random_.normal(3 * cols, 0, 2), gate = random_.normal(3 * cols, 0, 4);
    std::vector<float> results[2];
    for (Backend* backend : {backend_.get(), ref_.get()}) {
      const Tensor t = upload(*backend, 3, cols, x);
      backend->gate(t, upload(*backend, 3, cols, gate));
      results[backend == ref_.get()] = values_of(*backend, t);
    }
    expect_near(results[0], results[1]);
  }
}

std::vector<std::string> sets() {
  std::vector<std::string> names;
  for (const cpu::Kernels* kernels : cpu::available_kernels()) names.emplace_back(kernels->isa);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Cpu, Recurrence, testing::ValuesIn(sets()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Cuda, Recurrence, testing::Values("cuda"));

}  // namespace
}  // namespace ingot
