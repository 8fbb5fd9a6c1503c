// The table of formats: names, ids, sizes, and the names of formats that ingot refuses.
#include "quant/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ingot {
namespace {

struct Expected {
  Format format;
  const char* name;
  std::optional<uint32_t> ggml_type;
  int block_size, block_bytes;
};

// From ggml.h and ggml-common.h. The last entries are not ggml types.
constexpr Expected kExpected[] = {
    {Format::F32, "F32", 0, 1, 4},
    {Format::F16, "F16", 1, 1, 2},
    {Format::BF16, "BF16", 30, 1, 2},
    {Format::Q4_0, "Q4_0", 2, 32, 18},
    {Format::Q4_1, "Q4_1", 3, 32, 20},
    {Format::Q5_0, "Q5_0", 6, 32, 22},
    {Format::Q5_1, "Q5_1", 7, 32, 24},
    {Format::Q8_0, "Q8_0", 8, 32, 34},
    {Format::Q2_K, "Q2_K", 10, 256, 84},
    {Format::Q3_K, "Q3_K", 11, 256, 110},
    {Format::Q4_K, "Q4_K", 12, 256, 144},
    {Format::Q5_K, "Q5_K", 13, 256, 176},
    {Format::Q6_K, "Q6_K", 14, 256, 210},
    {Format::IQ4_NL, "IQ4_NL", 20, 32, 18},
    {Format::IQ4_XS, "IQ4_XS", 23, 256, 136},
    {Format::MXFP4, "MXFP4", 39, 32, 17},
    {Format::IQ1_S, "IQ1_S", 19, 256, 50},
    {Format::IQ1_M, "IQ1_M", 29, 256, 56},
    {Format::IQ2_XXS, "IQ2_XXS", 16, 256, 66},
    {Format::IQ2_XS, "IQ2_XS", 17, 256, 74},
    {Format::IQ2_S, "IQ2_S", 22, 256, 82},
    {Format::IQ3_XXS, "IQ3_XXS", 18, 256, 98},
    {Format::IQ3_S, "IQ3_S", 21, 256, 110},
    {Format::TQ1_0, "TQ1_0", 34, 256, 54},
    {Format::TQ2_0, "TQ2_0", 35, 256, 66},
    {Format::NVFP4, "NVFP4", 40, 64, 36},
    {Format::Q1_0, "Q1_0", 41, 128, 18},
    {Format::Q2_0, "Q2_0", 42, 64, 18},
    {Format::AFFINE4_32, "AFFINE4_32", {}, 32, 24},
    {Format::AFFINE4_64, "AFFINE4_64", {}, 64, 40},
    {Format::AFFINE8_32, "AFFINE8_32", {}, 32, 40},
    {Format::AFFINE8_64, "AFFINE8_64", {}, 64, 72},
    {Format::F8_E4M3, "F8_E4M3", {}, 128, 132},
    {Format::F8_E4M3_32, "F8_E4M3_32", {}, 32, 36},
    {Format::NVFP4_SCALED, "NVFP4_SCALED", {}, 64, 40},
};

TEST(Format, HasGgmlsSizesAndIds) {
  for (const Expected& e : kExpected) {
    const FormatInfo& f = info(e.format);
    EXPECT_STREQ(f.name, e.name);
    EXPECT_EQ(f.ggml_type, e.ggml_type) << e.name;
    EXPECT_EQ(f.block_size, e.block_size) << e.name;
    EXPECT_EQ(f.block_bytes, e.block_bytes) << e.name;
    if (e.ggml_type) {
      EXPECT_EQ(format_from_ggml(*e.ggml_type), e.format) << e.name;
      EXPECT_STREQ(ggml_type_name(*e.ggml_type), e.name);
    }
    EXPECT_EQ(row_bytes(e.format, 512), static_cast<size_t>(512 / e.block_size * e.block_bytes)) << e.name;
    visit(e.format, [&](auto type) { EXPECT_STREQ(decltype(type)::name, e.name); });
  }
}

TEST(Format, EveryIdAndNameIsItsOwn) {
  EXPECT_EQ(std::size(kExpected), static_cast<size_t>(kFormatCount));
  std::set<uint32_t> types;
  std::set<std::string> names;
  size_t n_typed = 0;
  for (int i = 0; i < kFormatCount; ++i) {
    const FormatInfo& f = info(static_cast<Format>(i));
    if (f.ggml_type) types.insert(*f.ggml_type), ++n_typed;
    names.insert(f.name);
  }
  EXPECT_EQ(types.size(), n_typed);
  EXPECT_EQ(names.size(), static_cast<size_t>(kFormatCount));
}

TEST(Format, NamesWhatItRefuses) {
  for (uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    EXPECT_EQ(format_from_ggml(type), std::nullopt);
    ASSERT_NE(ggml_type_name(type), nullptr) << type;
    EXPECT_THAT(ggml_type_name(type), testing::EndsWith(" (removed)"));
  }
  EXPECT_EQ(format_from_ggml(26), std::nullopt);
  EXPECT_STREQ(ggml_type_name(26), "I32");
  EXPECT_EQ(format_from_ggml(1000), std::nullopt);
  EXPECT_EQ(ggml_type_name(1000), nullptr);
}

TEST(Format, IsFoundByNameInAnyCase) {
  EXPECT_EQ(format_from_name("Q4_K"), Format::Q4_K);
  EXPECT_EQ(format_from_name("q4_k"), Format::Q4_K);
  EXPECT_EQ(format_from_name("bF16"), Format::BF16);
  for (const char* name : {"", "Q4", "Q4_K_M", "Q4_2"}) EXPECT_EQ(format_from_name(name), std::nullopt) << name;
}

TEST(Format, VisitPassesReferencesAndResultsThrough) {
  int calls = 0;
  int& reference = visit(Format::Q6_K, [&](auto) -> int& { return ++calls; });
  EXPECT_EQ(&reference, &calls);
  EXPECT_EQ(calls, 1);
}

TEST(FormatDeathTest, RowsAreWholeBlocks) {
  EXPECT_DEATH(row_bytes(Format::Q4_K, 128), "CHECK failed");
  EXPECT_DEATH(row_bytes(Format::F16, -1), "CHECK failed");
  EXPECT_DEATH(info(Format::kCount), "CHECK failed");
}

}  // namespace
}  // namespace ingot
