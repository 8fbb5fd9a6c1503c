// encode_row() gives the same bytes as the gguf package's quantizers for formats with ggml's rounding. For other
// formats, its error is never larger than that of ggml's own search (tools/quantizer/error_goldens.py), and within
// known bounds for fresh random numbers.
#include "quant/encode.h"

#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "quant/format_checks.h"

namespace ingot {
namespace {

constexpr const char* kSearched[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1",   "Q2_K",   "Q3_K",
                                     "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};

std::vector<float> decoded(Format format, const std::vector<uint8_t>& row, size_t n) {
  std::vector<float> y(n);
  decode_row(format, row.data(), y.data(), static_cast<int64_t>(n));
  return y;
}

std::vector<float> round_trip(Format format, const std::vector<float>& x, const float* importance = nullptr) {
  std::vector<uint8_t> row(row_bytes(format, static_cast<int64_t>(x.size())));
  encode_row(format, x.data(), row.data(), static_cast<int64_t>(x.size()), importance);
  return decoded(format, row, x.size());
}

double squared_error(const std::vector<float>& x, const std::vector<float>& y, const float* importance = nullptr) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(double{x[i]} - y[i], 2) * (importance ? importance[i] : 1.0f);
  return sum;
}

std::string read_data(const char* name) {
  std::ifstream in(std::string(INGOT_TEST_DATA) + "/quant/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Encode, RoundsAsTheGgufPackage) {
  for (const char* name : {"F16", "BF16", "Q8_0"}) {
    SCOPED_TRACE(name);
    const Format format = *format_from_name(name);
    const FormatInfo& f = info(format);
    const auto golden = quant::read_golden(std::string(name) + ".encode.bin", f.block_size, f.block_bytes, true);
    std::vector<uint8_t> blocks(golden.blocks.size());
    encode_row(format, golden.weights.data(), blocks.data(), static_cast<int64_t>(golden.weights.size()));
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i], golden.blocks[i])
          << "block " << i / static_cast<size_t>(f.block_bytes) << ", byte " << i % static_cast<size_t>(f.block_bytes);
    }
  }
}

// Compares each block with the package's plain rounding.
TEST(Encode, NoBlockIsWorseThanThePackages) {
  for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1"}) {
    const Format format = *format_from_name(name);
    const FormatInfo& f = info(format);
    const auto golden = quant::read_golden(std::string(name) + ".encode.bin", f.block_size, f.block_bytes, true);
    const std::vector<float> theirs = decoded(format, golden.blocks, golden.weights.size()),
                             ours = round_trip(format, golden.weights);
    for (size_t b = 0; b < golden.weights.size(); b += f.block_size) {
      auto block = [&](const std::vector<float>& v) {
        return std::vector<float>(v.begin() + b, v.begin() + b + f.block_size);
      };
      const double bound = squared_error(block(golden.weights), block(theirs));
      EXPECT_LE(squared_error(block(golden.weights), block(ours)), bound * 1.0001)
          << name << ", block " << b / f.block_size;
    }
  }
}

TEST(Encode, NoRowIsWorseThanGgmls) {
  constexpr size_t n = 1024;
  const auto golden = nlohmann::json::parse(read_data("errors.json"));
  const std::string bytes = read_data("errors.bin");
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  const float* importance = &numbers[numbers.size() - n];
  for (const auto& [name, rows] : golden.items()) {
    const Format format = *format_from_name(name);
    ASSERT_EQ((rows.size() + 1) * n, numbers.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      SCOPED_TRACE(testing::Message() << name << ", row " << r);
      const std::vector<float> x(&numbers[r * n], &numbers[r * n] + n);
      EXPECT_LE(squared_error(x, round_trip(format, x)), rows[r][0].get<double>() * (1 + 1e-9));
      EXPECT_LE(squared_error(x, round_trip(format, x, importance), importance), rows[r][1].get<double>() * (1 + 1e-9));
    }
  }
}

