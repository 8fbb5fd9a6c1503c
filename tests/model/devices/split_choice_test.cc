// The placement of the blocks of known models, and which options are accepted. planned_gpu replaces a GPU.
#include "model/devices/split_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/planned_gpu.h"
#include "base/error.h"
#include "model/devices/ranks.h"
#include "model/program/decoder_program.h"
#include "model/program/shapes.h"

namespace ingot {
namespace {

using testing::HasSubstr;

constexpr size_t kGiB = size_t{1} << 30;

struct Choice {
  explicit Choice(const char* shape, Format format = Format::Q4_0)
      : config(config_of_shape(shape)), source(dummy_source(config, format, 1)) {}

  // "layers 0 to 47 on gpu" for a GPU and a host with these sizes in GiB.
  std::string operator()(double gpu_gib, double host_gib, RunnerOptions options = {}) {
    const auto gpu = planned_gpu(static_cast<size_t>(gpu_gib * kGiB)),
               cpu = create_backend({.device = "cpu", .n_threads = 1});
    const DeviceMemory device{.name = "gpu", .backend = gpu.get(), .available = gpu->available_bytes()};
    split = choose_split(
        config, *source, {&device, 1},
        [&] {
          return DeviceMemory{.name = "cpu", .backend = cpu.get(), .available = static_cast<size_t>(host_gib * kGiB)};
        },
        options);
    const std::string names[] = {"gpu", "cpu"};
    return split_text(split, names);
  }

