// Times the products of one matrix in every format with 1, 8, 32 and 256 rows of activations.
//
//   formats_bench [FORMAT,... | all] [ISA] [THREADS] [fast | small]
//
// The rate of one row is in GB/s of packed weights, because decoding reads every weight once per token. Copies of the
// matrix together exceed the caches. "In cache" is the rate of one core with a matrix that stays in its second-level
// cache: the limit of the instructions alone. Other processes may use the memory too, so plain reading is measured in
// alternation with the product, and "of read" is the median of the ratios. The rates of more rows are in 10^9
// operations a second, the best of several tries.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed_weight.h"
#include "base/error.h"
#include "quant/fill.h"

namespace ingot {
namespace {

constexpr int64_t kOut = 8192, kIn = 2048;
constexpr double kMoreThanCaches = 160 << 20;  // bytes

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Reads memory with all threads, with the kernel of the peak measurement.
class Reader {
 public:
  explicit Reader(const BackendOptions& options)
      : pool_(options.n_threads), kernels_(cpu::choose_kernels(options.isa)), memory_(kPieces * kPiece) {
    pool_.parallel_for(kPieces, [&](int64_t i, int) { std::memset(memory_.data() + i * kPiece, 1, kPiece); });
  }
  double gb_s() {
    const double seconds = seconds_of([&] {
      pool_.parallel_for(kPieces, [&](int64_t i, int) { kernels_.peak_read(memory_.data() + i * kPiece, kPiece); });
    });
    return kPieces * kPiece / seconds * 1e-9;
  }

 private:
  static constexpr int64_t kPieces = 40, kPiece = 4 << 20;
  ThreadPool pool_;
  const cpu::Kernels& kernels_;
  cpu::Memory memory_;
};

class FormatBench {
 public:
  FormatBench(Format format, const BackendOptions& options) : backend_(create_cpu_backend(options)), reader_(options) {
    backend_->reserve({.max_tokens = 512,
                       .max_seqs = 1,
                       .max_logits = 1,
                       .max_kv_len = 16,
                       .max_width = 8192,
                       .max_heads = 1,
                       .head_dim = 16,
                       .n_vocab = 16});
    std::vector<uint8_t> bytes(static_cast<size_t>(kOut) * row_bytes(format, kIn));
    fill_random(format, 1, bytes.data(), kOut * kIn / info(format).block_size, 1.0f);
    const Weight host{.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()};
    packed_ = static_cast<double>(backend_->packed_bytes(host, kForMatmul));
    for (double total = 0; total < kMoreThanCaches; total += packed_)
      copies_.push_back(backend_->prepare(host, kForMatmul));
    constexpr double kWeights = kOut * kIn;
    fmt::print("| {} | {:.2f} | {:.2f} |", info(format).name, 8 * static_cast<double>(bytes.size()) / kWeights,
               8 * packed_ / kWeights);
  }

  // The rate of one core with weights in its cache.
  void in_cache(Format format, BackendOptions options) {
    constexpr int64_t kRows = 128;
    options.n_threads = 1;
    const auto core = create_cpu_backend(options);
    std::vector<uint8_t> bytes(static_cast<size_t>(kRows) * row_bytes(format, kIn));
    fill_random(format, 1, bytes.data(), kRows * kIn / info(format).block_size, 1.0f);
    const Weight w = core->prepare({.format = format, .n_out = kRows, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
    const Tensor x = core->alloc(DType::kF32, 1, kIn), y = core->alloc(DType::kF32, 1, kRows);
    core->upload(x, std::vector<float>(kIn, 1.0f).data());
    double best = 1;
    for (int i = 0; i < 2000; ++i) best = std::min(best, seconds_of([&] { core->matmul(y, x, w, {}); }));
    fmt::print(" {:.1f} |", packed_ * kRows / kOut / best * 1e-9);
  }

  void one_row() {
    const double bytes = packed_ * static_cast<double>(copies_.size());
    std::vector<double> rates, shares;
    for (int i = 0; i < 25; ++i) {
      rates.push_back(bytes / seconds(1) * 1e-9);
      shares.push_back(rates.back() / reader_.gb_s());
    }
    fmt::print(" {:.1f} | {:.0f} % |", median(rates), 100 * median(shares));
  }

  void more_rows(int rows) {
    double best = seconds(rows), spent = best;
    for (; spent < 0.25; spent += best) best = std::min(best, seconds(rows));
    fmt::print(" {:.0f} |", 2.0 * kOut * kIn * rows * static_cast<double>(copies_.size()) / best * 1e-9);
  }

 private:
  double seconds(int rows) {
    const Tensor x = backend_->alloc(DType::kF32, rows, kIn), y = backend_->alloc(DType::kF32, rows, kOut);
    backend_->upload(x, std::vector<float>(rows * kIn, 1.0f).data());
    return seconds_of([&] {
      for (const Weight& w : copies_) backend_->matmul(y, x, w, {});
    });
  }

  std::unique_ptr<Backend> backend_;
  Reader reader_;
  double packed_;  // bytes of one copy
  std::vector<Weight> copies_;
};

bool is_wanted(std::string_view list, std::string_view name) {
  return list == "all" || fmt::format(",{},", list).find(fmt::format(",{},", name)) != std::string::npos;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  BackendOptions options{.device = "cpu"};
  if (argc > 2) options.isa = argv[2];
  if (argc > 3) options.n_threads = std::atoi(argv[3]);
  if (argc > 4) options.small_weights = std::string_view(argv[4]) == "small";
  try {
    fmt::print("{}\n\n| format | bits | packed | in cache, GB/s | 1 row, GB/s | of read | 8 rows, GOP/s | 32 | 256 |\n"
               "|---|---|---|---|---|---|---|---|---|\n",
               create_cpu_backend(options)->description());
    for (int i = 0; i < kFormatCount; ++i) {
      const auto format = static_cast<Format>(i);
      if (!is_wanted(argc > 1 ? argv[1] : "all", info(format).name)) continue;
      FormatBench bench(format, options);
      bench.in_cache(format, options);
      bench.one_row();
      for (const int rows : {8, 32, 256}) bench.more_rows(rows);
      fmt::print("\n");
    }
  } catch (const Error& e) {
    fmt::print(stderr, "formats_bench: {}\n", e.what());
    return 1;
  }
}
