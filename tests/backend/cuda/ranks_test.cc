// Several GPUs, one thread each. Their sums equal the host's and are bit-identical on all GPUs, in direct launches and
// in a model's recorded steps. Skipped with one GPU.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <functional>
#include <random>
#include <thread>

#include "backend/cuda/create_cuda.h"
#include "backend/thread_communicator.h"
#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

int n_gpus() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

// Runs f(backend, rank) on n GPUs; the first error is a failure.
void on_gpus(int n, const std::function<void(Backend&, int)>& f) {
  const auto ranks = std::make_shared<ThreadRanks>(n, std::chrono::seconds(30));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      const std::shared_ptr<Communicator> communicator = ThreadRanks::communicator(ranks, r);
      try {
        const auto backend = create_cuda_backend({.device = "cuda:" + std::to_string(r)});
        backend->connect(communicator);
        f(*backend, r);
        char own = 0;
        std::vector<char> all(static_cast<size_t>(n));
        communicator->exchange(all.data(), &own, 1);
        backend->connect(nullptr);
      } catch (const std::exception& error) {
        communicator->abort(std::current_exception());
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> numbers(uint64_t seed, size_t n) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

TEST(CudaRanks, SumsEqualThoseOfTheHost) {
  const int n = std::min(n_gpus(), 8);
  if (n < 2) GTEST_SKIP() << "there are not two GPUs";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  struct Size {
    int64_t rows, cols;
  };
  // From one slice of one block to more than the kernel for small sums supports. One size occurs twice, so that buffers
  // are reused.
  constexpr Size kSizes[] = {{1, 4},     {1, 1024},  {1, 4096},  {3, 4096},   {1, 4096},
                             {33, 2880}, {64, 8192}, {65, 8192}, {512, 4096}, {7, 36}};
  std::vector<std::vector<std::vector<float>>> results(static_cast<size_t>(n));
  on_gpus(n, [&](Backend& backend, int rank) {
    for (int round = 0; round < 3; ++round)
      for (const auto& [rows, cols] : kSizes) {
        const auto size = static_cast<size_t>(rows * cols);
        const Tensor x = backend.alloc(DType::kF32, rows, cols), y = backend.alloc(DType::kF32, rows, cols);
        backend.upload(x, numbers(seed, size).data());
        backend.upload(y, numbers(seed + 1 + static_cast<uint64_t>(rank), size).data());
        backend.add_reduced(x, y);
        std::vector<float> got(size);
        backend.download(got.data(), x);
        results[static_cast<size_t>(rank)].push_back(got);
      }
  });
  for (size_t i = 0; i < results[0].size(); ++i) {
    const size_t size = results[0][i].size();
    std::vector<double> expected(size);
    const std::vector<float> x = numbers(seed, size);
    for (size_t j = 0; j < size; ++j) expected[j] = x[j];
    for (int r = 0; r < n; ++r) {
      const std::vector<float> y = numbers(seed + 1 + static_cast<uint64_t>(r), size);
      for (size_t j = 0; j < size; ++j) expected[j] += y[j];
    }
    for (size_t j = 0; j < size; ++j) ASSERT_NEAR(results[0][i][j], expected[j], 1e-5) << i << " " << j;
    for (int r = 1; r < n; ++r)
      EXPECT_EQ(results[static_cast<size_t>(r)][i], results[0][i]) << "rank " << r << ", case " << i;
  }
}

TEST(CudaRanks, GathersAllRows) {
  const int n = std::min(n_gpus(), 8);
  if (n < 2) GTEST_SKIP() << "there are not two GPUs";
  constexpr int64_t kRows = 3, kCols = 129;
  on_gpus(n, [&](Backend& backend, int rank) {
    const Tensor own = backend.alloc(DType::kF32, kRows, kCols), all = backend.alloc(DType::kF32, kRows * n, kCols);
    backend.upload(own, numbers(static_cast<uint64_t>(rank), kRows * kCols).data());
    backend.all_gather(all, own);
    std::vector<float> got(static_cast<size_t>(all.rows * all.cols)), expected;
    backend.download(got.data(), all);
    for (int r = 0; r < n; ++r) {
      const std::vector<float> part = numbers(static_cast<uint64_t>(r), kRows * kCols);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, expected) << rank;
  });
}

}  // namespace
}  // namespace ingot
