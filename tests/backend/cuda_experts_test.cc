// A feed-forward layer of experts on the GPU, as in a step: the norm, the router, the choice of experts, and the
// outputs of the chosen experts. Runs one token and a few tokens, launched directly and replayed. The choice is
// compared with the host's choice for router logits computed in double. The outputs are compared with ref's for the
// same rows and choice. Skipped if the build has no CUDA or the machine no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/blocks/experts.h"
#include "backend/cuda/create_cuda.h"
#include "backend/ref/ref_backend.h"
#include "backend/route.h"
#include "base/error.h"
#include "base/half.h"
#include "ops_error.h"
#include "ops_rig.h"
#include "test_seed.h"

namespace ingot {
namespace {

struct ExpertsCase {
  const char* name;
  Format gate, down;
  int64_t n, n_experts, dim, ffn;
  RouteArgs route;
  bool biases = false, route_bias = false;
  Activation act = Activation::kSilu;
  Format router = Format::F16;
};

const ExpertsCase kExpertsCases[] = {
    {"q4_0, as a model is", Format::Q4_0, Format::Q4_0, 1, 12, 2048, 768, {.n_used = 8, .normalize = true}},
    {"q4_0, parts of tiles", Format::Q4_0, Format::Q4_0, 1, 24, 320, 352, {.n_used = 5}},
    {"q4_0, parts of tiles, more tokens", Format::Q4_0, Format::Q4_0, 7, 40, 352, 320, {.n_used = 5}},
    {"q4_0, more used than a warp has lanes", Format::Q4_0, Format::Q4_0, 1, 64, 64, 64, {.n_used = 33}},
    {"q4_0, router in codes", Format::Q4_0, Format::Q4_0, 2, 32, 256, 128, {.n_used = 4}, false, false, Activation::kSilu, Format::Q8_0},
    {"q4_1, gelu", Format::Q4_1, Format::Q4_1, 3, 16, 512, 544, {.n_used = 3}, false, false, Activation::kGeluTanh},
    {"q4_k and q6_k", Format::Q4_K, Format::Q6_K, 3, 16, 512, 512, {.n_used = 4, .normalize = true}},
    {"q8_0, many experts", Format::Q8_0, Format::Q8_0, 8, 150, 256, 64, {.n_used = 6}},
    {"q8_0, one of its own kind", Format::Q8_0, Format::Q8_0, 1, 1, 512, 1024, {.n_used = 1, .scoring = Scoring::kSigmoid, .scale = 0.7f}},
    {"q5_k, sixteen tokens", Format::Q5_K, Format::Q5_K, 16, 32, 256, 256, {.n_used = 2}},
    {"q2_k and q3_k", Format::Q2_K, Format::Q3_K, 1, 8, 512, 768, {.n_used = 2}},
    {"mxfp4, biases", Format::MXFP4, Format::MXFP4, 2, 32, 1024, 288, {.n_used = 4, .normalize = true}, true, false, Activation::kClampedSwiglu},
    {"nvfp4, biases", Format::NVFP4, Format::NVFP4, 1, 16, 704, 384, {.n_used = 4}, true},
    {"groups", Format::Q4_0, Format::Q8_0, 4, 64, 256, 128,
     {.n_used = 6, .scoring = Scoring::kSigmoid, .normalize = true, .scale = 2.5f, .n_groups = 8, .n_groups_used = 4}, false, true},
    {"bf16", Format::BF16, Format::BF16, 1, 16, 1024, 520, {.n_used = 8}, true, false, Activation::kSilu, Format::BF16},
    {"f16, some tokens", Format::F16, Format::F16, 5, 40, 328, 200, {.n_used = 3}, true},
    {"q4_0, as a rank of a model is", Format::Q4_0, Format::Q4_0, 1, 128, 2048, 768, {.n_used = 8, .normalize = true, .first_own = 40, .n_own = 37}},
    {"q4_k and q6_k, own experts", Format::Q4_K, Format::Q6_K, 2, 16, 512, 512, {.n_used = 8, .first_own = 8, .n_own = 8}, true},
    {"q8_0, few tokens have own experts", Format::Q8_0, Format::Q8_0, 8, 60, 256, 64, {.n_used = 2, .first_own = 53, .n_own = 7}},
    {"mxfp4, a single own expert", Format::MXFP4, Format::MXFP4, 1, 4, 1024, 288, {.n_used = 2, .first_own = 3, .n_own = 1}, true},
    {"f16, own experts", Format::F16, Format::F16, 3, 16, 328, 200, {.n_used = 4, .normalize = true, .first_own = 5, .n_own = 6}, true},
    {"f8, a single own expert", Format::F8_E4M3, Format::F8_E4M3, 2, 3, 512, 256, {.n_used = 2, .first_own = 1, .n_own = 1}},
    {"f8, as a model is", Format::F8_E4M3, Format::F8_E4M3, 1, 16, 2048, 768, {.n_used = 8, .normalize = true}},
    {"f8, one row", Format::F8_E4M3, Format::F8_E4M3, 1, 4, 256, 128, {.n_used = 1}},
    {"f8, short tiles", Format::F8_E4M3, Format::F8_E4M3, 8, 16, 512, 384, {.n_used = 5, .normalize = true}, true},
    {"f8, long tiles", Format::F8_E4M3, Format::F8_E4M3, 75, 8, 256, 384, {.n_used = 4}},
    {"f8, own experts", Format::F8_E4M3, Format::F8_E4M3, 3, 16, 256, 256, {.n_used = 4, .first_own = 5, .n_own = 6}, true},
    {"f8 in blocks of 32, five rows", Format::F8_E4M3_32, Format::F8_E4M3_32, 1, 16, 352, 320, {.n_used = 5}, true},
    {"f8 in blocks of 32, sixteen rows", Format::F8_E4M3_32, Format::F8_E4M3_32, 4, 24, 320, 352, {.n_used = 4, .normalize = true}},
    {"f8 in blocks of 32, short tiles", Format::F8_E4M3_32, Format::F8_E4M3_32, 10, 24, 320, 352, {.n_used = 4}},
    {"f8 in blocks of 32, long tiles", Format::F8_E4M3_32, Format::F8_E4M3, 75, 8, 352, 384, {.n_used = 4, .normalize = true}, true},
    {"f8 in blocks of 32, a single own expert", Format::F8_E4M3_32, Format::F8_E4M3_32, 2, 3, 512, 256, {.n_used = 2, .first_own = 1, .n_own = 1}},
    {"mxfp4, long tiles", Format::MXFP4, Format::MXFP4, 75, 8, 352, 288, {.n_used = 4, .normalize = true}},
    {"nvfp4, long tiles", Format::NVFP4, Format::NVFP4, 75, 8, 320, 384, {.n_used = 4}},
    {"iq4_nl, a codebook", Format::IQ4_NL, Format::IQ4_NL, 2, 16, 320, 352, {.n_used = 4}},
    {"q4_0, 64 tokens", Format::Q4_0, Format::Q4_0, 64, 128, 2048, 256, {.n_used = 8, .normalize = true}},
    {"q8_0, 17 tokens", Format::Q8_0, Format::Q8_0, 17, 250, 352, 64, {.n_used = 6}, true},
    {"groups, 40 tokens", Format::Q4_0, Format::Q8_0, 40, 64, 256, 128,
     {.n_used = 6, .scoring = Scoring::kSigmoid, .normalize = true, .scale = 2.5f, .n_groups = 8, .n_groups_used = 4}, false, true},
    {"bf16, 33 tokens", Format::BF16, Format::BF16, 33, 3, 1032, 72, {.n_used = 2}, true, false, Activation::kSilu, Format::BF16},
    {"q4_0, 50 tokens, own experts", Format::Q4_0, Format::Q4_0, 50, 128, 320, 352, {.n_used = 8, .normalize = true, .first_own = 40, .n_own = 37}},
    {"q4_0, many experts, some without rows", Format::Q4_0, Format::Q4_0, 60, 300, 512, 256, {.n_used = 8}},
    {"q8_0, expert e begins in tile e", Format::Q8_0, Format::Q8_0, 96, 300, 512, 256, {.n_used = 8, .normalize = true}, true},
    {"q4_k and q6_k, tiles of 16 rows", Format::Q4_K, Format::Q6_K, 160, 300, 512, 256, {.n_used = 8}},
    {"f16, many experts, of which most are own", Format::F16, Format::F16, 96, 300, 512, 200, {.n_used = 8, .first_own = 20, .n_own = 250}},
    {"mxfp4, tiles of one step", Format::MXFP4, Format::MXFP4, 96, 300, 128, 128, {.n_used = 8}},
    {"f16 and q4_0", Format::F16, Format::Q4_0, 1, 8, 96, 64, {.n_used = 2}, false, false, Activation::kSilu, Format::F32},
};

std::vector<float> floats_of(Backend& backend, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
  if (t.dtype == DType::kF32) {
    backend.download(values.data(), t);
    return values;
  }
  std::vector<uint16_t> halves(values.size());
  backend.download(halves.data(), t);
  std::ranges::transform(halves, values.begin(), float_from_f16);
  return values;
}

class ExpertLayer {
 public:
  ExpertLayer(Backend& backend, const ExpertsCase& c, uint64_t seed) : backend_(backend), c_(c), rig_(backend, seed) {
    rows_ = c.n * c.route.n_used;
    const int64_t n_here = c.route.n_own > 0 ? c.route.n_own : c.n_experts;
    a_.residual = rig_.values(c.n, c.dim, 0.1f);
    start_ = floats_of(backend, a_.residual);
    norm_ = rig_.norm(c.dim);
    a_.w_router = &rig_.weight(c.router, c.n_experts, c.dim);
    a_.w_gate = &rig_.weight(c.gate, c.ffn, c.dim, n_here), a_.w_up = &rig_.weight(c.gate, c.ffn, c.dim, n_here);
    a_.w_down = &rig_.weight(c.down, c.dim, c.ffn, n_here);
    if (c.biases) {
      a_.b_router = rig_.values(1, c.n_experts);
      a_.b_gate = rig_.values(n_here, c.ffn), a_.b_up = rig_.values(n_here, c.ffn),
      a_.b_down = rig_.values(n_here, c.dim);
    }
    a_.route = c.route, a_.act = c.act;
    if (c.route_bias) a_.route.bias = rig_.values(1, c.n_experts, 0.2f);
    a_.x = backend.alloc(backend.act_dtype(), c.n, c.dim);
    a_.logits = rig_.output(c.n, c.n_experts), a_.weights = rig_.output(c.n, c.route.n_used),
    a_.ids = rig_.experts(c.n, c.route.n_used, c.n_experts);
    const auto hidden = [&](int64_t cols) {  // of NaN
      const Tensor t = backend.alloc(backend.act_dtype(), rows_, cols);
      backend.upload(t, std::vector<uint8_t>(static_cast<size_t>(rows_ * cols) * dtype_bytes(t.dtype), 0xFF).data());
      return t;
    };
    a_.gate = hidden(c.ffn), a_.up = hidden(c.ffn), a_.out = hidden(c.dim);
    ExpertsBlock block{.x = a_.residual,
                       .norm = norm_,
                       .w_router = *a_.w_router,
                       .b_router = a_.b_router,
                       .route = a_.route,
                       .w_gate = *a_.w_gate,
                       .w_up = *a_.w_up,
                       .w_down = *a_.w_down,
                       .b_gate = a_.b_gate,
                       .b_up = a_.b_up,
                       .b_down = a_.b_down,
                       .act = a_.act,
                       .n_experts = static_cast<int>(c.n_experts),
                       .ffn_dim = static_cast<int>(c.ffn)};
    block.normed = a_.x, block.logits = a_.logits, block.ids = a_.ids, block.weights = a_.weights;
    block.gate = a_.gate, block.up = a_.up, block.out = a_.out;
    program_.blocks.emplace_back(block);
  }

