// Matrices that are quantized while a model is loaded, against the GGUF file that `ingot quantize` writes from the same
// checkpoint, and FP8 against the definition of its rows.
#include "model/files/load_quantizer.h"

#include <gmock/gmock.h>

#include <random>

#include "model/hf_models.h"
#include "model/export/quantize.h"
#include "model/program/shapes.h"
#include "quant/encode.h"
#include "quant/f8_e4m3.h"
#include "test_seed.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<float> logits_of(const Checkpoint& checkpoint, const std::string& quantize) {
  const Config config = checkpoint.config();
  const RunnerOptions options{
      .backend = {.device = "ref"}, .max_batch_tokens = 8, .max_logits = 8, .kv_dtype = DType::kF32};
  Ranks runner(config, quantized_source(checkpoint.weights(), config, quantize), options, nullptr);
  const std::vector<int32_t> tokens = {1, 5, 9, 3, 2};
  std::vector<float> all;
  for_each_logits(runner, tokens, 8, 0,
                  [&](int, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

std::string quantizer_refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(LoadQuantizer, GivesTheModelThatQuantizeWrites) {
  const std::string path = testing::TempDir() + "/load_quantizer_" + std::to_string(getpid()) + ".gguf";
  for (const std::string& name : hf_names()) {
    for (const char* mix : {"Q8_0", "Q4_0", "Q4_K_M"}) {
      SCOPED_TRACE(name + " as " + mix);
      const auto checkpoint = open_checkpoint((kHfModels / name).string());
      if (checkpoint->config().bidirectional) continue;
      // The file joins the projections of delta nets under a name for which Q4_K_M has a rule of its own.
      if (name == "qwen3next" && mix == std::string("Q4_K_M")) continue;
      write_gguf(gguf_export(checkpoint), {.mix = &find_mix(mix), .allow_requantize = true}, path);
      const auto written = open_checkpoint(path);
      std::vector<float> want, got;
      const std::string refused = quantizer_refusal([&] { got = logits_of(*checkpoint, mix); });
      if (refused.find("changes nothing") != refused.npos) continue;
      ASSERT_EQ(refused, "");
      want = logits_of(*written, "");
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3) << i;
    }
  }
  std::filesystem::remove(path);
}

TEST(LoadQuantizer, Fp8RowsHaveOneScaleAndTheNearestNumbers) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  constexpr int kIn = 256;
  std::vector<float> row(kIn), decoded(kIn);
  for (float& x : row) x = normal(random);
  std::vector<uint8_t> bytes(row_bytes(Format::F8_E4M3, kIn));
  encode_float8_row(row.data(), bytes.data(), kIn);
  EXPECT_EQ(std::memcmp(bytes.data(), bytes.data() + quant::F8_E4M3::block_bytes, 4), 0) << "the scales differ";
  decode_row(Format::F8_E4M3, bytes.data(), decoded.data(), kIn);
  float most = 0;
  for (const float x : row) most = std::max(most, std::fabs(x));
  for (int i = 0; i < kIn; ++i) {
    // Half a step: 3 bits of mantissa, and 2^-10 of the scale for the smallest numbers.
    EXPECT_LE(std::fabs(decoded[i] - row[i]),
              std::max(std::fabs(row[i]) / 16 * 1.0001f, most / 448 * 0x1p-10f * 1.0001f))
        << i;
  }
  std::fill(row.begin(), row.end(), 0.0f);
  encode_float8_row(row.data(), bytes.data(), kIn);
  decode_row(Format::F8_E4M3, bytes.data(), decoded.data(), kIn);
  EXPECT_THAT(decoded, testing::Each(0.0f));
}

TEST(LoadQuantizer, Fp8LeavesEmbeddingOutputRoutersAndShortRows) {
  const LoadQuantizer quantizer("fp8", {.n_layers = 4, .tied = false});
  EXPECT_EQ(quantizer.format_of("blk.1.attn_q.weight", Format::BF16, 256), Format::F8_E4M3);
  EXPECT_EQ(quantizer.format_of("blk.1.ffn_down_exps.weight", Format::BF16, 256), Format::F8_E4M3);
  EXPECT_EQ(quantizer.format_of("blk.1.attn_q.weight", Format::BF16, 192), Format::BF16);
  EXPECT_EQ(quantizer.format_of("blk.1.attn_q.weight", Format::Q4_K, 256), Format::Q4_K);
  EXPECT_EQ(quantizer.format_of("blk.1.ffn_gate_inp.weight", Format::BF16, 256), Format::BF16);
  EXPECT_EQ(quantizer.format_of("token_embd.weight", Format::BF16, 256), Format::BF16);
  EXPECT_EQ(quantizer.format_of("output.weight", Format::F16, 256), Format::F16);
}

TEST(LoadQuantizer, PlansTheBytesThatItLoads) {
  const Config config = config_of_shape("smollm-135m");
  const auto backend = create_backend({.device = "ref"});
  const auto bytes = [&](const char* type) {
    return weight_bytes(*quantized_source(dummy_source(config, Format::BF16, 1), config, type), config, *backend)
        .total();
  };
  EXPECT_NEAR(static_cast<double>(bytes("q8_0")) / static_cast<double>(bytes("")), 8.5 / 16, 0.01);
}

TEST(LoadQuantizer, SaysWhatItCannotDo) {
  const Config config = config_of_shape("smollm-135m");
  EXPECT_THAT(quantizer_refusal([&] { quantized_source(dummy_source(config, Format::BF16, 1), config, "q9"); }),
              AllOf(HasSubstr("unknown type 'q9'"), HasSubstr("fp8"), HasSubstr("Q4_K_M")));
  EXPECT_THAT(quantizer_refusal([&] { quantized_source(dummy_source(config, Format::Q4_0, 1), config, "q8_0"); }),
              AllOf(HasSubstr("quantizing to q8_0 changes nothing"), HasSubstr("already Q4_0")));
  const LoadQuantizer quantizer("q8_0", {.n_layers = 1});
  std::vector<float> rows(64, 1.0f);
  rows[40] = INFINITY;
  const HostTensor host{
      .format = Format::F32, .n_out = 2, .n_in = 32, .data = reinterpret_cast<const uint8_t*>(rows.data())};
  EXPECT_THAT(quantizer_refusal([&] { quantizer.encode(host, Format::Q8_0, "blk.0.attn_q.weight"); }),
              AllOf(HasSubstr("'blk.0.attn_q.weight', row 1: inf")));
}

}  // namespace
}  // namespace ingot
