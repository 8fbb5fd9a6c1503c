// Ranks that have whole experts: the choice names each expert on the one rank that has it, and the sum over the ranks
// of their mixtures is the mixture of one device. On every device of this machine, with random numbers of experts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/create_cuda.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "ops_rig.h"
#include "test_seed.h"

namespace ingot {
namespace {

std::unique_ptr<Backend> reserved_backend(const std::string& name) {
  std::unique_ptr<Backend> backend;
  try {
    backend = name == "ref"   ? create_ref_backend()
              : name == "cpu" ? create_cpu_backend({.n_threads = 2})
                              : create_cuda_backend({.device = "cuda"});
  } catch (const UsageError&) {
    return nullptr;
  }
  backend->reserve(
      {.max_tokens = 64, .max_seqs = 1, .max_logits = 1, .max_kv_len = 64, .max_width = 512, .n_vocab = 16});
  return backend;
}

template <class T>
std::vector<T> downloaded(Backend& backend, const Tensor& t) {
  std::vector<T> values(static_cast<size_t>(t.rows * t.cols));
  backend.download(values.data(), t);
  return values;
}

// The matrices of all experts, from which parts can be prepared.
class Stack {
 public:
  Stack(Format format, int64_t n_experts, int64_t n_out, int64_t n_in, uint64_t seed)
      : whole_{.format = format, .n_out = n_out, .n_in = n_in, .n_experts = n_experts}, bytes_(whole_.bytes()) {
    fill_random(format, seed, bytes_.data(), n_experts * n_out * n_in / info(format).block_size,
                1.0f / std::sqrt(static_cast<float>(n_in)));
  }
  Weight part(Backend& backend, int64_t first, int64_t n) const {
    Weight w = whole_;
    w.codes = bytes_.data() + first * w.n_out * static_cast<int64_t>(row_bytes(w.format, w.n_in));
    w.n_experts = n;
    return backend.prepare(w, kForMatmul);
  }

 private:
  Weight whole_;
  std::vector<uint8_t> bytes_;
};

struct Mixture {
  std::vector<int32_t> ids;             // [n, n_used]
  std::vector<float> weights, outputs;  // [n, n_used], [n, dim]
};

class OwnExperts : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kDim = 256, kFfn = 512;

  // The mixture of the experts [first, first + n_own); n_own 0: of all.
  Mixture run(int first, int n_own) {
    OpRig rig(*backend_, seed_);
    const int64_t rows = n_ * route_.n_used, n_here = n_own > 0 ? n_own : n_experts_;
    const Weight gate = gate_->part(*backend_, first, n_here), up = up_->part(*backend_, first, n_here),
                 down = down_->part(*backend_, first, n_here);
    const Weight router = router_->part(*backend_, 0, 1);
    MoeArgs a{.residual = rig.values(n_, kDim, 0.0f),
              .x = rig.activations(n_, kDim),
              .w_router = &router,
              .route = route_,
              .w_gate = &gate,
              .w_up = &up,
              .w_down = &down};
    a.route.first_own = first, a.route.n_own = n_own;
    a.logits = rig.output(n_, n_experts_), a.weights = rig.output(n_, route_.n_used);
    a.ids = rig.experts(n_, route_.n_used, n_experts_);
    a.gate = rig.output(rows, kFfn), a.up = rig.output(rows, kFfn), a.out = rig.output(rows, kDim);
    backend_->moe(a);
    backend_->synchronize();
    return {downloaded<int32_t>(*backend_, a.ids), downloaded<float>(*backend_, a.weights),
            downloaded<float>(*backend_, a.residual)};
  }

  void make_layer(Format format, std::mt19937_64& random) {
    seed_ = random();
    n_experts_ = 2 + static_cast<int>(random() % 60);
    route_ = {.n_used = 1 + static_cast<int>(random() % static_cast<uint64_t>(std::min(8, n_experts_))),
              .scoring = random() % 2 == 0 ? Scoring::kSoftmax : Scoring::kSigmoid,
              .normalize = random() % 2 == 0};
    gate_.emplace(format, n_experts_, kFfn, kDim, random()), up_.emplace(format, n_experts_, kFfn, kDim, random());
    down_.emplace(format, n_experts_, kDim, kFfn, random());
    router_.emplace(Format::BF16, 1, n_experts_, kDim, random());
  }

  std::unique_ptr<Backend> backend_;
  uint64_t seed_ = 0;
  int n_experts_ = 0;
  int64_t n_ = 0;
  RouteArgs route_;
  std::optional<Stack> gate_, up_, down_, router_;
};

TEST_P(OwnExperts, TheSumOverRanksIsTheWholeMixture) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  for (const Format format : {Format::F16, Format::Q4_K, Format::Q8_0})
    for (const int64_t n : {1, 2, 3, 40}) {
      backend_ = reserved_backend(GetParam());
      if (!backend_) GTEST_SKIP() << "no device " << GetParam();
      make_layer(format, random);
      n_ = n;
      const int n_ranks = 1 + static_cast<int>(random() % static_cast<uint64_t>(std::min(n_experts_, 9)));
      SCOPED_TRACE(fmt::format("{}, {} tokens, {} of {} experts on {} ranks, seed {}", info(format).name, n,
                               route_.n_used, n_experts_, n_ranks, seed));
      const Mixture whole = run(0, 0);
      std::vector<int> owners(whole.ids.size());
      std::vector<double> sum(whole.outputs.size());
      for (int rank = 0; rank < n_ranks; ++rank) {
        const int first = n_experts_ * rank / n_ranks, end = n_experts_ * (rank + 1) / n_ranks;
        const Mixture own = run(first, end - first);
        for (size_t i = 0; i < owners.size(); ++i) {
          owners[i] += own.ids[i] >= 0;
          EXPECT_EQ(own.weights[i], own.ids[i] >= 0 ? whole.weights[i] : 0);
          EXPECT_EQ(own.ids[i], whole.ids[i] >= first && whole.ids[i] < end ? whole.ids[i] - first : -1);
        }
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += own.outputs[i];
      }
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
      double squares = 0, error_squares = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        const double error = sum[i] - whole.outputs[i];
        squares += double{whole.outputs[i]} * whole.outputs[i], error_squares += error * error;
      }
      EXPECT_GT(squares, 0);
      EXPECT_LT(std::sqrt(error_squares / squares), GetParam() == std::string("ref") ? 1e-6 : 1e-2);
    }
}

TEST_P(OwnExperts, ASumLeavesOutWeightZeroButNotNan) {
  backend_ = reserved_backend(GetParam());
  if (!backend_) GTEST_SKIP() << "no device " << GetParam();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto tensor = [&](int64_t rows, int64_t cols, const std::vector<float>& values) {
    const Tensor t = backend_->alloc(DType::kF32, rows, cols);
    backend_->upload(t, values.data());
    return t;
  };
  const Tensor residual = tensor(3, 1, {1, 1, 1}), y = tensor(6, 1, {kNan, 2, 3, kNan, 4, 5}),
               weights = tensor(3, 2, {0, 0.5f, 0, 0, kNan, 0});
  backend_->moe_combine(residual, y, weights);
  const std::vector<float> sums = downloaded<float>(*backend_, residual);
  EXPECT_EQ(sums[0], 2);
  EXPECT_EQ(sums[1], 1);
  EXPECT_TRUE(std::isnan(sums[2]));
}

INSTANTIATE_TEST_SUITE_P(Devices, OwnExperts, testing::Values("ref", "cpu", "cuda"),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
