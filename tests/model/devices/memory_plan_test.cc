// The memory that a model uses, against numbers computed by hand.
#include "model/devices/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/planned_gpu.h"
#include "backend/ref/ref_backend.h"
#include "backend/wrapped.h"
#include "base/error.h"
#include "model/golden_models.h"
#include "model/devices/loaded_device.h"
#include "model/devices/ranks.h"
#include "model/files/checkpoint.h"
#include "model/layers/latent_attention.h"
#include "model/program/decoder_program.h"
#include "model/program/shapes.h"

namespace ingot {
namespace {

using testing::HasSubstr;
constexpr size_t kMiB = 1 << 20;

Config config() {
  Config c = config_of_shape("llama-3.2-1b");
  c.n_layers = 16, c.n_kv_heads = 8, c.head_dim = 64, c.n_ctx_train = 131072;  // 32 KiB for each token in f16
  return c;
}

std::string plan_error(size_t weights, size_t available, const RunnerOptions& options) {
  try {
    plan_memory(config(), weights, available, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryPlan, OneSequenceGetsWhatHalfOfTheRestHolds) {
  const MemoryPlan plan = plan_memory(config(), 1000 * kMiB, 1064 * kMiB, {});
  EXPECT_EQ(plan.n_ctx, 1024);
  EXPECT_EQ(plan.n_blocks(), 1024 / 16);
  EXPECT_EQ(plan.kv[0].bytes(), 32 * kMiB);
  EXPECT_EQ(plan_memory(config(), 1000 * kMiB, 1001 * kMiB, {}).n_ctx, 512);  // the least
  EXPECT_EQ(plan_memory(config(), 1000 * kMiB, 100000 * kMiB, {}).n_ctx, 131072);  // the model's own
  EXPECT_EQ(plan_memory(config(), 1000 * kMiB, 1064 * kMiB, {.kv_dtype = DType::kF32}).n_ctx, 512);
}

TEST(MemoryPlan, SeveralSequencesShareAPool) {
  const auto blocks = [](size_t available) {
    return plan_memory(config(), 1000 * kMiB, available, {.n_ctx = 4096, .max_seqs = 8}).n_blocks();
  };
  EXPECT_EQ(blocks(10000 * kMiB), 8 * 4096 / 16);        // one context each
  EXPECT_EQ(blocks(1000 * kMiB + 640 * kMiB), 640);  // as much as fits: 10,240 tokens
  EXPECT_EQ(plan_memory(config(), 0, 10000 * kMiB, {.n_ctx = 100, .n_kv_tokens = 1000}).n_blocks(), 63);
  const auto small_pool = [&](int n_ctx) {
    return plan_memory(config(), 0, 10000 * kMiB, {.n_ctx = n_ctx, .max_seqs = 4, .small_pool = true}).n_blocks();
  };
  EXPECT_EQ(small_pool(1600), 400);    // all contexts
  EXPECT_EQ(small_pool(4096), 512);    // 2,048 tokens for each sequence
  EXPECT_EQ(small_pool(16000), 1000);  // one context
}

// If the user sets the memory size, the pool gets all memory that weights and activations leave, even more than the
// sequences could fill.
TEST(MemoryPlan, ThePoolTakesTheRest) {
  for (const RunnerOptions& options :
       {RunnerOptions{.n_ctx = 1024, .max_seqs = 4, .memory_share = 0.5}, {.max_seqs = 4, .memory_bytes = 1}}) {
    const MemoryPlan plan = plan_memory(config(), 1000 * kMiB, 9000 * kMiB, options);
    EXPECT_LE(plan.total_bytes(), 9000 * kMiB);
    EXPECT_GT(plan.total_bytes() + 2 * plan.kv[0].token_bytes() * plan.kv[0].block_size, 9000 * kMiB);
    EXPECT_EQ(plan.n_ctx, options.n_ctx > 0 ? 1024 : 131072);
  }
  EXPECT_EQ(plan_memory(config(), 1000 * kMiB, 9000 * kMiB, {.n_kv_tokens = 320, .memory_share = 0.5}).n_blocks(), 20);
  EXPECT_THAT(plan_error(1000 * kMiB, 1010 * kMiB, {.n_ctx = 4096, .memory_share = 0.5}),
              HasSubstr("KV cache of 4096 tokens needs 128.0 MiB"));
}

TEST(MemoryPlan, WhatCannotFitIsRefusedWithBothNumbers) {
  EXPECT_THAT(plan_error(2000 * kMiB, 1000 * kMiB, {}),
              HasSubstr("need 2.0 GiB, but the device has only 1000.0 MiB free"));
  EXPECT_THAT(plan_error(1000 * kMiB, 1100 * kMiB, {.n_ctx = 100000}),
              HasSubstr("KV cache of 100000 tokens needs 3.1 GiB, but only 100.0 MiB are free"));
  EXPECT_THAT(plan_error(1000 * kMiB, 1100 * kMiB, {.n_ctx = 100000}), HasSubstr("at most 3200 tokens"));
  EXPECT_EQ(plan_error(1000 * kMiB, 2000 * kMiB, {.n_ctx = 4096}), "");
}

TEST(MemoryPlan, TheTableAddsUp) {
  const std::string table = plan_memory(config(), 1000 * kMiB, 4000 * kMiB, {.n_ctx = 2048}).table();
  EXPECT_THAT(table, HasSubstr("1000.0 MiB"));
  EXPECT_THAT(table, HasSubstr("64.0 MiB   2048 tokens of 32.0 KiB, for contexts of up to 2048"));
  EXPECT_THAT(table, HasSubstr("of 3.9 GiB free"));
}

TEST(MemoryPlan, WhatFits) {
  const RunnerOptions options{.block_size = 1};
  const size_t available = 4000 * kMiB, weights = 1000 * kMiB;
  const std::vector<MemoryPlan> plans = plans_that_fit(config(), weights, available, options);
  ASSERT_GE(plans.size(), 3u);
  for (size_t i = 0; i < plans.size(); ++i) {
    const MemoryPlan& plan = plans[i];
    EXPECT_EQ(plan.max_seqs, 1 << i);
    EXPECT_LE(plan.total_bytes(), available - available / 20);
    EXPECT_EQ(plan.total_bytes(), weights + plan.kv[0].bytes() + plan.activation_bytes);
    EXPECT_EQ(plan.n_blocks(), plan.max_seqs * plan.n_ctx);
    // One more token for each sequence does not fit, unless the model's context ends there. The planned size is
    // accepted if it is requested explicitly.
    if (plan.n_ctx < 131072) {
      EXPECT_GT(plan.total_bytes() + plan.max_seqs * plan.kv[0].token_bytes(), available - available / 20);
    }
    EXPECT_EQ(plan_memory(config(), weights, available,
                          {.n_ctx = plan.n_ctx, .max_seqs = plan.max_seqs, .n_kv_tokens = plan.n_ctx * plan.max_seqs})
                  .n_ctx,
              plan.n_ctx);
  }
  EXPECT_TRUE(plans_that_fit(config(), 4001 * kMiB, available, options).empty());
  EXPECT_EQ(plans_that_fit(config(), weights, 64000 * kMiB, options).front().n_ctx, 131072);
}

// If every layer has a window, a sequence needs room for the window, two steps and three blocks, at any length.
TEST(MemoryPlan, AWindowIsLessThanAContext) {
  Config c = config();  // 32 KiB for each token
  c.sliding_window = 1000;
  const int held = 1000 + 2 * 512 + 3 * 16;
  const size_t weights = 1000 * kMiB, for_one = static_cast<size_t>(held) * 32 * 1024;
  // The cache gets half of the free memory. With slightly more than it needs, the model has its whole context. With
  // less, it has the context of a model without windows.
  const MemoryPlan whole = plan_memory(c, weights, weights + 2 * for_one + kMiB, {});
  EXPECT_EQ(whole.n_ctx, 131072);
  EXPECT_GE(whole.n_blocks() * 16, held);
  EXPECT_LT(whole.n_blocks() * 16, held + 64);
  EXPECT_LT(plan_memory(c, weights, weights + 2 * for_one - kMiB, {}).n_ctx, held);
  EXPECT_EQ(plan_memory(c, weights, weights + 4000 * kMiB, {.n_ctx = 100000, .max_seqs = 4}).n_ctx, 100000);
  EXPECT_EQ(plan_memory(c, weights, weights + 200 * kMiB, {.n_ctx = 100000}).n_ctx, 100000);  // 3 GiB without a window
  const std::vector<MemoryPlan> plans = plans_that_fit(c, weights, 2000 * kMiB, {.block_size = 1});
  const std::vector<MemoryPlan> without = plans_that_fit(config(), weights, 2000 * kMiB, {.block_size = 1});
  ASSERT_GE(std::min(plans.size(), without.size()), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plans[i].n_ctx, 131072);
    EXPECT_EQ(plans[i].n_blocks(), (1000 + 2 * 512 + 3) << i);
    EXPECT_LT(without[i].n_ctx, 131072);
  }
}

// An encoder's plan has the caches of one step. What is allocated is what was planned.
TEST(MemoryPlan, OfTextsIsWhatAnEncoderTakes) {
  const StepLimits limits{.max_tokens = 64, .max_seqs = 4, .max_kv_len = 64};
  const auto checkpoint = open_checkpoint(std::string(INGOT_TEST_DATA) + "/encoders/bert.gguf");
  const Config config = checkpoint->config();
  const auto source = checkpoint->weights();
  LoadedDevice device;
  device.take(create_backend({.device = "cpu", .n_threads = 1}));
  const WeightBytes weights = weight_bytes(*source, config, *device.backend);
  const DevicePlan plan = plan_texts(
      config, {.name = "cpu", .backend = device.backend.get(), .weights = weights, .available = kMiB << 10}, limits);
  ASSERT_EQ(plan.kv.size(), 1u);
  EXPECT_EQ(plan.kv[0].n_layers, 1);  // the layers of a bidirectional model share the pages of one
  EXPECT_EQ(plan.kv[0].n_blocks, 64 / 16 + 4);
  device.weights = load_weights(*source, config, *device.backend, nullptr);
  Program program = decoder_layers(config, device.weights, device.make_caches(plan), device.backend.get(), 64);
  program.allocate(*device.backend, limits);
  const auto allocated = static_cast<double>(device.backend->allocated_bytes());
  EXPECT_NEAR(allocated, static_cast<double>(plan.total_bytes() - plan.borrowed_bytes), 0.02 * allocated);
  try {
    plan_texts(config, {.name = "cpu", .backend = device.backend.get(), .weights = weights, .available = 1000}, limits);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("for texts of up to 64 tokens), but cpu has only 1000 B free"));
  }
}

// Layers with a window have a cache of their own, which holds windows: of each sequence one to run and two to keep.
TEST(MemoryPlan, WindowsHoldTheirTokensOnly) {
  Config c = config();  // 2 KiB for each token of a layer
  for (int i = 0; i < 16; ++i) c.layers.push_back({.window = i % 4 == 3 ? 0 : 512});
  const size_t weights = 1000 * kMiB;
  const MemoryPlan one = plan_memory(c, weights, 8000 * kMiB, {.n_ctx = 32768});
  ASSERT_EQ(one.kv.size(), 2u);
  EXPECT_EQ(one.kv[0].n_layers, 4);
  EXPECT_EQ(one.kv[1].n_layers, 12);
  EXPECT_EQ(one.kv[0].n_blocks, 32768 / 16);
  EXPECT_EQ(one.kv[1].n_blocks * 16, 3 * (512 + 48) + 2 * 512);
  EXPECT_EQ(one.kv[1].table, 1);
  EXPECT_EQ(one.limits.n_tables, 2);
  EXPECT_EQ(one.kv_bytes, static_cast<size_t>(4 * 32768 + 12 * one.kv[1].n_blocks * 16) * 2048);
  EXPECT_THAT(one.table(), HasSubstr("12 layers: 2704 tokens of 24.0 KiB"));
  const MemoryPlan many = plan_memory(c, weights, 8000 * kMiB, {.n_ctx = 8192, .max_seqs = 8});
  EXPECT_EQ(many.kv[1].n_blocks * 16, 26 * (512 + 48) + 2 * 512);
  // Short contexts need no more in a window's layers than in others.
  const MemoryPlan small = plan_memory(c, weights, 8000 * kMiB, {.n_ctx = 1024});
  EXPECT_EQ(small.kv[0].n_blocks, small.kv[1].n_blocks);
  // The longest context that fits fills the memory.
  const size_t available = weights + 200 * kMiB;
  const MemoryPlan longest = plan_memory(c, weights, available, {});
  EXPECT_GT(longest.n_ctx, 4096);
  EXPECT_LE(longest.kv_bytes, 100 * kMiB);
  EXPECT_GT(longest.kv_bytes, 100 * kMiB - size_t{16 * 16 * 2048});
}

// 18 of 24 layers are recurrent: their states grow with the number of sequences; the other 6 layers use the KV cache.
TEST(MemoryPlan, StatesOfRecurrentLayers) {
  const Config c = config_of_shape("qwen3.5-0.8b");
  const MemoryPlan plan = plan_memory(c, 1000 * kMiB, 8000 * kMiB, {.n_ctx = 4096, .max_seqs = 4});
  const size_t slot = 18 * (16 * 128 * 128 + 3 * 6144) * sizeof(float);
  EXPECT_EQ(plan.states.slot_bytes(), slot);
  EXPECT_EQ(plan.states.bytes(), 4 * slot);
  EXPECT_EQ(plan.kv[0].token_bytes(), 2u * 6 * 2 * 256 * 2);
  EXPECT_EQ(plan.total_bytes(), 1000 * kMiB + plan.kv[0].bytes() + 4 * slot + plan.activation_bytes);
  EXPECT_THAT(plan.table(), HasSubstr("4 sequences and 0 snapshots of"));
  EXPECT_EQ(plan_memory(c, 1000 * kMiB, 8000 * kMiB, {.n_ctx = 4096, .max_seqs = 4, .n_snapshots = 3}).states.n_slots,
            7);
  EXPECT_EQ(
      plan_memory(c, 1000 * kMiB, 8000 * kMiB, {.n_ctx = 4096, .max_seqs = 4, .n_snapshots = -1}).states.n_slots,
      4 + 10);
  // States get an eighth of the free memory, and the table shows it.
  const MemoryPlan tight =
      plan_memory(c, 1000 * kMiB, 1000 * kMiB + 8 * 3 * slot + 100, {.n_ctx = 512, .max_seqs = 4, .n_snapshots = -1});
  EXPECT_EQ(tight.states.bytes(), (4 + 3) * slot);
  EXPECT_THAT(tight.table(), HasSubstr("4 sequences and 3 snapshots of"));
  EXPECT_EQ(plan_memory(config(), 1000 * kMiB, 8000 * kMiB, {.max_seqs = 4, .n_snapshots = -1}).states.bytes(), 0u);
  for (const MemoryPlan& fits : plans_that_fit(c, 1000 * kMiB, 8000 * kMiB, {.block_size = 1, .n_snapshots = -1})) {
    EXPECT_EQ(fits.n_snapshots(), std::min<int>(2 * fits.max_seqs + 2, static_cast<int>(7000 * kMiB / 8 / slot)));
    EXPECT_EQ(fits.states.bytes(), (fits.max_seqs + fits.n_snapshots()) * slot);
  }
  try {
    plan_memory(c, 1000 * kMiB, 1100 * kMiB, {.max_seqs = 64});
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the states of 64 sequences and 0 snapshots need"));
  }
}

// A model with random weights on a GPU of this size, which serves sequences.
struct OnGpu {
  OnGpu(const char* shape, Format format, size_t gib)
      : config(config_of_shape(shape)),
        source(dummy_source(config, format, 1)),
        gpu(planned_gpu(gib << 30)),
        weights(weight_bytes(*source, config, *gpu)) {}

