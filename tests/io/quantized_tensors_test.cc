// Every layout of quantized checkpoints against its oracle (tools/goldens/make_quantized.py): the gathered blocks
// decode to the oracle's weights, bit by bit. And refused input: tensors that are missing or do not match (bad-input
// rows S10, S11).
#include "io/huggingface/quantized_tensors.h"
#include "quant/f8_e4m3.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "io/quantized_bytes.h"
#include "io/refused.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kData = fs::path(INGOT_TEST_DATA) / "quantized";

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(kData))
    if (entry.path().extension() == ".safetensors") all.push_back(entry.path().stem());
  std::sort(all.begin(), all.end());
  return all;
}

// The format of each file's matrix, and its description for users.
struct Expected {
  const char* name;
  Format format;
  const char* type;
  bool exact = true;  // false: f32 scales; their product with a zero point is rounded, or they divide
};
constexpr Expected kExpected[] = {
    {"awq_g128", Format::AFFINE4_64, "AWQ 4-bit g128"},
    {"awq_g32", Format::AFFINE4_32, "AWQ 4-bit g32"},
    {"awq_gemv_g128", Format::AFFINE4_64, "AWQ gemv 4-bit g128"},
    {"awq_gemv_g32", Format::AFFINE4_32, "AWQ gemv 4-bit g32"},
    {"awq_gemv_g64", Format::AFFINE4_64, "AWQ gemv 4-bit g64"},
    {"ct_2bit", Format::AFFINE4_32, "INT 2-bit g32"},
    {"ct_2bit_asym", Format::AFFINE4_64, "INT 2-bit"},
    {"ct_3bit", Format::AFFINE4_32, "INT 3-bit g32"},
    {"ct_3bit_asym", Format::AFFINE4_64, "INT 3-bit"},
    {"ct_3bit_odd", Format::F32, "INT 3-bit"},
    {"ct_3bit_old", Format::AFFINE4_64, "INT 3-bit g64"},
    {"ct_4bit_asym", Format::AFFINE4_32, "INT 4-bit g32"},
    {"ct_4bit_odd", Format::F32, "INT 4-bit"},
    {"ct_4bit_rows", Format::AFFINE4_64, "INT 4-bit", false},
    {"ct_4bit_sym", Format::AFFINE4_64, "INT 4-bit g128"},
    {"ct_5bit", Format::AFFINE8_32, "INT 5-bit g32"},
    {"ct_5bit_asym", Format::AFFINE8_64, "INT 5-bit"},
    {"ct_5bit_old", Format::AFFINE8_64, "INT 5-bit g64"},
    {"ct_6bit", Format::AFFINE8_32, "INT 6-bit g32"},
    {"ct_6bit_asym", Format::AFFINE8_64, "INT 6-bit"},
    {"ct_6bit_old", Format::AFFINE8_64, "INT 6-bit g64"},
    {"ct_7bit", Format::AFFINE8_32, "INT 7-bit g32"},
    {"ct_7bit_asym", Format::AFFINE8_64, "INT 7-bit"},
    {"ct_7bit_old", Format::AFFINE8_64, "INT 7-bit g64"},
    {"ct_8bit_rows_asym", Format::AFFINE8_64, "INT 8-bit"},
    {"ct_fp8_blocks", Format::F8_E4M3_32, "FP8 E4M3 16x64"},
    {"ct_fp8_rows", Format::F8_E4M3, "FP8 E4M3 rows"},
    {"ct_fp8_tensor", Format::F8_E4M3, "FP8 E4M3"},
    {"ct_int8", Format::AFFINE8_64, "INT 8-bit"},
    {"ct_int8_asym", Format::AFFINE8_64, "INT 8-bit"},
    {"ct_int8_tensor", Format::AFFINE8_64, "INT 8-bit", false},
    {"ct_mxfp4", Format::MXFP4, "MXFP4"},
    {"ct_mxfp8", Format::F8_E4M3_32, "FP8 E4M3 1x32"},
    {"ct_nvfp4", Format::NVFP4_SCALED, "NVFP4", false},
    {"fp8_blocks", Format::F8_E4M3_32, "FP8 E4M3 128x128"},
    {"fp8_blocks_bf16", Format::F8_E4M3_32, "FP8 E4M3 32x64"},
    {"fp8_odd_blocks", Format::F32, "FP8 E4M3 16x24"},
    {"fp8_powers_of_two", Format::F8_E4M3_32, "FP8 E4M3 32x64"},
    {"fp8_rows", Format::F8_E4M3, "FP8 E4M3 rows"},
    {"fp8_tensor", Format::F8_E4M3, "FP8 E4M3"},
    {"gptq_2bit_g64_sym", Format::AFFINE4_64, "GPTQ 2-bit g64"},
    {"gptq_3bit_g32", Format::AFFINE4_32, "GPTQ 3-bit g32"},
    {"gptq_4bit_g128", Format::AFFINE4_64, "GPTQ 4-bit g128"},
    {"gptq_4bit_g128_sym", Format::AFFINE4_64, "GPTQ 4-bit g128"},
    {"gptq_4bit_g64_v2", Format::AFFINE4_64, "GPTQ 4-bit g64"},
    {"gptq_8bit_g-1_sym_v2", Format::AFFINE8_64, "GPTQ 8-bit"},
    {"gptq_8bit_g32", Format::AFFINE8_32, "GPTQ 8-bit g32"},
    {"gptq_act_order", Format::F16, "GPTQ 4-bit g32 act-order"},
    {"gptq_odd_rows", Format::F32, "GPTQ 4-bit"},
    {"gptq_v2_said_to_be_v1", Format::AFFINE4_64, "GPTQ 4-bit g64"},
    {"mlx_2bit_g128_float16", Format::AFFINE4_64, "MLX 2-bit g128"},
    {"mlx_2bit_g32_bfloat16", Format::AFFINE4_32, "MLX 2-bit g32"},
    {"mlx_3bit_g128_float32", Format::AFFINE4_64, "MLX 3-bit g128"},
    {"mlx_3bit_g64_bfloat16", Format::AFFINE4_64, "MLX 3-bit g64"},
    {"mlx_4bit_g128_bfloat16", Format::AFFINE4_64, "MLX 4-bit g128"},
    {"mlx_4bit_g32_float16", Format::AFFINE4_32, "MLX 4-bit g32"},
    {"mlx_4bit_g64_bfloat16", Format::AFFINE4_64, "MLX 4-bit g64"},
    {"mlx_5bit_g32_bfloat16", Format::AFFINE8_32, "MLX 5-bit g32"},
    {"mlx_5bit_g64_float16", Format::AFFINE8_64, "MLX 5-bit g64"},
    {"mlx_6bit_g128_float16", Format::AFFINE8_64, "MLX 6-bit g128"},
    {"mlx_6bit_g64_bfloat16", Format::AFFINE8_64, "MLX 6-bit g64"},
    {"mlx_8bit_g32_float32", Format::AFFINE8_32, "MLX 8-bit g32"},
    {"mlx_8bit_g64_bfloat16", Format::AFFINE8_64, "MLX 8-bit g64"},
    {"mlx_mxfp4", Format::MXFP4, "MLX MXFP4"},
    {"mlx_mxfp8", Format::F8_E4M3_32, "MLX MXFP8"},
    {"mlx_nvfp4", Format::NVFP4, "MLX NVFP4"},
    {"mlx_nvfp4_odd", Format::F32, "MLX NVFP4"},
    {"modelopt_fp8", Format::F8_E4M3, "FP8 E4M3"},
    {"modelopt_fp8_blocks", Format::F8_E4M3_32, "FP8 E4M3 128x128"},
    {"modelopt_fp8_rows", Format::F8_E4M3, "FP8 E4M3 rows"},
    {"modelopt_mxfp4", Format::MXFP4, "ModelOpt MXFP4"},
    {"modelopt_mxfp8", Format::F8_E4M3_32, "FP8 E4M3 1x32"},
    {"modelopt_nvfp4", Format::NVFP4_SCALED, "ModelOpt NVFP4"},
    {"modelopt_nvfp4_odd", Format::F32, "ModelOpt NVFP4"},
    {"mxfp4_experts", Format::MXFP4, "MXFP4"},
};