  // A step with one token for each sequence. Every run starts from the same residual stream.
  void run() {
    std::vector<int32_t> zeros(static_cast<size_t>(c_.n)), ones(zeros.size(), 1), starts(zeros.size() + 1);
    for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int32_t>(i);
    backend_.upload(a_.residual, start_.data());
    backend_.run(program_, {.tokens = zeros, .positions = zeros, .q_start = starts, .kv_len = ones});
    backend_.synchronize();
  }

  // ref's result for the rows and the choice of another layer.
  std::vector<float> repeat(const ExpertLayer& other) {
    const auto copy = [&](const Tensor& from) {
      const Tensor to = backend_.alloc(DType::kF32, from.rows, from.cols);
      const std::vector<float> values = floats_of(other.backend_, from);
      backend_.upload(to, values.data());
      return to;
    };
    std::vector<int32_t> ids = other.ids();
    backend_.upload(a_.ids, ids.data());
    const Tensor x = copy(other.a_.x), weights = copy(other.a_.weights);
    backend_.moe_matmul(a_.gate, x, *a_.w_gate, a_.ids, a_.b_gate);
    backend_.moe_matmul(a_.up, x, *a_.w_up, a_.ids, a_.b_up);
    backend_.act_mul(a_.gate, a_.gate, a_.up, a_.act);
    backend_.moe_matmul(a_.out, a_.gate, *a_.w_down, a_.ids, a_.b_down);
    backend_.moe_combine(a_.residual, a_.out, weights);
    return residual();
  }