  MemoryPlan plan(const RunnerOptions& o) const {
    return plan_memory(config, weights, gpu->available_bytes(), o, gpu.get());
  }
  int sequences(RunnerOptions o = {}) const {
    o.max_seqs = 0, o.n_snapshots = -1, o.spare_logits = 64;
    const DeviceMemory device{"the GPU", gpu.get(), weights, gpu->available_bytes(), take_of(gpu.get(), 1, o)};
    return choose_sequences(config, Split(config), {&device, 1}, o);
  }

  Config config;
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Backend> gpu;
  WeightBytes weights;
};

// 8b in Q4_0 takes 4.2 GiB, and 14 GiB more with copies in f16: less than a quarter of 138 GiB, but not of 72 GiB.
TEST(MemoryPlan, CopiesTakeAtMostAQuarter) {
  const Config c = config_of_shape("llama-3.1-8b");
  const auto weights = [&](Format format, size_t gib, size_t n_gpus, bool has_copies = true) {
    const auto gpu = planned_gpu(gib << 30, has_copies);
    const auto source = dummy_source(c, format, 1);
    limit_copies(*source, c, *gpu, gpu->available_bytes(), n_gpus);
    return weight_bytes(*source, c, *gpu).total() >> 20;
  };
  const size_t small = weights(Format::Q4_0, 138, 1, false), with = weights(Format::Q4_0, 138, 1);
  EXPECT_NEAR(static_cast<double>(with - small), 2.0 * (8030.26e6 - 128256 * 4096) / (1 << 20), 20);
  EXPECT_EQ(weights(Format::Q4_0, 72, 1), small);
  EXPECT_EQ(weights(Format::Q4_0, 72, 2), with);
  EXPECT_EQ(weights(Format::BF16, 138, 1), weights(Format::BF16, 138, 1, false));
}

// With keys of q8_0 and values of q4_0, a head's key takes 64 + 4 bytes and its value 32 + 4: 13 KiB for each token.
TEST(MemoryPlan, KeysAndValuesOfTwoTypes) {
  const RunnerOptions options{.n_ctx = 4096, .kv_dtype = {DType::kQ8_0, DType::kQ4_0}};
  const OnGpu model("llama-3.2-1b", Format::Q4_0, 24);
  const MemoryPlan plan = model.plan(options);
  EXPECT_EQ(plan.kv[0].token_bytes(), 13u << 10);
  EXPECT_EQ(plan.kv_bytes, size_t{4096 + 16} * (13 << 10));  // with the block for padding
  const auto error_of = [&](const Config& c, const Backend& backend) -> std::string {
    try {
      plan_memory(c, 1000 * kMiB, size_t{24} << 30, options, &backend);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(model.config, *model.gpu), "");
  EXPECT_EQ(error_of(model.config, *create_backend({.device = "ref"})), "");
  EXPECT_THAT(error_of(model.config, *create_backend({.device = "cpu", .n_threads = 1})),
              HasSubstr("a KV cache of q8_0/q4_0 needs a GPU"));
  EXPECT_THAT(error_of(config_of_shape("deepseek-v2-lite"), *model.gpu),
              HasSubstr("whose values are its keys: use one type"));
}

// Other models will need the other half.
TEST(MemoryPlan, NeighboursLeaveHalf) {
  const OnGpu model("llama-3.2-1b", Format::Q4_0, 24);
  const MemoryPlan alone = model.plan({.max_seqs = 64}), beside = model.plan({.max_seqs = 64, .has_neighbours = true});
  const size_t free = alone.available_bytes - alone.weight_bytes;
  EXPECT_NEAR(static_cast<double>(beside.kv_bytes), static_cast<double>(free / 2), 1 << 20);  // whole blocks
  EXPECT_LE(alone.total_bytes(), alone.available_bytes - alone.available_bytes / 20);
  EXPECT_GT(alone.total_bytes(), alone.available_bytes / 100 * 94);
  // A limit of the user is used in full, also beside other models.
  EXPECT_GT(model.plan({.memory_share = 1, .has_neighbours = true}).total_bytes(), alone.available_bytes / 100 * 99);
}

TEST(MemoryPlan, WhatACacheMayTake) {
  const auto gpu = planned_gpu(size_t{24} << 30), cpu = create_backend({.device = "cpu", .n_threads = 1});
  EXPECT_EQ(take_of(gpu.get(), 1, {}), Take::kMost);
  EXPECT_EQ(take_of(gpu.get(), 1, {.has_neighbours = true}), Take::kHalf);
  EXPECT_EQ(take_of(gpu.get(), 1, {.memory_bytes = 1, .has_neighbours = true}), Take::kAll);
  EXPECT_EQ(take_of(gpu.get(), 2, {}), Take::kAll);
  EXPECT_EQ(take_of(cpu.get(), 1, {}), Take::kHalf);
  EXPECT_EQ(take_of(cpu.get(), 1, {.memory_share = 0.5}), Take::kAll);
  EXPECT_EQ(take_of(cpu.get(), 2, {.memory_share = 0.5}), Take::kHalf);  // the limit is of the other device
  EXPECT_EQ(take_of(nullptr, 1, {}), Take::kHalf);
}

// A token takes 128 KiB in 8b and 32 KiB in 1b. A sequence needs 2,048 tokens: 256 MiB and 64 MiB.
TEST(MemoryPlan, AGpuGetsTheSequencesThatItsCacheHolds) {
  EXPECT_EQ(OnGpu("llama-3.1-8b", Format::Q4_0, 24).sequences(), 64);   // 18.2 GiB beside 4.2 of weights: 72
  EXPECT_EQ(OnGpu("llama-3.1-8b", Format::BF16, 78).sequences(), 128);  // 58.7 GiB beside 15 of weights: 235
  EXPECT_EQ(OnGpu("llama-3.1-8b", Format::Q4_0, 6).sequences(), 16);    // the least, though only 5 have room
  const OnGpu small("llama-3.2-1b", Format::Q4_0, 24);                  // 21.8 GiB beside 0.7 of weights: 349
  EXPECT_EQ(small.sequences(), 256);
  EXPECT_EQ(small.sequences({.has_neighbours = true}), 128);  // half of 23.3 GiB: 186
  EXPECT_EQ(small.sequences({.n_kv_tokens = 65536}), 32);
  EXPECT_EQ(small.sequences({.n_kv_tokens = 65535}), 16);
  EXPECT_EQ(small.sequences({.n_ctx = 512, .n_kv_tokens = 65536}), 128);
  EXPECT_EQ(small.sequences({.max_batch_tokens = 100}), 64);  // a step has a token of each
  EXPECT_EQ(small.sequences({.max_batch_tokens = 8}), 16);
  EXPECT_EQ(small.sequences({.memory_bytes = 1}), 256);
}

// The states of a sequence take 50 MiB: 24 layers of 32 heads of 128 x 128 floats, and 3 rows of 8,192 channels. Up to
// an eighth of what the weights leave holds snapshots, so sequences get another eighth.
TEST(MemoryPlan, StatesLimitTheSequencesOfAGpu) {
  EXPECT_EQ(OnGpu("qwen3.5-9b", Format::Q4_0, 12).sequences(), 16);
  EXPECT_EQ(OnGpu("qwen3.5-9b", Format::Q4_0, 24).sequences(), 32);  // an eighth of 19.3 GiB holds 49
  EXPECT_EQ(OnGpu("qwen3.5-9b", Format::Q4_0, 80).sequences(), 128);
}

TEST(MemoryPlan, AHostGetsFewSequences) {
  const OnGpu model("llama-3.2-1b", Format::Q4_0, 80);
  const auto cpu = create_backend({.device = "cpu", .n_threads = 1});
  const DeviceMemory gpu{.name = "gpu", .backend = model.gpu.get(), .available = size_t{80} << 30},
      host{.name = "cpu", .backend = cpu.get(), .available = size_t{80} << 30};
  const DeviceMemory both[] = {gpu, host};
  Split split(model.config);
  EXPECT_EQ(choose_sequences(model.config, split, {&gpu, 1}, {}), 256);
  EXPECT_EQ(choose_sequences(model.config, split, {&host, 1}, {}), 16);
  split.device[1] = 1;
  EXPECT_EQ(choose_sequences(model.config, split, both, {}), 16);
}

TEST(MemoryPlan, ARunnerChoosesItsSequences) {
  const auto file = std::make_shared<const Gguf>(Gguf::open((kModels / "llama.gguf").string()));
  const auto info = [&](int max_seqs) {
    const RunnerOptions options{
        .backend = {.device = "cpu", .n_threads = 1}, .n_ctx = 64, .max_seqs = max_seqs, .spare_logits = 7};
    return Ranks(config_from_gguf(*file), gguf_source(file), options, nullptr).info();
  };
  EXPECT_EQ(info(0).max_seqs, 16);
  EXPECT_EQ(info(0).max_logits, 16 + 7);
  EXPECT_EQ(info(3).max_seqs, 3);
  EXPECT_EQ(info(3).max_logits, 3 + 7);
}

// Compares a model's plan with the memory that its backend uses after loading, and after a step.
void expect_planned(const Config& c, const std::function<std::unique_ptr<WeightSource>()>& source, const char* what) {
  for (const int max_seqs : {1, 8})
    for (const int chunk : {64, 512})
      for (const DType kv_dtype : {DType::kF16, DType::kQ8_0}) {
        const int type = static_cast<int>(kv_dtype);
        SCOPED_TRACE(fmt::format("{}: {} sequences, chunks of {}, KV type {}", what, max_seqs, chunk, type));
        const RunnerOptions options{.backend = {.device = "cpu", .n_threads = 2},
                                    .n_ctx = std::min(c.n_ctx_train, 512),
                                    .max_batch_tokens = chunk,
                                    .max_seqs = max_seqs,
                                    .kv_dtype = kv_dtype,
                                    .n_snapshots = 2};
        Ranks ranks(c, source(), options, nullptr);
        const size_t taken = ranks.allocated_bytes();
        EXPECT_EQ(ranks.memory().allocated_bytes(), taken);
        const std::vector<int32_t> tokens(std::min(options.n_ctx, chunk), 1);  // prompts have kernels of their own
        const int n = static_cast<int>(tokens.size());
        for_each_logits(ranks, tokens, n - 4, n - 1, [](int, std::span<const float>) {});
        EXPECT_EQ(ranks.allocated_bytes(), taken) << "a step took more";
      }
}

TEST(MemoryPlan, GoldenModelsTakeWhatIsPlanned) {
  for (const std::string& name : golden_names()) {
    const auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (name + ".gguf")).string()));
    expect_planned(config_from_gguf(*file), [&] { return gguf_source(file); }, name.c_str());
  }
}

