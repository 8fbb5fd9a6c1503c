// Several GPUs, one thread each. Their sums equal the host's within the error of the 16 bits that a number is sent in,
// and are bit-identical on all GPUs. Skipped with one GPU.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "backend/cuda/create_cuda.h"
#include "backend/thread_communicator.h"
#include "base/error.h"
#include "base/half.h"
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

// x + the sum of y over all ranks on each rank. y_of(r): the numbers of rank r.
using Sums = std::vector<std::vector<float>>;  // [ranks, rows * cols]
Sums sums_of(int n_ranks, int64_t rows, int64_t cols, const std::vector<float>& x,
             const std::function<std::vector<float>(int)>& y_of, int n_rounds = 1) {
  Sums sums(static_cast<size_t>(n_ranks), std::vector<float>(x.size()));
  on_gpus(n_ranks, [&](Backend& backend, int rank) {
    for (int round = 0; round < n_rounds; ++round) {
      const Tensor to = backend.alloc(DType::kF32, rows, cols), y = backend.alloc(DType::kF32, rows, cols);
      backend.upload(to, x.data());
      backend.upload(y, y_of(rank).data());
      backend.add_reduced(to, y);
      backend.download(sums[static_cast<size_t>(rank)].data(), to);
    }
  });
  return sums;
}

constexpr size_t kGroup = 8;  // numbers that are sent with a common unit

float largest_of_group(const std::vector<float>& v, size_t i) {
  const size_t first = i / kGroup * kGroup;
  float largest = 0;
  for (size_t j = first; j < std::min(first + kGroup, v.size()); ++j) largest = std::max(largest, std::abs(v[j]));
  return largest;
}

