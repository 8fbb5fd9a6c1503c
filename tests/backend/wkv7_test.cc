// RWKV-7's ops and its rule, as scans_test.cc.
#include "backend/scans_rig.h"

namespace ingot {
namespace {

class Wkv7 : public Scans {};

// The inputs of the rule, the rule, and what follows it. All inputs of a token are in one row; the outputs are those of
// the rule, and the values of the first layer.
struct Wkv7Layer {
  int head_dim, n_heads, keys;
  bool is_first;
  std::vector<float> k_k, k_a, r_k, weight, bias;

  Wkv7Layer(LayerRandom& random, int dim, bool first)
      : head_dim(dim), n_heads(random.integer(1, 3)), keys(n_heads * dim), is_first(first) {
    k_k = random.normal(keys, 0.7f, 0.2f), k_a = random.normal(keys, 1, 0.2f), r_k = random.normal(keys, 0, 0.3f);
    weight = random.normal(keys, 1, 0.2f), bias = random.normal(keys, 0, 0.2f);
  }
  int columns() const { return 8 * keys; }  // r, k, v, keep, b, v_gate, v_first, gate
  int width() const { return 2 * keys; }
  StateShape shape() const {
    return states_of({.name = "m", .count = n_heads, .rows = head_dim, .cols = head_dim, .by_column = true});
  }
  std::vector<float> run(Backend& backend, StateCache& states, const Steps& steps,
                         const std::vector<float>& inputs) const {
    const auto n = static_cast<int64_t>(steps.positions.size());
    const Tensor all = upload(backend, n, columns(), inputs), both = backend.alloc(DType::kF32, n, width()),
                 a = backend.alloc(DType::kF32, n, keys), y = both.slice_cols(0, keys),
                 v_first = both.slice_cols(keys, keys);
    const auto part = [&](int i) { return all.slice_cols(int64_t{i} * keys, keys); };
    const auto row = [&](const std::vector<float>& values) { return upload(backend, 1, keys, values); };
    backend.begin(steps.batch());
    if (!is_first) backend.copy(v_first, part(6));
    backend.wkv7({.out = y,
                  .inputs = {.k = part(1),
                             .keep = part(3),
                             .b = part(4),
                             .a = a,
                             .v = part(2),
                             .v_gate = is_first ? Tensor{} : part(5),
                             .v_first = v_first,
                             .k_k = row(k_k),
                             .k_a = row(k_a),
                             .n_heads = n_heads},
                  .rule = {.y = y,
                           .q = part(0),
                           .keep = part(3),
                           .a = a,
                           .b = part(4),
                           .k = part(1),
                           .least_keep = 0.54f,
                           .v = part(2),
                           .states = &states,
                           .buffer = 1},
                  .outputs = {.y = y,
                              .r = part(0),
                              .k = part(1),
                              .v = part(2),
                              .gate = part(7),
                              .r_k = row(r_k),
                              .norm = {.weight = row(weight), .bias = row(bias), .eps = 64e-5f},
                              .n_heads = n_heads}});
    return values_of(backend, both);
  }
};

TEST_P(Wkv7, RuleEqualsRefInAnySteps) {
  for (const int head_dim : {5, 8, 33, 64, 128, 200})
    if (!HasFailure()) expect_ref(Wkv7Layer(random_, head_dim, head_dim % 2 == 1), 60, 1);
}

TEST_P(Wkv7, RuleEqualsRefOverManyTokens) {
  for (const bool is_first : {false, true})
    if (!HasFailure()) expect_ref_over_many_tokens(Wkv7Layer(random_, 64, is_first));
}

TEST_P(Wkv7, CutsOfTheRuleChangeNoBitWhereDeterministic) {
  const auto own = GetParam() == "cuda" ? create_cuda_backend({.device = "cuda", .deterministic = true}) : nullptr;
  expect_same_in_cuts(Wkv7Layer(random_, 64, false), own ? *own : *backend_, 200, 150);
}

// The mix of a token with the one before it.
struct MixLayer {
  int dim, n_mixes;
  std::vector<float> mix;

  MixLayer(LayerRandom& random, int n_columns, int n)
      : dim(n_columns), n_mixes(n), mix(random.normal(int64_t{n} * n_columns, 0.5f, 0.3f)) {}
  int columns() const { return dim; }
  int width() const { return n_mixes * dim; }
  StateShape shape() const {
    return states_of({.name = "last", .cols = dim});
  }
  std::vector<float> run(Backend& backend, StateCache& states, const Steps& steps,
                         const std::vector<float>& inputs) const {
    const auto n = static_cast<int64_t>(steps.positions.size());
    const Tensor y = backend.alloc(DType::kF32, n, width());
    backend.begin(steps.batch());
    backend.mix_tokens({.y = y,
                        .x = upload(backend, n, dim, inputs),
                        .mix = upload(backend, n_mixes, dim, mix),
                        .states = &states,
                        .buffer = 1});
    return values_of(backend, y);
  }
};

TEST_P(Wkv7, MixesEqualRefInAnySteps) {
  for (const int dim : {9, 50, 64, 300})  // a single number may be the rest of a difference
    for (const int n_mixes : {1, 6})
      if (!HasFailure()) expect_ref(MixLayer(random_, dim, n_mixes), 70, 1);
}

TEST_P(Wkv7, CutsOfMixesChangeNoBit) { expect_same_in_cuts(MixLayer(random_, 70, 6)); }

INSTANTIATE_TEST_SUITE_P(Cpu, Wkv7, testing::ValuesIn(instruction_sets()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Cuda, Wkv7, testing::Values("cuda"));

}  // namespace
}  // namespace ingot
