// Damaged quantized checkpoints: small ones of each layout, every truncation and every byte changed, of the weights and of
// config.json. Each is refused by Error, or gathered into blocks that decode; run it under a sanitizer.
#include <gtest/gtest.h>

#include <cstring>

#include "io/quantized_tensors.h"
#include "io/refused.h"
#include "io/walk_safetensors.h"
#include "quantized_bytes.h"

namespace ingot {
namespace {

struct Fixture {
  const char* name;
  std::string config;
  QuantizedBytes file;
};
void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.name; }

std::string hf(const std::string& members) { return R"({"quantization_config":{)" + members + "}}"; }

std::vector<Fixture> fixtures() {
  const std::string zeros(256, '\0'), shape = u64_bytes(8) + u64_bytes(32);
  const std::string groups = R"("config_groups":{"g":{"targets":["re:m"],"weights":{"num_bits":)";
  return {
      {"mlx", R"({"quantization":{"group_size":64,"bits":3,"n":{"group_size":32,"bits":8},"o":false}})",
       QuantizedBytes().add("m.weight", "U32", {2, 6}).add("m.scales", "BF16", {2, 1}).add("m.biases", "F16", {2, 1}).add("n.weight", "U32", {1, 8}).add("n.scales", "F32", {1, 1}).add("n.biases", "F32", {1, 1})},
      {"mxfp8", R"({"quantization":{"group_size":32,"bits":8,"mode":"mxfp8"}})", QuantizedBytes().add("m.weight", "U32", {2, 8}).add("m.scales", "U8", {2, 1})},
      {"nvfp4", R"({"quantization":{"group_size":16,"bits":4,"mode":"nvfp4"}})", QuantizedBytes().add("m.weight", "U32", {2, 8}).add("m.scales", "U8", {2, 4})},
      {"gptq", hf(R"("quant_method":"gptq","bits":4,"group_size":16,"sym":false)"),
       QuantizedBytes().add("m.qweight", "I32", {4, 8}).add("m.qzeros", "I32", {2, 1}).add("m.scales", "F16", {2, 8}).add("m.g_idx", "I32", {32}, zeros)},
      {"awq", hf(R"("quant_method":"awq","bits":4,"group_size":32)"), QuantizedBytes().add("m.qweight", "I32", {32, 1}).add("m.qzeros", "I32", {1, 1}).add("m.scales", "F16", {1, 8})},
      {"packed", hf(R"("quant_method":"compressed-tensors","format":"pack-quantized",)" + groups + R"(4,"strategy":"channel","symmetric":false}}})"),
       QuantizedBytes().add("m.weight_packed", "I32", {8, 4}).add("m.weight_scale", "F16", {8, 1}).add("m.weight_shape", "I64", {2}, shape).add("m.weight_zero_point", "I32", {1, 1})},
      {"int8", hf(R"("quant_method":"compressed-tensors","format":"int-quantized",)" + groups + R"(8,"strategy":"tensor"}}})"),
       QuantizedBytes().add("m.weight", "I8", {2, 32}).add("m.weight_scale", "F32", {1})},
      {"fp8", hf(R"("quant_method":"fp8","weight_block_size":[2,32])"), QuantizedBytes().add("m.weight", "F8_E4M3", {3, 64}).add("m.weight_scale_inv", "F32", {2, 2})},
      {"experts", hf(R"("quant_method":"mxfp4")"), QuantizedBytes().add("m_blocks", "U8", {2, 1, 1, 16}).add("m_scales", "U8", {2, 1, 1})},
  };
}

// Opens it and reads every row, as a loader would. Returns how many matrices there are.
size_t use(const std::string& bytes, const std::string& config) {
  const auto quantization = HfQuantization::read(JsonDocument::parse(config, "config.json").root());
  const auto files = Safetensors::parse(span_of(bytes), "m.safetensors");
  walk(files);
  const QuantizedTensors tensors(files, quantization, "model");
  for (const QuantizedMatrix& m : tensors.matrices()) {
    ensure(m.n_out > 0 && m.n_in > 0 && tensors.find(m.module) == &m, "each matrix is found");
    const GatheredMatrix gathered = tensors.gather(m);
    const size_t bytes_a_row = row_bytes(gathered.format, m.n_in);
    ensure(gathered.data.size() * 8 >= static_cast<size_t>(m.n_out) * bytes_a_row, "the rows are there");
    std::vector<float> row(static_cast<size_t>(m.n_in));
    for (int64_t i = 0; i < m.n_out; ++i) decode_row(gathered.format, gathered.bytes() + static_cast<size_t>(i) * bytes_a_row, row.data(), m.n_in);
  }
  return tensors.matrices().size();
}

class QuantizedHostile : public testing::TestWithParam<Fixture> {};

TEST_P(QuantizedHostile, EveryTruncation) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  EXPECT_GE(use(whole, config), 1u);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal([&] { use(whole.substr(0, n), config); }), "") << n;
  for (size_t n = 0; n < config.size(); ++n) EXPECT_NE(refusal([&] { use(whole, config.substr(0, n)); }), "") << n;
}

TEST_P(QuantizedHostile, EveryByteChanged) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  size_t n_used = 0, n_refused = 0;
  auto attempt = [&](const std::string& bytes, const std::string& json) {
    try {
      use(bytes, json);
      ++n_used;
    } catch (const Error&) {
      ++n_refused;
    }
  };
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    for (int value = 0; value < 256; value += i < 8 + header ? 1 : 15) {  // 0, 15, ... 255: of the data
      bytes[i] = static_cast<char>(value);
      attempt(bytes, config);
    }
  }
  constexpr char kValues[] = "\0\x1b\"0123456789-+.eE[]{},:nt \\\x7f\xc3\xff(*";  // and the zero at its end
  for (size_t i = 0; i < config.size(); ++i) {
    std::string json = config;
    for (const char value : kValues) {
      json[i] = value;
      attempt(whole, json);
    }
  }
  EXPECT_GT(n_refused, 10'000u);
  EXPECT_GT(n_used, 1'500u);  // codes, scales, names
}

INSTANTIATE_TEST_SUITE_P(, QuantizedHostile, testing::ValuesIn(fixtures()), [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace ingot
