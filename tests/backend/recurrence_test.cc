// Gates, short convolutions and the gated delta rule on every instruction set, and on the GPU if there is one, against
// ref. Sequences of any length run in steps of any size, and states move from slot to slot. The tests also check the
// data that a step must not change. The models' goldens show that ref computes the right result.
#include "backend/recurrence_rig.h"

namespace ingot {
namespace {

class Recurrence : public RecurrenceRig {};

// One recurrent layer of some shape, with its parameters and a step's inputs: the same on every backend.
struct Layer {
  int n_slots = 0, n_channels = 0, conv_width = 0, n_heads = 0, key_dim = 0, value_dim = 0;
  int n_key_heads = 1;
  bool tiled = false;
  float share = 1;
  std::vector<float> weight, decay, dt;

  Layer(LayerRandom& random, int slots, int dim = 0 /* any */) : n_slots(slots) {
    n_key_heads = random.integer(1, dim > 0 ? 2 : 3);
    n_heads = n_key_heads * random.integer(1, dim > 0 ? 4 : 3);
    conv_width = random.integer(2, 5);
    key_dim = dim > 0 ? dim : random.integer(8, 40);
    value_dim = dim > 0 ? dim : random.integer(1, 70);
    n_channels = 2 * n_key_heads * key_dim + n_heads * value_dim;
    tiled = random.integer(0, 1) == 1;
    share = static_cast<float>(random.integer(1, 2));
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
                      .share = l.share,
                      .states = &states,
                      .buffer = Layer::first_state(layer) + 1});
  return values_of(backend, y);
}

// Keys have at least 8 elements. Fewer elements may all be so small that rounding decides the direction of the key.
void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 5e-5 * (1 + std::fabs(b[i]))) << "element " << i;
}

TEST_P(Recurrence, EqualsRefInAnySteps) {
  for (int round = 0; round < 12; ++round) {
    const Layer layer(random_, GrowingSequences::kSlots);
    const auto states = backend_->make_states(layer.shape()), ref_states = ref_->make_states(layer.shape());
    GrowingSequences sequences;
    for (int i = 0; i < 4; ++i) {
      const Steps steps = sequences.next(random_);
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

INSTANTIATE_TEST_SUITE_P(Cpu, Recurrence, testing::ValuesIn(instruction_sets()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Cuda, Recurrence, testing::Values("cuda"));

}  // namespace
}  // namespace ingot
