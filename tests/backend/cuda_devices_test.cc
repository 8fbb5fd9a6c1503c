// Two backends in one process, each called by a separate thread. All results are the same, bit by bit, on two GPUs of
// the same model and on one shared GPU. Skipped if there are too few GPUs.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "backend/blocks/embed.h"
#include "backend/blocks/head.h"
#include "backend/cuda/create_cuda.h"
#include "base/error.h"
#include "ops_cases.h"
#include "test_seed.h"

namespace ingot {
namespace {

// Uses the kernels of the fixed list, because timings may choose other kernels on another GPU of the same model.
// Returns null if the device does not exist.
std::unique_ptr<Backend> backend_on(const char* device) {
  try {
    return create_cuda_backend({.device = device, .kernels = "fixed"});
  } catch (const UsageError&) {
    return nullptr;
  }
}

std::string kind_of(const Backend& backend) { return backend.description().substr(backend.description().find(": ")); }

using Bytes = std::vector<char>;

Bytes downloaded(Backend& backend, const Tensor& t) {
  Bytes bytes(static_cast<size_t>(t.rows * t.cols) * dtype_bytes(t.dtype));
  backend.download(bytes.data(), t);
  return bytes;
}

struct Result {
  std::string name;
  Bytes bytes;
};

void run_cases(Backend& backend, uint64_t seed, std::vector<Result>& results) {
  backend.reserve(kCaseLimits);
  for (const OpCase& c : all_cases()) {
    if (!runs_on(backend, c)) continue;
    OpRig rig(backend, seed);
    const OpRun op = c.prepare(rig);
    op.run();
    for (const Tensor& t : op.outputs) results.push_back({c.name, downloaded(backend, t)});
  }
}

// Replayed decode steps of a program, then a draw from each row.
void run_steps(Backend& backend, uint64_t seed, std::vector<Result>& results) {
  OpRig rig(backend, seed);
  Program program;
  program.dim = 1024;
  program.blocks.emplace_back(EmbedBlock{.table = rig.weight(Format::F16, 50, 1024)});
  program.blocks.emplace_back(
      HeadBlock{.norm = rig.norm(1024), .output = rig.weight(Format::Q4_0, 512, 1024), .n_vocab = 512});
  program.allocate(backend, kCaseLimits);
  const SamplingParams params{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
  for (int32_t i = 0; i < 6; ++i) {
    const std::vector<int32_t> tokens{i, 40 - i}, positions{0, 0}, q_start{0, 1, 2}, kv_len{1, 1}, blocks{0, 1},
        rows{0, 1};
    backend.run(program, {tokens, positions, q_start, kv_len, blocks, 1, rows});
    const Tensor logits = program.output(2, 2, 2);
    const SampleRow draws[] = {{&params, i, {}, nullptr}, {&params, i + 1, {}, nullptr}};
    backend.sample(logits, draws);
    Bytes drawn;
    for (const Sampled& s : backend.wait())
      drawn.insert(drawn.end(), reinterpret_cast<const char*>(&s.token), reinterpret_cast<const char*>(&s.token + 1));
    results.push_back({"step " + std::to_string(i), downloaded(backend, logits)});
    results.push_back({"draws " + std::to_string(i), drawn});
  }
}

class CudaTwoDevices : public testing::TestWithParam<const char*> {};

TEST_P(CudaTwoDevices, RunSideBySide) {
  std::unique_ptr<Backend> backends[] = {backend_on("cuda:0"), backend_on(GetParam())};
  if (!backends[0] || !backends[1]) GTEST_SKIP() << "there is no " << GetParam();
  if (kind_of(*backends[0]) != kind_of(*backends[1])) GTEST_SKIP() << "they are of two kinds";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::future<std::vector<Result>> results[2];
  for (int i = 0; i < 2; ++i)  // the thread that destroys a backend is not the thread that made it
    results[i] = std::async(std::launch::async, [seed, backend = std::move(backends[i])]() {
      std::vector<Result> all;
      run_cases(*backend, seed, all);
      run_steps(*backend, seed, all);
      return all;
    });
  const std::vector<Result> a = results[0].get(), b = results[1].get();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
}

// One thread that alternates between the two backends.
TEST_P(CudaTwoDevices, TakeTurns) {
  const auto first = backend_on("cuda:0"), second = backend_on(GetParam());
  if (!first || !second) GTEST_SKIP() << "there is no " << GetParam();
  if (kind_of(*first) != kind_of(*second)) GTEST_SKIP() << "they are of two kinds";
  for (Backend* backend : {first.get(), second.get()}) backend->reserve(kCaseLimits);
  for (const uint64_t seed : {1, 2}) {
    OpRig here(*first, seed), there(*second, seed);
    const Tensor x = here.activations(3, 512), rx = there.activations(3, 512), y = here.output(3, 96),
                 ry = there.output(3, 96);
    const Weight &w = here.weight(Format::Q8_0, 96, 512), &rw = there.weight(Format::Q8_0, 96, 512);
    first->matmul(y, x, w);
    second->matmul(ry, rx, rw);
    first->matmul_add(y, x, w);
    second->matmul_add(ry, rx, rw);
    EXPECT_EQ(downloaded(*first, y), downloaded(*second, ry));
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaTwoDevices, testing::Values("cuda:1", "cuda:0"), [](const auto& test) {
  return std::string(test.param) == "cuda:0" ? "BothAreOne" : "OfOneKind";
});

}  // namespace
}  // namespace ingot