  // Compares the other layer's choice with the host's for the same rows x. Skips a choice that depends on the fourth
  // digit of a logit.
  void expect_choice(const ExpertLayer& other, std::mt19937_64& random) {
    const Tensor x = backend_.alloc(DType::kF32, c_.n, c_.dim);
    const std::vector<float> rows = floats_of(other.backend_, other.a_.x);
    backend_.upload(x, rows.data());
    backend_.matmul(a_.logits, x, *a_.w_router, a_.b_router);
    const std::vector<float> logits = floats_of(backend_, a_.logits),
                             got_weights = floats_of(other.backend_, other.a_.weights);
    const std::vector<int32_t> got = other.ids();
    const auto n_used = static_cast<size_t>(c_.route.n_used), n_experts = static_cast<size_t>(c_.n_experts);
    for (size_t t = 0; t < static_cast<size_t>(c_.n); ++t) {
      const std::vector<float> row(logits.begin() + static_cast<int64_t>(t * n_experts),
                                   logits.begin() + static_cast<int64_t>((t + 1) * n_experts));
      std::vector<int32_t> want(n_used), moved_ids(n_used);
      std::vector<float> weights(n_used), moved_weights(n_used);
      route_token(want.data(), weights.data(), row, a_.route);
      bool close = false;
      for (int trial = 0; trial < 32; ++trial) {
        std::vector<float> moved = row;
        for (float& v : moved) v += std::uniform_real_distribution<float>(-2e-3f, 2e-3f)(random);
        route_token(moved_ids.data(), moved_weights.data(), moved, a_.route);
        close |= moved_ids != want;
      }
      if (close) continue;
      for (size_t k = 0; k < n_used; ++k) {
        ASSERT_EQ(got[t * n_used + k], want[k]) << "token " << t << ", choice " << k;
        ASSERT_NEAR(got_weights[t * n_used + k], weights[k], 4e-3 * std::fabs(c_.route.scale))
            << "token " << t << ", choice " << k;
      }
    }
  }

  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids(static_cast<size_t>(rows_));
    backend_.download(ids.data(), a_.ids);
    return ids;
  }
  std::vector<float> residual() const { return floats_of(backend_, a_.residual); }