std::optional<HfQuantization> quantization_of(const Safetensors& files) {
  const auto& metadata = files.metadata();
  for (const auto& [key, value] : metadata)
    if (key == "config") return HfQuantization::read(JsonDocument::parse(value, "config.json").root());
  return std::nullopt;
}

class QuantizedGoldens : public testing::TestWithParam<std::string> {};

TEST_P(QuantizedGoldens, DecodeToTheOraclesWeights) {
  const auto expected = std::ranges::find(kExpected, GetParam(), &Expected::name);
  ASSERT_NE(expected, std::end(kExpected)) << "no row for this file";
  const auto files = Safetensors::open_file((kData / (GetParam() + ".safetensors")).string());
  const QuantizedTensors tensors(files, quantization_of(files), "model");
  const QuantizedMatrix* matrix = tensors.find("m");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->type, expected->type);
  EXPECT_TRUE(tensors.is_part(*matrix->codes) && tensors.is_part(*matrix->scales));

  const SafeTensor* weights = files.find("expected");
  ASSERT_NE(weights, nullptr);
  ASSERT_THAT(weights->dims(), testing::ElementsAre(matrix->n_out, matrix->n_in));
  uint64_t n_bytes = 0;
  for (const SafeTensor& t : files.tensors())
    n_bytes += t.name == "expected" || t.name == "m.input_scale" ? 0 : t.n_bytes;
  EXPECT_EQ(matrix->n_bytes, n_bytes);

  const GatheredMatrix gathered = tensors.gather(*matrix);
  EXPECT_STREQ(info(gathered.format).name, info(expected->format).name);
  std::vector<float> row(static_cast<size_t>(matrix->n_in)), want(row);
  float error = 0;
  for (int64_t i = 0; i < matrix->n_out; ++i) {
    decode_row(gathered.format, gathered.bytes() + i * row_bytes(gathered.format, matrix->n_in), row.data(),
               matrix->n_in);
    std::memcpy(want.data(), files.data(*weights).data() + i * matrix->n_in * 4, want.size() * 4);
    for (size_t k = 0; k < row.size(); ++k) {
      ASSERT_NEAR(row[k], want[k], expected->exact ? 0 : 3e-8) << "row " << i << ", column " << k;
      error = std::max(error, std::abs(row[k] - want[k]));
    }
  }
  RecordProperty("layout", matrix->type);  // tools/formats_table.py makes a table from these
  RecordProperty("becomes", info(gathered.format).name);
  RecordProperty("max_error", fmt::format("{}", error));
  RecordProperty("n_compared", static_cast<int>(matrix->n_out * matrix->n_in));
  RecordProperty("bytes_per_weight", fmt::format("{:.4g}", static_cast<double>(matrix->n_bytes) /
                                                               static_cast<double>(matrix->n_out * matrix->n_in)));
}