// Compares with sums in double. Each number may be off by 2^-14 of the largest of its group, and so may the sum, which
// is sent too if there are more than two ranks.
void expect_sums(const Sums& sums, const std::vector<float>& x, const std::function<std::vector<float>(int)>& y_of) {
  const int n = static_cast<int>(sums.size());
  std::vector<double> expected(x.begin(), x.end()), allowed(x.size());
  std::vector<float> sum(x.size());
  for (int r = 0; r < n; ++r) {
    const std::vector<float> y = y_of(r);
    for (size_t i = 0; i < x.size(); ++i) {
      expected[i] += y[i], sum[i] += y[i];
      allowed[i] += largest_of_group(y, i) * 0x1p-14;
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (n > 2) allowed[i] += largest_of_group(sum, i) * 0x1.1p-14;
    ASSERT_NEAR(sums[0][i], expected[i], allowed[i] + std::abs(expected[i]) * 0x1p-20) << "number " << i;
  }
  for (int r = 1; r < n; ++r) EXPECT_EQ(sums[static_cast<size_t>(r)], sums[0]) << "rank " << r;
}

TEST(CudaRanks, SumsEqualThoseOfTheHost) {
  const int n = std::min(n_gpus(), 8);
  if (n < 2) GTEST_SKIP() << "there are not two GPUs";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  struct Size {
    int64_t rows, cols;
  };
  // From one group to several rounds of all blocks, and a number of columns that only NCCL supports.
  constexpr Size kSizes[] = {{1, 8},     {1, 1024},  {1, 4096},  {3, 4096},   {7, 36},     {33, 2880},   {32, 4096},
                             {33, 4096}, {64, 8192}, {65, 8192}, {512, 4096}, {513, 4096}, {1025, 4104}, {2048, 8192}};
  std::vector<float> first_row;  // of 4,096 columns
  for (const auto& [rows, cols] : kSizes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const auto size = static_cast<size_t>(rows * cols);
    const std::vector<float> x = numbers(seed, size);
    const auto y_of = [&](int r) { return numbers(seed + 1 + static_cast<uint64_t>(r), size); };
    const Sums sums = sums_of(n, rows, cols, x, y_of, 3);  // rounds, so that places are written again
    expect_sums(sums, x, y_of);
    if (cols != 4096) continue;
    const std::vector<float> row(sums[0].begin(), sums[0].begin() + cols);
    if (first_row.empty()) first_row = row;
    EXPECT_EQ(row, first_row) << "a row depends on the other rows of the batch";
  }
}

// The kernel that sums many rows also computes their norm. It equals the norm of the sums in double, and the sums are
// those without a norm.
TEST(CudaRanks, NormsOfSumsEqualThoseOfTheHost) {
  const int n = std::min(n_gpus(), 8);
  if (n < 3) GTEST_SKIP() << "there are not three GPUs";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  struct Size {
    int64_t rows, cols;
  };
  // One row a block and several, in one round and in several.
  constexpr Size kSizes[] = {{16, 16384}, {33, 7168},   {100, 5120}, {192, 1024},
                             {1024, 576}, {1025, 4160}, {2048, 8192}};
  for (const auto& [rows, cols] : kSizes) {
    if (cols % (8 * n) != 0) continue;
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const auto size = static_cast<size_t>(rows * cols);
    const std::vector<float> x = numbers(seed, size), weight = numbers(seed + 99, static_cast<size_t>(cols));
    const auto y_of = [&](int r) { return numbers(seed + 1 + static_cast<uint64_t>(r), size); };
    const Sums plain = sums_of(n, rows, cols, x, y_of);
    Sums sums(static_cast<size_t>(n), x);
    std::vector<std::vector<uint16_t>> normed(static_cast<size_t>(n), std::vector<uint16_t>(size));
    constexpr float kEps = 1e-3f;
    on_gpus(n, [&](Backend& backend, int rank) {
      const Tensor to = backend.alloc(DType::kF32, rows, cols), y = backend.alloc(DType::kF32, rows, cols),
                   norm_out = backend.alloc(DType::kF16, rows, cols), w = backend.alloc(DType::kF32, 1, cols);
      backend.upload(w, weight.data());
      const NormArgs norm{.weight = w, .eps = kEps};
      for (int round = 0; round < 3; ++round) {  // places are written again
        backend.upload(to, x.data());
        backend.upload(y, y_of(rank).data());
        EXPECT_TRUE(backend.norms_sums(to, norm));
        backend.add_reduced(to, y, norm_out, norm);
      }
      // Few rows, long rows, rows that the ranks cannot share, and norms of another kind.
      const auto norms = [&](int64_t n_rows, int64_t n_cols, const NormArgs& args) {
        return backend.norms_sums(to.view(n_rows, n_cols), args);
      };
      EXPECT_FALSE(norms(8, cols, norm) || norms(1, rows * cols, norm) || norms(rows * cols / 4, 4, norm));
      EXPECT_FALSE(norms(rows, cols, {}) || norms(rows, cols, {.weight = w, .kind = NormKind::kLayer}));
      backend.download(sums[static_cast<size_t>(rank)].data(), to);
      backend.download(normed[static_cast<size_t>(rank)].data(), norm_out);
    });
    EXPECT_EQ(sums, plain);
    for (int r = 1; r < n; ++r) EXPECT_EQ(normed[static_cast<size_t>(r)], normed[0]) << "rank " << r;
    for (int64_t row = 0; row < rows; ++row) {
      const float* of_row = sums[0].data() + row * cols;
      const double squares = std::inner_product(of_row, of_row + cols, of_row, 0.0);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
      for (int64_t i = 0; i < cols; ++i) {
        const double expected = of_row[i] * inverse * weight[static_cast<size_t>(i)];
        ASSERT_NEAR(float_from_f16(normed[0][static_cast<size_t>(row * cols + i)]), expected,
                    std::abs(expected) * 0x1p-10 + 1e-6)
            << "row " << row << ", column " << i;
      }
    }
  }
}

TEST(CudaRanks, SumsOfTinyHugeAndBrokenNumbers) {
  const int n = std::min(n_gpus(), 8);
  if (n < 2) GTEST_SKIP() << "there are not two GPUs";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  for (const int64_t rows : {1, 300}) {
    const auto size = static_cast<size_t>(rows * 4096);
    const std::vector<float> x(size, 0.0f);
    const auto y_of = [&](int r) {
      std::vector<float> y = numbers(seed + static_cast<uint64_t>(r), size);
      for (size_t i = 0; i < size; ++i) y[i] = std::ldexp(y[i], static_cast<int>(i / kGroup % 200) - 100);
      return y;
    };
    expect_sums(sums_of(n, rows, 4096, x, y_of), x, y_of);
    for (const float broken : {INFINITY, -INFINITY, NAN}) {
      const Sums sums = sums_of(n, rows, 4096, x, [&](int r) {
        std::vector<float> y = y_of(r);
        if (r == n - 1) y[13] = broken;
        return y;
      });
      for (const auto& sum : sums) {
        EXPECT_FALSE(std::isfinite(sum[13]));
        for (size_t i = 0; i < size; ++i) ASSERT_TRUE(i / kGroup == 1 || std::isfinite(sum[i])) << i;
      }
    }
  }
}

TEST(CudaRanks, GathersAllRows) {
  const int n = std::min(n_gpus(), 8);
  if (n < 2) GTEST_SKIP() << "there are not two GPUs";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  struct Size {
    int64_t rows, cols;
  };
  // From one number to a full mailbox, an odd number of numbers, and more than a mailbox has room for.
  constexpr Size kSizes[] = {{1, 1}, {3, 129}, {1, 32064}, {1, 1025}, {4, 32768}, {5, 32768}};
  on_gpus(n, [&](Backend& backend, int rank) {
    for (int round = 0; round < 3; ++round) {  // places are written again
      for (const auto& [rows, cols] : kSizes) {
        SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", rank " << rank);
        const auto part_of = [&](int r) {
          return numbers(seed + static_cast<uint64_t>(8 * round + r), static_cast<size_t>(rows * cols));
        };
        const Tensor own = backend.alloc(DType::kF32, rows, cols), all = backend.alloc(DType::kF32, rows * n, cols);
        backend.upload(own, part_of(rank).data());
        backend.all_gather(all, own);
        std::vector<float> got(static_cast<size_t>(all.rows * all.cols)), expected;
        backend.download(got.data(), all);
        for (int r = 0; r < n; ++r) {
          const std::vector<float> part = part_of(r);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        EXPECT_EQ(got, expected);
      }
    }
  });
}

}  // namespace
}  // namespace ingot