TEST(MemoryPlan, HuggingFaceModelsTakeWhatIsPlanned) {
  for (const char* name : {"llama_bf16", "gpt_oss", "qwen3next", "deepseek3", "phi3", "granitemoe"}) {
    const auto checkpoint = hf_checkpoint((fs::path(INGOT_TEST_DATA) / "hf" / name).string());
    expect_planned(checkpoint->config(), [&] { return checkpoint->weights(); }, name);
  }
}

// A device that prefers long steps and keeps its matrices in the file's format.
class LongSteps final : public Wrapped {
 public:
  LongSteps() : Wrapped(create_ref_backend()) {}
  int prompt_chunk() const override { return 2048; }

 private:
  void around(const char*, const Tensor&, const std::function<void()>& call) override { call(); }
};

TEST(MemoryPlan, ChoosesTheTokensOfAStep) {
  const LongSteps backend;
  const Config c = config_of_shape("llama-3.2-1b");
  const auto tokens = [&](size_t available, const RunnerOptions& o, const Backend* b) {
    return plan_memory(c, {}, available, o, b).max_batch_tokens;
  };
  EXPECT_EQ(tokens(size_t{64} << 30, {}, &backend), 2048);
  EXPECT_EQ(tokens(size_t{64} << 30, {}, nullptr), 512);
  EXPECT_EQ(tokens(size_t{64} << 30, {.max_batch_tokens = 100}, &backend), 100);
  EXPECT_EQ(tokens(size_t{64} << 30, {.max_seqs = 3000}, &backend), 3000);  // one of each at least
  EXPECT_EQ(tokens(size_t{64} << 20, {}, &backend), 512);                   // however little there is
  // Between these limits, the plan chooses the longest step that uses at most an eighth of the free memory.
  for (size_t available = size_t{128} << 20; available < size_t{8} << 30; available *= 2) {
    const MemoryPlan plan = plan_memory(c, {}, available, {}, &backend);
    if (plan.max_batch_tokens > 512) {
      EXPECT_LE(plan.activation_bytes, available / 8);
    }
    if (plan.max_batch_tokens < 2048) {
      const RunnerOptions twice{.max_batch_tokens = 2 * plan.max_batch_tokens};
      EXPECT_GT(plan_memory(c, {}, available, twice, &backend).activation_bytes, available / 8);
    }
  }
}