TEST(QuantizedTensors, EveryFileHasItsRow) { EXPECT_EQ(names().size(), std::size(kExpected)); }

INSTANTIATE_TEST_SUITE_P(Files, QuantizedGoldens, testing::ValuesIn(names()), [](const auto& i) {
  std::string name = i.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Blocks of 128 x 128 become blocks of 128 columns, by the definition of the layout.
TEST(QuantizedTensors, GathersFloat8WithBlocksOf128) {
  const float scales[2][2] = {{0.5f, 2}, {3, 0.25f}};
  const std::string scale_bytes(reinterpret_cast<const char*>(scales), sizeof scales);
  const std::string bytes = QuantizedBytes()
                                .add("m.weight", "F8_E4M3", {130, 256})
                                .add("m.weight_scale_inv", "F32", {2, 2}, scale_bytes)
                                .bytes();
  const auto files = Safetensors::parse(span_of(bytes), "m.safetensors");
  const std::string config = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
  const QuantizedTensors tensors(files, HfQuantization::read(JsonDocument::parse(config, "config.json").root()),
                                 "model");
  const GatheredMatrix gathered = tensors.gather(*tensors.find("m"));
  ASSERT_STREQ(info(gathered.format).name, "F8_E4M3");
  std::vector<float> row(256);
  for (const int64_t i : {0, 1, 127, 128, 129}) {
    decode_row(Format::F8_E4M3, gathered.bytes() + i * row_bytes(Format::F8_E4M3, 256), row.data(), 256);
    for (int k = 0; k < 256; ++k) {
      const auto number = static_cast<uint8_t>(i * 256 + k);
      if ((number & 0x7F) == 0x7F) EXPECT_TRUE(std::isnan(row[k]));
      else
        EXPECT_EQ(row[k], scales[i / 128][k / 128] * quant::float_from_e4m3(number)) << "row " << i << ", column " << k;
    }
  }
}

// ---- tensors that do not match ----

void gather_all(const QuantizedBytes& file, const std::string& config) {
  const std::string bytes = file.bytes();
  const auto files = Safetensors::parse(span_of(bytes), "m.safetensors");
  const QuantizedTensors tensors(files, HfQuantization::read(JsonDocument::parse(config, "config.json").root()),
                                 "model");
  for (const QuantizedMatrix& matrix : tensors.matrices()) tensors.gather(matrix);
}
std::string complaint(const QuantizedBytes& file, const std::string& config) {
  return refusal([&] { gather_all(file, config); });
}

const std::string kMlx = R"({"quantization": {"group_size": 64, "bits": 4}})";

QuantizedBytes mlx_file() {
  return QuantizedBytes().add("m.weight", "U32", {4, 16}).add("m.scales", "F16", {4, 2}).add("m.biases", "F16", {4, 2});
}

TEST(QuantizedTensors, MlxThatDoesNotFitIsRefused) {  // S11
  {
    const std::string bytes = mlx_file().bytes();
    const auto files = Safetensors::parse(span_of(bytes), "m");
    const QuantizedTensors tensors(files, HfQuantization::read(JsonDocument::parse(kMlx, "c").root()), "model");
    EXPECT_EQ(tensors.matrices()[0].n_in, 128);
    EXPECT_EQ(tensors.matrices()[0].n_bytes, 4u * 16 * 4 + 2 * 4 * 2 * 2);
  }
  struct Row {
    const char* tensor;
    const char* dtype;  // null: removed
    std::vector<int64_t> dims;
    const char* expected;
  };
  const Row rows[] = {
      {"m.scales", nullptr, {}, "tensor 'm.scales' is missing: expected F16 [4, 2] for MLX 4-bit g64 weights"},
      {"m.biases", nullptr, {}, "tensor 'm.biases' is missing: expected F16 [4, 2]"},
      {"m.scales", "F16", {4, 1}, "tensor 'm.scales': F16 [4, 1] (8 bytes): expected F16 [4, 2]"},
      {"m.scales", "F16", {2, 4}, "expected F16 [4, 2]"},
      {"m.scales", "F16", {4, 2, 1}, "expected F16 [4, 2]"},
      {"m.scales", "F16", {4, 4096}, "F16 [4, 4096] (32768 bytes): expected F16 [4, 2]"},
      {"m.scales", "U8", {4, 2}, "tensor 'm.scales': U8 [4, 2] (8 bytes): expected F16 [4, 2]"},
      {"m.scales", "F64", {4, 2}, "expected F16 [4, 2]"},
      {"m.biases", "I32", {4, 2}, "tensor 'm.biases': I32 [4, 2]"},
      {"m.weight", "U8", {4, 64}, "tensor 'm.weight': U8 [4, 64] (256 bytes): expected U32 [4, 64]"},
      {"m.weight", "I32", {4, 16}, "tensor 'm.weight': I32"},
      {"m.weight", "U32", {64}, "tensor 'm.weight': 1 dimensions: expected 2"},
      {"m.weight", "U32", {2, 2, 16}, "expected F16 [2, 2, 2]"},  // experts without gaps
      {"m.weight", "U32", {4, 0}, "tensor 'm.weight': has no elements"},
      {"m.weight",
       "U32",
       {4, 15},
       "tensor 'm.weight': rows of 120 elements do not fill whole groups: expected a multiple of 64"},
      {"m.weight", "U32", {5, 16}, "tensor 'm.scales': F16 [4, 2] (16 bytes): expected F16 [5, 2]"}};
  for (const Row& row : rows)
    EXPECT_THAT(complaint(mlx_file().replace(row.tensor, row.dtype, row.dims), kMlx), HasSubstr(row.expected));
  EXPECT_THAT(complaint(mlx_file(), R"({"quantization": {"group_size": 64, "bits": 3}})"),
              HasSubstr("do not hold a whole number of codes"));
  EXPECT_THAT(complaint(mlx_file(), R"({"quantization": {"group_size": 64, "bits": 8}})"),
              HasSubstr("'m.scales': F16 [4, 2] (16 bytes): expected F16 [4, 1]"));
  EXPECT_THAT(complaint(mlx_file(), "{}"), HasSubstr("config.json does not describe its quantization"));
  EXPECT_THAT(
      complaint(mlx_file(), R"({"quantization": {"group_size": 64, "bits": 4, "model.layers.9": {"bits": 8}}})"),
      HasSubstr("describes the quantization of 'model.layers.9', but the files have no such quantized matrix"));
  EXPECT_THAT(complaint(mlx_file(), R"({"quantization": {"group_size": 64, "bits": 4, "m": false}})"),
              HasSubstr("does not cover it"));
  EXPECT_THAT(complaint(mlx_file().add("m.qweight", "I32", {16, 16}), kMlx), HasSubstr("'m.qweight'"));
}

TEST(QuantizedTensors, MxScalesThatAreNoNumbersAreRefused) {
  const std::string config = R"({"quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}})";
  QuantizedBytes file =
      QuantizedBytes().add("m.weight", "U32", {2, 8}).add("m.scales", "U8", {2, 4}, "\x7e\x01\x02\x03\x04\x05\x06\x80");
  EXPECT_THAT(complaint(file, config),
              HasSubstr("tensor 'm.scales': element 7 is 128, which is not a scale: expected 0 to 126"));
  EXPECT_THAT(complaint(file.add("m.biases", "F16", {2, 4}), config),
              HasSubstr("tensor 'm.biases': the tensor exists: expected none"));
  file =
      QuantizedBytes().add("m.weight", "U32", {2, 8}).add("m.scales", "U8", {2, 2}, std::string("\xfe\x00\x01\xff", 4));
  EXPECT_THAT(complaint(file, R"({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}})"),
              HasSubstr("element 3 is 255"));
  file.replace("m.weight", "U32", {2, 16});
  EXPECT_THAT(complaint(file, R"({"quantization": {"group_size": 32, "bits": 8, "mode": "mxfp8"}})"),
              HasSubstr("element 3 is 255"));
}

