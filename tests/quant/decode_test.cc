// decode() gives bit for bit the results of the gguf package's NumPy dequantizers (Q1_0, Q2_0: of ggml itself; AFFINE*,
// F8_E4M3*: of mlx). The inputs are random codes with ordinary, special and non-finite scales.
#include "quant/format.h"

#include <fmt/format.h>

#include "quant/format_checks.h"

namespace ingot {
namespace {

// Records the properties for the table of tools/formats_table.py.
void record(Format format, const std::vector<float>& got, const std::vector<float>& want) {
  float error = 0;
  for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::abs(got[i] - want[i]));
  const FormatInfo& f = info(format);
  testing::Test::RecordProperty("format", f.name);
  testing::Test::RecordProperty("max_error", fmt::format("{}", error));
  testing::Test::RecordProperty("n_compared", static_cast<int>(got.size()));
  testing::Test::RecordProperty("bytes_per_weight",
                                fmt::format("{:.4g}", static_cast<double>(f.block_bytes) / f.block_size));
}

class Decode : public testing::TestWithParam<Format> {};

void check_golden(Format format, const std::string& kind) {
  const FormatInfo& f = info(format);
  const auto golden = quant::read_golden(std::string(f.name) + kind, f.block_size, f.block_bytes, false);
  std::vector<float> weights(golden.weights.size());
  decode_row(format, golden.blocks.data(), weights.data(), static_cast<int64_t>(weights.size()));
  quant::expect_same_floats(weights, golden.weights);
  if (kind == ".decode.bin") record(format, weights, golden.weights);
}

TEST_P(Decode, EqualsTheGolden) { check_golden(GetParam(), ".decode.bin"); }

std::vector<Format> block_formats() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) {
    if (info(static_cast<Format>(i)).block_size > 1) formats.push_back(static_cast<Format>(i));
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(Formats, Decode, testing::ValuesIn(block_formats()),
                         [](const auto& test) { return std::string(ingot::info(test.param).name); });

TEST(DecodeNonfinite, EqualsTheGgufPackage) {
  for (Format format : block_formats()) {
    SCOPED_TRACE(info(format).name);
    if (quant::has_nonfinite(info(format).scale_fields[0].kind)) check_golden(format, ".nonfinite.bin");
  }
}

// tests/base/half_test.cc tests the conversions of each bit pattern.
TEST(DecodeDense, ReadsEveryElement) {
  const float f32[] = {1.5f, -0.0f, 3e38f};
  const uint16_t f16[] = {0x3E00, 0x8000, 0x0001}, bf16[] = {0x3FC0, 0x8000, 0x0001};
  std::vector<float> out(3);
  decode_row(Format::F32, f32, out.data(), 3);
  quant::expect_same_floats(out, {1.5f, -0.0f, 3e38f});
  decode_row(Format::F16, f16, out.data(), 3);
  quant::expect_same_floats(out, {1.5f, -0.0f, 0x1p-24f});
  decode_row(Format::BF16, bf16, out.data(), 3);
  quant::expect_same_floats(out, {1.5f, -0.0f, 0x1p-133f});
}

}  // namespace
}  // namespace ingot