// Models of known shapes with random weights, with fewer layers and tokens than the real models.
TEST(MemoryPlan, ShapesTakeWhatIsPlanned) {
  for (const char* shape : {"smollm-135m", "qwen3.5-0.8b", "granite-1b-a400m", "qwen3-0.6b"})
    for (const Format format : {Format::Q4_0, Format::BF16}) {
      Config c = config_of_shape(shape);
      c.n_layers = c.layers.empty() ? 1 : 4, c.n_vocab = 2003;
      if (!c.layers.empty()) c.layers.resize(4);
      if (c.experts.n > 0) c.experts.n = 9;
      expect_planned(c, [&] { return dummy_source(c, format, 1); }, shape);
    }
}

TEST(MemoryPlan, LatentsTakeWhatIsPlanned) {
  Config c = config_of_shape("llama-3.2-1b");
  c.arch = &find_gguf_arch("deepseek2");
  c.n_layers = 2, c.dim = 512, c.n_heads = 8, c.ffn_dim = 768, c.n_vocab = 2003;
  set_latents(c, {.q_rank = 256, .kv_rank = 256, .nope_dim = 64, .rope_dim = 32, .value_dim = 64});
  c.rot_dim = 32;
  c.experts = {.n = 8, .n_used = 2, .ffn_dim = 96, .shared_dim = 96};
  for (const Format format : {Format::Q8_0, Format::F16})
    expect_planned(c, [&] { return dummy_source(c, format, 1); }, "latents");
}