TEST(QuantizedTensors, GptqAndAwqThatDoNotFitAreRefused) {
  const std::string gptq = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}})";
  auto file = [] {
    return QuantizedBytes()
        .add("m.qweight", "I32", {8, 8})
        .add("m.qzeros", "I32", {2, 1})
        .add("m.scales", "F16", {2, 8})
        .add("m.g_idx", "I32", {64});
  };
  const std::string zeros(64 * 4, '\0');
  EXPECT_THAT(complaint(file(), gptq), HasSubstr("tensor 'm.g_idx': element"));  // its bytes are 0, 1, 2, ...
  EXPECT_THAT(complaint(file().replace("m.g_idx", "I32", {32}, zeros), gptq),
              HasSubstr("'m.g_idx': I32 [32] (128 bytes): expected I32 [64]"));
  EXPECT_THAT(complaint(file().replace("m.qzeros", "I32", {1, 2}), gptq),
              HasSubstr("'m.qzeros': I32 [1, 2] (8 bytes): expected I32 [2, 1]"));
  EXPECT_THAT(complaint(file().replace("m.scales", "F16", {8, 2}), gptq), HasSubstr("'m.scales': F16 [8, 2]"));
  EXPECT_THAT(complaint(file().replace("m.qzeros", nullptr, {}), gptq), HasSubstr("'m.qzeros' is missing"));
  EXPECT_THAT(complaint(file().replace("m.qweight", "I32", {8, 7}), gptq),
              HasSubstr("7 outputs of 4 bits do not fill whole words"));
  EXPECT_THAT(complaint(file().replace("m.qweight", "I64", {8, 8}), gptq), HasSubstr("'m.qweight': I64"));
  const std::string awq = R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}})";
  EXPECT_THAT(complaint(file(), awq),
              HasSubstr("'m.qweight': rows of 8 elements do not fill whole groups: expected a multiple of 32"));
  EXPECT_THAT(complaint(file().replace("m.qweight", "I32", {64, 1}).replace("m.scales", nullptr, {}), awq),
              HasSubstr("'m.scales' is missing"));
  auto gemv = [](int group) {
    return fmt::format(
        R"({{"quantization_config": {{"quant_method": "awq", "bits": 4, "group_size": {}, "version": "gemv"}}}})",
        group);
  };
  auto rows = [] {
    return QuantizedBytes()
        .add("m.qweight", "I32", {8, 8})
        .add("m.qzeros", "I32", {8, 4})
        .add("m.scales", "F16", {8, 32});
  };
  EXPECT_NO_THROW(gather_all(rows(), gemv(32)));
  EXPECT_THAT(complaint(rows().replace("m.scales", "F16", {8, 2}), gemv(32)),
              HasSubstr("'m.scales': F16 [8, 2] (32 bytes): expected F16 [8, 32]"));
  EXPECT_THAT(complaint(rows().replace("m.qzeros", "I32", {8, 1}), gemv(32)),
              HasSubstr("'m.qzeros': I32 [8, 1] (32 bytes): expected I32 [8, 4]"));
  EXPECT_THAT(complaint(rows(), gemv(64)), HasSubstr("'m.scales': F16 [8, 32] (512 bytes): expected F16 [8, 16]"));
  EXPECT_THAT(complaint(rows(), gemv(16)), HasSubstr("groups of 16: expected 32, 64 or a multiple of 128"));
}