 private:
  Backend& backend_;
  const ExpertsCase& c_;
  OpRig rig_;
  NormArgs norm_;
  MoeArgs a_;  // a_.x: the rows after their norm
  Program program_;
  int64_t rows_ = 0;
  std::vector<float> start_;
};

TEST(CudaExperts, AStepOfFewTokensEqualsRef) {
  std::unique_ptr<Backend> backend, ref = create_ref_backend();
  try {
    backend = create_cuda_backend({.device = "cuda"});
  } catch (const UsageError&) {
    GTEST_SKIP() << "no GPU";
  }
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  const StepLimits limits = {
      .max_tokens = 160, .max_seqs = 160, .max_logits = 1, .max_kv_len = 64, .max_width = 2048, .n_vocab = 16};
  backend->reserve(limits);
  ref->reserve(limits);
  for (const ExpertsCase& c : kExpertsCases) {
    SCOPED_TRACE(std::string(c.name) + ", seed " + std::to_string(seed));
    ExpertLayer here(*backend, c, seed), there(*ref, c, seed);
    here.run();
    const std::vector<float> first = here.residual();
    there.expect_choice(here, random);
    EXPECT_LE(relative_error(first, there.repeat(here)), 4e-3);
    for (int i = 0; i < 5; ++i) {  // first replays; then kernels for these sizes, if the sizes are large enough
      if (i == 2) backend->await_kernels();
      here.run();
      EXPECT_EQ(here.residual(), first) << "run " << i;
    }
  }
}

}  // namespace
}  // namespace ingot
