// The kernels of this machine's instruction sets are interchangeable: their products are bit-identical.
#include "backend/cpu/kernel_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "quant/fill.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr int64_t kChoiceOut = 96, kChoiceIn = 512;

class KernelChoices : public testing::TestWithParam<Format> {
 protected:
  Weight random_weight(uint64_t seed) {
    bytes_.emplace_back(static_cast<size_t>(kChoiceOut) * row_bytes(GetParam(), kChoiceIn));
    fill_random(GetParam(), seed, bytes_.back().data(), kChoiceOut * kChoiceIn / info(GetParam()).block_size, 1.0f);
    return backend_->prepare(
        {.format = GetParam(), .n_out = kChoiceOut, .n_in = kChoiceIn, .codes = bytes_.back().data()}, kForMatmul);
  }
  std::vector<float> values(const Tensor& t) {
    std::vector<float> got(t.rows * t.cols);
    backend_->download(got.data(), t);
    return got;
  }
  void check_bits() {
    const uint64_t seed = test_seed();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const Weight gate = random_weight(seed), up = random_weight(seed + 1);
    for (const int rows : {1, 3, 5, 8, 40}) {
      std::vector<float> x(rows * kChoiceIn);
      for (float& v : x) v = normal(random);
      const Tensor in = backend_->alloc(DType::kF32, rows, kChoiceIn);
      const Tensor y = backend_->alloc(DType::kF32, rows, kChoiceOut);
      backend_->upload(in, x.data());
      std::vector<float> first, first_gated;
      for (const std::string& kernel : backend_->matmul_kernels(gate, rows)) {
        backend_->use_matmul_kernel(kernel);
        backend_->matmul(y, in, gate, {});
        const std::vector<float> got = values(y);
        backend_->gate_up({.y = y, .x = in, .w_gate = &gate, .w_up = &up});
        const std::vector<float> gated = values(y);
        if (first.empty()) first = got, first_gated = gated;
        EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * 4), 0) << kernel << ", " << rows << " rows";
        EXPECT_EQ(std::memcmp(first_gated.data(), gated.data(), gated.size() * 4), 0)
            << kernel << ", " << rows << " rows, gated";
      }
      backend_->use_matmul_kernel("");
    }
  }

  std::vector<std::vector<uint8_t>> bytes_;
  std::unique_ptr<Backend> backend_ = create_cpu_backend({.device = "cpu", .n_threads = 2});
};

TEST_P(KernelChoices, GiveTheSameBits) { check_bits(); }

TEST_P(KernelChoices, GiveTheSameBitsWithSmallWeights) {
  backend_ = create_cpu_backend({.device = "cpu", .n_threads = 2, .small_weights = true});
  check_bits();
}

// Some pairs of gate and up cannot run in one kernel: their formats differ, or their weights are unpacked for many
// rows. Such pairs give the same bits as separate ops, and use no memory beyond what reserve() allocated.
TEST_P(KernelChoices, GateAndUpNeedNotRunTogether) {
  constexpr int kRows = 300;
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kChoiceIn), dense(kChoiceOut * kChoiceIn);
  for (auto* all : {&x, &dense})
    for (float& v : *all) v = normal(random);
  const Weight quantized = random_weight(seed),
               f32 = backend_->prepare({.format = Format::F32,
                                        .n_out = kChoiceOut,
                                        .n_in = kChoiceIn,
                                        .codes = reinterpret_cast<const uint8_t*>(dense.data())},
                                       kForMatmul);
  backend_->reserve({.max_tokens = kRows, .max_width = kChoiceIn});
  const Tensor in = backend_->alloc(DType::kF32, kRows, kChoiceIn);
  const auto out = [&] { return backend_->alloc(DType::kF32, kRows, kChoiceOut); };
  const Tensor y = out(), gated = out(), other = out();
  backend_->upload(in, x.data());
  const size_t allocated = backend_->allocated_bytes();
  for (const auto& [gate, up] : {std::pair{quantized, f32}, {f32, quantized}, {quantized, quantized}})
    for (const int n : {1, 5, kRows}) {
      const auto rows = [&](const Tensor& t) { return t.slice_rows(0, n); };
      backend_->gate_up({.y = rows(y), .x = rows(in), .w_gate = &gate, .w_up = &up});
      backend_->matmul(rows(gated), rows(in), gate, {});
      backend_->matmul(rows(other), rows(in), up, {});
      backend_->act_mul(rows(gated), rows(gated), rows(other), Activation::kSilu);
      const std::vector<float> got = values(rows(y)), want = values(rows(gated));
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0) << n << " rows";
    }
  EXPECT_EQ(backend_->allocated_bytes(), allocated);
}

// The list of `inspect --kernels`: the chosen set first, then the others that can run this weight.
TEST_P(KernelChoices, AreListed) {
  const Weight w = random_weight(1);
  const auto measured = cpu::measured_kernels();
  for (const int rows : {1, 8, 300}) {
    const std::vector<std::string> names = backend_->matmul_kernels(w, rows);
    const cpu::Kernels* chosen = cpu::fastest_kernels(GetParam(), cpu::Packing::kFast).for_rows[cpu::row_class(rows)];
    EXPECT_EQ(names.front(), chosen->isa);
    EXPECT_EQ(names.size(), measured.size());
    for (const cpu::Kernels* kernels : measured)
      EXPECT_EQ(std::count(names.begin(), names.end(), kernels->isa), 1) << kernels->isa;
  }
}

std::vector<Format> formats_packed_alike() {
  std::vector<Format> all;
  for (int i = 0; i < kFormatCount; ++i)
    if (cpu::packs_alike(static_cast<Format>(i))) all.push_back(static_cast<Format>(i));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Formats, KernelChoices, testing::ValuesIn(formats_packed_alike()),
                         [](const auto& i) { return std::string(ingot::info(i.param).name); });

TEST(KernelChoice, OthersHaveOneKernel) {
  const auto backend = create_cpu_backend({.device = "cpu", .n_threads = 1});
  for (const Format format : {Format::F16, Format::Q8_0, Format::IQ4_NL}) {
    const std::vector<uint8_t> bytes(static_cast<size_t>(kChoiceOut) * row_bytes(format, kChoiceIn));
    const Weight w =
        backend->prepare({.format = format, .n_out = kChoiceOut, .n_in = kChoiceIn, .codes = bytes.data()}, kForMatmul);
    EXPECT_EQ(backend->matmul_kernels(w, 1), std::vector<std::string>{cpu::available_kernels().front()->isa})
        << info(format).name;
  }
}

TEST(KernelChoice, IsTheSetThatWasAskedFor) {
  for (const cpu::Kernels* kernels : cpu::available_kernels()) {
    const auto backend = create_cpu_backend({.device = "cpu", .n_threads = 1, .isa = kernels->isa});
    const std::vector<uint8_t> bytes(static_cast<size_t>(kChoiceOut) * row_bytes(Format::Q4_0, kChoiceIn));
    const Weight w = backend->prepare(
        {.format = Format::Q4_0, .n_out = kChoiceOut, .n_in = kChoiceIn, .codes = bytes.data()}, kForMatmul);
    for (const int rows : {1, 8, 300})
      EXPECT_EQ(backend->matmul_kernels(w, rows), std::vector<std::string>{kernels->isa});
  }
}

}  // namespace
}  // namespace ingot