TEST(QuantizedTensors, OthersThatDoNotFitAreRefused) {
  auto ct = [](const std::string& format, const std::string& weights) {
    return R"({"quantization_config": {"quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "config_groups": {"g": {"targets": ["Linear"], "weights": )" + weights + "}}}}";
  };
  const std::string packed = ct("pack-quantized", R"({"num_bits": 4, "strategy": "group", "group_size": 32})");
  auto file = [] {
    return QuantizedBytes()
        .add("m.weight_packed", "I32", {4, 8})
        .add("m.weight_scale", "BF16", {4, 2})
        .add("m.weight_shape", "I64", {2}, u64_bytes(4) + u64_bytes(64));
  };
  EXPECT_THAT(complaint(file().replace("m.weight_shape", "I64", {2}), packed),
              HasSubstr("tensor 'm.weight_shape': is [506097522914230528, 1084818905618843912]: expected the shape of "
                        "the codes, which is [4, 8 words]"));
  EXPECT_THAT(complaint(file().replace("m.weight_shape", nullptr, {}), packed),
              HasSubstr("'m.weight_shape' is missing"));
  EXPECT_THAT(complaint(file().replace("m.weight_scale", "BF16", {1}), packed),
              HasSubstr("'m.weight_scale': BF16 [1] (2 bytes): expected F16 [4, 2]"));
  const std::string asymmetric =
      ct("pack-quantized", R"({"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false})");
  EXPECT_THAT(complaint(file(), asymmetric), HasSubstr("'m.weight_zero_point' is missing: expected I32 [1, 2]"));
  EXPECT_THAT(complaint(file().add("m.weight_zero_point", "I8", {4, 3}), asymmetric),
              HasSubstr("'m.weight_zero_point': I8 [4, 3]"));
  auto shaped = [&](int64_t n_words, uint64_t n_out, uint64_t n_in) {
    return file()
        .replace("m.weight_packed", "I32", {4, n_words})
        .replace("m.weight_shape", "I64", {2}, u64_bytes(n_out) + u64_bytes(n_in));
  };
  for (const auto& [n_words, n_out, n_in] : {std::tuple{8, 4, 0}, {8, 4, 65}, {8, 4, 56}, {8, 5, 64}, {9, 4, 64}})
    EXPECT_THAT(complaint(shaped(n_words, n_out, n_in), packed),
                HasSubstr(fmt::format("'m.weight_shape': is [{}, {}]", n_out, n_in)));
  EXPECT_THAT(complaint(shaped(8, 4, ~uint64_t{0}), packed), HasSubstr("'m.weight_shape': is [4, -1]"));
  const std::string five = ct("pack-quantized", R"({"num_bits": 5, "strategy": "channel"})");
  EXPECT_THAT(complaint(shaped(2, 4, 7).replace("m.weight_scale", "BF16", {4, 1}), five),
              HasSubstr("rows of 7 elements have the same size in both packings"));
  EXPECT_THAT(complaint(shaped(3, 4, 64), five), HasSubstr("'m.weight_shape': is [4, 64]"));

  const std::string nvfp4 =
      ct("nvfp4-pack-quantized", R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})");
  auto floats4 = [](const std::string& global) {
    return QuantizedBytes()
        .add("m.weight_packed", "U8", {2, 16})
        .add("m.weight_scale", "F8_E4M3", {2, 2})
        .add("m.weight_global_scale", "F32", {1}, global);
  };
  EXPECT_NO_THROW(gather_all(floats4(std::string("\0\0\x80\x3f", 4)), nvfp4));
  for (const char* bits : {"\0\0\0\0", "\0\0\x80\x7f", "\0\0\xc0\x7f", "\0\0\x80\xbf"})  // 0, infinity, NaN, -1
    EXPECT_THAT(complaint(floats4(std::string(bits, 4)), nvfp4), HasSubstr("tensor 'm.weight_global_scale': "));
  EXPECT_THAT(complaint(floats4("").replace("m.weight_global_scale", nullptr, {}), nvfp4),
              HasSubstr("'m.weight_global_scale' is missing"));
  EXPECT_THAT(complaint(floats4("").replace("m.weight_scale", "F8_E4M3", {2, 1}), nvfp4),
              HasSubstr("expected F8_E4M3 [2, 2]"));
  EXPECT_THAT(complaint(floats4("").replace("m.weight_packed", "U8", {2, 12}), nvfp4),
              HasSubstr("rows of 24 elements do not fill whole groups"));

  const std::string modelopt = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})",
                    one("\0\0\x80\x3f", 4);
  auto nibbles = [&](std::vector<int64_t> dims_of_scalar) {
    return QuantizedBytes()
        .add("m.weight", "U8", {2, 16})
        .add("m.weight_scale", "F8_E4M3", {2, 2})
        .add("m.weight_scale_2", "F32", dims_of_scalar, one);
  };
  EXPECT_NO_THROW(gather_all(nibbles({}), modelopt));
  EXPECT_NO_THROW(gather_all(nibbles({1}).add("m.input_scale", "F32", {}), modelopt));
  EXPECT_THAT(complaint(nibbles({2}), modelopt), HasSubstr("'m.weight_scale_2': F32 [2] (8 bytes): expected F32 [1]"));
  EXPECT_THAT(complaint(nibbles({}).replace("m.weight_scale_2", nullptr, {}), modelopt),
              HasSubstr("'m.weight_scale_2' is missing"));
  EXPECT_THAT(complaint(nibbles({}).replace("m.weight_scale_2", "F16", {}), modelopt),
              HasSubstr("'m.weight_scale_2': F16 []"));
  EXPECT_THAT(complaint(nibbles({}).replace("m.weight_scale_2", "F32", {}, std::string("\0\0\xc0\x7f", 4)), modelopt),
              HasSubstr("'m.weight_scale_2': the scale of the whole matrix is nan"));
  EXPECT_THAT(complaint(nibbles({}).replace("m.weight_scale", "U8", {2, 2}), modelopt),
              HasSubstr("'m.weight_scale': U8 [2, 2] (4 bytes): expected F8_E4M3 [2, 2]"));
  EXPECT_THAT(complaint(nibbles({}).add("m.pre_quant_scale", "BF16", {32}), modelopt),
              HasSubstr("tensor 'm.pre_quant_scale': scales the matrix's input"));
  EXPECT_THAT(complaint(nibbles({}), "{}"), HasSubstr("config.json does not describe its quantization"));

  const std::string fp8 = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 32]}})";
  auto floats = [](const char* scale, const char* dtype, std::vector<int64_t> dims) {
    return QuantizedBytes().add("m.weight", "F8_E4M3", {5, 64}).add(scale, dtype, dims);
  };
  EXPECT_THAT(complaint(floats("m.weight_scale_inv", "F32", {2, 2}), fp8),
              HasSubstr("'m.weight_scale_inv': F32 [2, 2] (16 bytes): expected F32 [3, 2]"));
  EXPECT_THAT(complaint(floats("m.weight_scale_inv", "I32", {3, 2}), fp8), HasSubstr("'m.weight_scale_inv': I32"));
  EXPECT_THAT(complaint(floats("m.other", "F32", {3, 2}), fp8), HasSubstr("tensor 'm.weight_scale' is missing"));
  const std::string rows = R"({"quantization_config": {"quant_method": "fp8"}})";
  EXPECT_THAT(complaint(floats("m.weight_scale", "F32", {4}), rows),
              HasSubstr("'m.weight_scale': F32 [4] (16 bytes): expected F32 [5]"));
  EXPECT_THAT(complaint(floats("m.weight_scale", "F32", {3, 2}), rows), HasSubstr("expected F32 [5, 1]"));
  EXPECT_THAT(complaint(QuantizedBytes().add("m.weight", "F8_E5M2", {4, 64}).add("m.scales", "F16", {4, 1}), kMlx),
              HasSubstr("F8_E5M2"));
}

}  // namespace
}  // namespace ingot