// Root mean square error for Gaussian weights, relative to their deviation: the value from tools/quantizer/measure.py,
// plus 3 % for chance.
TEST(Encode, FreshGaussiansAreWithinTheKnownError) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(256 * 128), importance(x.size());
  for (float& value : x) value = normal(random);
  for (float& w : importance) w = std::exp(75 * normal(random));
  const std::vector<float> zeros(x.size());
  for (auto [format, share] : {std::pair{Format::Q8_0, 0.0054},
                               {Format::Q6_K, 0.0169},
                               {Format::Q5_K, 0.0343},
                               {Format::Q5_1, 0.0333},
                               {Format::Q5_0, 0.0400},
                               {Format::Q4_K, 0.0693},
                               {Format::Q4_1, 0.0688},
                               {Format::Q4_0, 0.0808},
                               {Format::IQ4_NL, 0.0733},
                               {Format::IQ4_XS, 0.0738},
                               {Format::MXFP4, 0.1115},
                               {Format::Q3_K, 0.1433},
                               {Format::Q2_K, 0.2587}}) {
    SCOPED_TRACE(info(format).name);
    const std::vector<float> plain = round_trip(format, x), weighted = round_trip(format, x, importance.data());
    EXPECT_LT(std::sqrt(squared_error(x, plain) / squared_error(x, zeros)), share * 1.03);
    if (format == Format::Q8_0) continue;
    EXPECT_LT(squared_error(x, weighted, importance.data()), squared_error(x, plain, importance.data()));
    EXPECT_GT(squared_error(x, weighted), squared_error(x, plain));
  }
}

// Difficult blocks for a search: zeros, one repeated value, a single nonzero value, tiny, large, all on one side.
TEST(Encode, OddBlocksComeBackWhole) {
  struct Case {
    const char* what;
    float (*value)(int i);
    double most;  // largest error of an element, relative to the largest magnitude
  };
  const Case cases[] = {{"zeros", [](int) { return 0.0f; }, 0},
                        {"one alone", [](int i) { return i == 77 ? -3.0f : 0.0f; }, 0.1},
                        {"all alike", [](int) { return 0.7f; }, 0.1},
                        {"all alike, below 0", [](int) { return -0.7f; }, 0.1},
                        {"below f16", [](int i) { return (i % 5 - 2) * 1e-30f; }, 1},
                        {"subnormal f16", [](int i) { return (i % 5 - 2) * 1e-6f; }, 0.35},
                        {"large", [](int i) { return (i % 5 - 2) * 30000.0f; }, 0.35},
                        {"one side", [](int i) { return 5.0f + static_cast<float>(i % 7) * 0.01f; }, 0.21}};
  for (const Case& c : cases) {
    std::vector<float> x(256);
    for (int i = 0; i < 256; ++i) x[i] = c.value(i);
    double largest = 0;
    for (float value : x) largest = std::max(largest, std::fabs(double{value}));
    for (const char* name : kSearched) {
      const std::vector<float> y = round_trip(*format_from_name(name), x);
      for (int i = 0; i < 256; ++i)
        ASSERT_NEAR(y[i], x[i], largest * c.most) << c.what << ", " << name << ", element " << i;
    }
  }
}

TEST(Encode, DenseFormatsKeepWhatTheyCanHold) {
  const float x[] = {1.5f, -0.25f, 0.0f, 96.0f};
  for (Format format : {Format::F32, Format::F16, Format::BF16}) {
    uint8_t row[16];
    std::vector<float> y(4);
    encode_row(format, x, row, 4);
    decode_row(format, row, y.data(), 4);
    EXPECT_THAT(y, testing::ElementsAreArray(x)) << info(format).name;
  }
}

TEST(Encode, SaysWhatItCanWrite) {
  for (const char* name : kSearched) EXPECT_TRUE(info(*format_from_name(name)).can_encode) << name;
  EXPECT_THAT(encodable_formats(),
              testing::AllOf(testing::StartsWith("F32, F16, BF16, Q4_0"), testing::HasSubstr("MXFP4")));
  EXPECT_THAT(encodable_formats(), testing::Not(testing::HasSubstr("IQ2")));
  const std::vector<float> x(256);
  std::vector<uint8_t> row(1024);
  EXPECT_FALSE(info(Format::IQ2_S).can_encode);
  try {
    encode_row(Format::IQ2_S, x.data(), row.data(), 256);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("IQ2_S"), testing::HasSubstr("Q4_K")));
  }
}

}  // namespace
}  // namespace ingot