  Config config;
  std::unique_ptr<WeightSource> source;
  Split split;
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SplitChoice, AModelThatFitsStaysWhole) {
  Choice choose("llama-3.2-1b");
  EXPECT_EQ(choose(16, 64), "layers 0 to 15 on gpu");
  EXPECT_FALSE(choose.split.uses(1));
}

// More sequences than the GPU has room for: the cache takes almost all memory beside the weights, and no layer leaves.
TEST(SplitChoice, ManySequencesDoNotMoveLayers) {
  Choice choose("llama-3.1-8b", Format::BF16);
  RunnerOptions options;
  options.n_ctx = 2032, options.max_seqs = 256;
  EXPECT_EQ(choose(78, 200, options), "layers 0 to 31 on gpu");
  const auto gpu = planned_gpu(78 * kGiB);
  const MemoryPlan plan =
      plan_memory(choose.config, weight_bytes(*choose.source, choose.config, *gpu), 78 * kGiB, options, gpu.get());
  const int64_t n_tokens = int64_t{plan.n_blocks()} * plan.kv[0].block_size;
  EXPECT_LT(n_tokens, 256 * 2032);
  EXPECT_GT(plan.total_bytes(), size_t{73} * kGiB);
  EXPECT_LT(plan.total_bytes(), size_t{75} * kGiB);  // a twentieth stays free
}

// With less memory, more layers leave the GPU, starting with the first.
TEST(SplitChoice, ADenseModelLosesLayers) {
  Choice choose("llama-3.1-8b");
  int last = 0;
  for (const double gib : {4.0, 3.0, 2.0}) {
    const std::string text = choose(gib, 64);
    EXPECT_THAT(text, HasSubstr("layers 0 to ")) << gib;
    int n = 0;
    while (n < 32 && choose.split.layer(n, 0) == 1) {
      EXPECT_EQ(choose.split.layer(n, 1), 1);
      ++n;
    }
    EXPECT_GT(n, last) << gib;
    EXPECT_LT(n, 32);
    for (int layer = n; layer < 32; ++layer)
      EXPECT_EQ(choose.split.layer(layer, 0) + choose.split.layer(layer, 1), 0);
    EXPECT_EQ(choose.split.head(), 0);
    last = n;
  }
}

// 48 layers of 128 experts: 16 GiB, less than one of which is attention.
TEST(SplitChoice, AModelOfExpertsLosesExperts) {
  Choice choose("qwen3-30b-a3b");
  EXPECT_THAT(choose(8, 64), HasSubstr("layers 0 to 47 on gpu, feed-forward of layers 0 to "));
  int n = 0;
  for (int layer = 0; layer < 48; ++layer) n += choose.split.layer(layer, 1);
  EXPECT_GT(n, 24);
  EXPECT_LT(n, 36);
  EXPECT_EQ(choose(8, 64, {.layers_on = {.cpu_experts = 99}}),
            "layers 0 to 47 on gpu, feed-forward of layers 0 to 47 on cpu");
}

// The chosen split leaves room for the requested context: the memory plan accepts it.
TEST(SplitChoice, ThePlanAcceptsTheSplit) {
  for (const char* shape : {"qwen3-30b-a3b", "llama-3.1-8b", "qwen3.5-0.8b"})
    for (const int n_ctx : {0, 8192}) {
      Choice choose(shape);
      RunnerOptions options{.n_ctx = n_ctx, .max_batch_tokens = kSplitChunk};
      const double gib = std::string(shape) == "qwen3.5-0.8b" ? 0.75 : 4;
      choose(gib, 64, options);
      ASSERT_TRUE(choose.split.uses(1)) << shape;
      const auto gpu = planned_gpu(static_cast<size_t>(gib * kGiB)),
                 cpu = create_backend({.device = "cpu", .n_threads = 1});
      const DeviceMemory devices[] = {
          {"gpu", gpu.get(), weight_bytes(*choose.source, choose.config, *gpu, choose.split.part(0)),
           gpu->available_bytes() - gpu->driver_bytes(), Take::kAll},
          {"cpu", cpu.get(), weight_bytes(*choose.source, choose.config, *cpu, choose.split.part(1)), 64 * kGiB}};
      const MemoryPlan plan = plan_memory(choose.config, choose.split, devices, options);
      EXPECT_GE(plan.n_ctx, std::min(choose.config.n_ctx_train, n_ctx == 0 ? 4096 : n_ctx)) << shape;
      for (const DevicePlan& one : plan.devices) EXPECT_LE(one.total_bytes(), one.available_bytes) << shape << one.name;
      EXPECT_GT(plan.devices[0].total_bytes(), plan.devices[0].available_bytes * 3 / 4) << shape;
    }
}

TEST(SplitChoice, WhatCannotRunIsRefused) {
  Choice choose("llama-3.1-8b");
  EXPECT_THAT(error_of([&] { choose(2, 1); }), HasSubstr("use a smaller quantization"));
}

TEST(SplitChoice, LayersAsAsked) {
  Choice choose("llama-3.1-8b");
  EXPECT_EQ(choose(80, 64, {.layers_on = {.gpu_layers = 20}}), "layers 0 to 11 on cpu, layers 12 to 31 on gpu");
  EXPECT_EQ(choose(80, 64, {.layers_on = {.gpu_layers = 99}}), "layers 0 to 31 on gpu");
  EXPECT_THAT(error_of([&] { choose(80, 64, {.layers_on = {.cpu_experts = 3}}); }), HasSubstr("this model has none"));
}

TEST(SplitChoice, Patterns) {
  Choice choose("qwen3-30b-a3b");
  const auto with = [&](const char* list) {
    return choose(80, 64, {.layers_on = {.places = parse_tensor_places(list)}});
  };
  const std::string all = "layers 0 to 47 on gpu, feed-forward of layers 0 to 47 on cpu";
  EXPECT_EQ(with("exps=CPU"), all);
  EXPECT_EQ(with("\\.ffn_(up|down|gate)_exps\\.=CPU"), all);
  EXPECT_EQ(with("ffn_up_exps=CPU,ffn_gate_exps=CPU,ffn_down_exps=CPU"), all);
  EXPECT_EQ(with("blk\\.(0|1|5)\\.ffn_.*_exps.=CPU"),
            "layers 0 to 47 on gpu, feed-forward of layers 0 to 1 on cpu, feed-forward of layer 5 on cpu");
  EXPECT_EQ(with("blk\\.[0-9]\\..*exps=CUDA0,exps=CPU"),
            "layers 0 to 47 on gpu, feed-forward of layers 10 to 47 on cpu");
  EXPECT_EQ(with("blk\\.47\\.=CPU"), "layers 0 to 46 on gpu, layer 47 on cpu");
  EXPECT_THAT(error_of([&] { with("ffn_down_exps=CPU"); }),
              HasSubstr("puts 1 of 3 matrices of the experts of layer 0 on the CPU"));
  EXPECT_THAT(error_of([&] { with("nothing=CPU"); }), HasSubstr("no pattern matches"));
  EXPECT_THAT(error_of([&] { with("exps=DISK"); }), HasSubstr("give PATTERN=CPU or PATTERN=CUDA0"));
  EXPECT_THAT(error_of([&] { with("exps"); }), HasSubstr("give PATTERN=CPU or PATTERN=CUDA0"));
  EXPECT_THAT(error_of([&] { with("(=CPU"); }), HasSubstr("expression '('"));
}

// PlannedGpu predicts the sizes of weights, caches and steps, so that a plan made without the GPU holds on the real
// GPU.
TEST(PlannedGpu, AnswersNearlyAsCuda) {
  std::unique_ptr<Backend> cuda;
  try {
    cuda = create_backend({.device = "cuda"});
  } catch (const UsageError&) {
    GTEST_SKIP() << "no GPU";
  }
  const auto planned = planned_gpu(80 * kGiB, /*has_copies=*/true);
  const auto expect_near = [](size_t got, size_t wanted, const std::string& what) {
    EXPECT_NEAR(static_cast<double>(got), static_cast<double>(wanted), 0.02 * static_cast<double>(wanted) + (64 << 20))
        << what;
  };
  for (const char* shape : {"llama-3.1-8b", "qwen3-30b-a3b", "qwen3.5-0.8b"})
    for (const Format format : {Format::BF16, Format::Q4_0, Format::Q6_K}) {
      const Config c = config_of_shape(shape);
      const auto source = dummy_source(c, format, 1);
      const std::string what = fmt::format("{} {}", shape, info(format).name);
      expect_near(weight_bytes(*source, c, *planned).total(), weight_bytes(*source, c, *cuda).total(), what);
      const StepLimits limits{
          .max_tokens = 512, .max_seqs = 8, .max_logits = 8, .max_kv_len = 8192, .n_vocab = c.n_vocab};
      expect_near(step_bytes(c, limits, planned.get(), Split(c), 0),
                  step_bytes(c, limits, cuda.get(), Split(c), 0), what);
    }
  EXPECT_EQ(planned->driver_bytes(), cuda->driver_bytes());
}

}  // namespace
}  // namespace ingot
