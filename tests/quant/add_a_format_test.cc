// docs/add-a-format.md, followed: the format that the page adds, under the checks that every format gets, and the
// page's text against this one.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "quant/format_checks.h"

namespace ingot::quant {

struct TQ2_0 : Grouped<TQ2_0> {
  static constexpr const char* name = "TQ2_0";
  static constexpr uint32_t ggml_type = 35;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 66;
  static constexpr int levels = 4;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int zero = 1;
  static constexpr ScaleField scale_fields[] = {{64, 0.8165f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < 8; ++g) {
      scales[g] = load_f16(block + 64);
      mins[g] = -zero * scales[g];
      for (int i = 0; i < 32; ++i) codes[32 * g + i] = (block[32 * (g / 4) + i] >> (2 * (g % 4))) & 3;
    }
  }
};

namespace {

TEST(AddAFormat, SatisfiesWhatEveryFormatMust) {
  check_unpack<TQ2_0>(fresh_seed());
  check_scale_fields<TQ2_0>(fresh_seed());
}

TEST(AddAFormat, EqualsTheGgufPackage) {
  for (const char* file : {"TQ2_0.decode.bin", "TQ2_0.nonfinite.bin"}) {
    const Golden golden = read_golden(file, TQ2_0::block_size, TQ2_0::block_bytes, false);
    std::vector<float> weights(golden.weights.size());
    for (size_t b = 0; b * TQ2_0::block_size < weights.size(); ++b) {
      TQ2_0::decode(&golden.blocks[b * TQ2_0::block_bytes], &weights[b * TQ2_0::block_size]);
    }
    expect_same_floats(weights, golden.weights);
  }
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(AddAFormat, ThePageShowsThisCode) {
  const std::string tests = std::string(INGOT_TEST_DATA) + "/..";
  const std::string source = read_text(tests + "/quant/add_a_format_test.cc");
  const size_t begin = source.find("struct TQ2_0"), end = source.find("\n};\n", begin) + 4;
  EXPECT_NE(read_text(tests + "/../docs/add-a-format.md").find(source.substr(begin, end - begin)), std::string::npos);
}

}  // namespace
}  // namespace ingot::quant