// Decorators observe a backend's ops and change neither the planned nor the used memory.
TEST(MemoryPlan, DecoratorsChangeNoPlan) {
  const std::string path = (fs::path(testing::TempDir()) / "memory_plan_trace.json").string();
  for (const char* name : {"llama_k", "qwen35", "deepseek3", "gpt_oss"})
    for (const char* device : {"cpu", "ref"}) {
      const auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (std::string(name) + ".gguf")).string()));
      RunnerOptions options{.backend = {.device = device, .n_threads = 1}, .n_ctx = 64, .max_seqs = 2};
      const auto plan_with = [&] {
        const Ranks ranks(config_from_gguf(*file), gguf_source(file), options, nullptr);
        if (std::string(device) == "cpu") {  // ref is only for tests
          EXPECT_EQ(ranks.memory().allocated_bytes(), ranks.allocated_bytes()) << name;
        }
        return ranks.memory();
      };
      const MemoryPlan plain = plan_with();
      for (const bool check_nan : {false, true})
        for (const bool traces : {false, true}) {
          options.check_nan = check_nan;
          options.trace = traces ? std::make_shared<TraceFile>(path) : nullptr;
          const MemoryPlan plan = plan_with();
          EXPECT_EQ(plan.weight_bytes, plain.weight_bytes);
          EXPECT_EQ(plan.borrowed_bytes, plain.borrowed_bytes);
          EXPECT_EQ(plan.kv_bytes, plain.kv_bytes);
          EXPECT_EQ(plan.state_bytes, plain.state_bytes);
          EXPECT_EQ(plan.activation_bytes, plain.activation_bytes);
          EXPECT_EQ(plan.n_blocks(), plain.n_blocks());
        }
    }
  fs::remove(path);
}

}  // namespace
}  // namespace ingot
