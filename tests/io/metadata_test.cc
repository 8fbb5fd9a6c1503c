#include "io/metadata.h"

#include <gmock/gmock.h>

#include <limits>

#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "io/refused.h"

namespace ingot {
namespace {

using testing::ElementsAre;

class MetadataTest : public testing::Test {
 protected:
  // Calls set(writer), and reads the result back.
  template <class F>
  const Metadata& made(const F& set) {
    GgufWriter writer;
    set(writer);
    bytes_ = writer.to_bytes();
    model_.emplace(Gguf::parse(bytes_, "m.gguf"));
    return model_->metadata();
  }
  template <class T>
  const Metadata& with(const T& value) {
    return made([&](GgufWriter& w) { w.set("k", value); });
  }

 private:
  std::vector<uint8_t> bytes_;
  std::optional<Gguf> model_;
};

TEST_F(MetadataTest, AnyIntegerThatFitsIsRead) {
  EXPECT_EQ(with(uint8_t{255}).get_u32("k"), 255u);
  EXPECT_EQ(with(int16_t{7}).get_u32("k"), 7u);
  EXPECT_EQ(with(uint64_t{1} << 31).get_u32("k"), 1u << 31);
  EXPECT_EQ(with(int64_t{-5}).find_i32("k").value(), -5);
  EXPECT_EQ(with(std::numeric_limits<uint64_t>::max()).find_u64("k").value(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(with(std::numeric_limits<int64_t>::min()).find_i64("k").value(), std::numeric_limits<int64_t>::min());
}

TEST_F(MetadataTest, WrongKindsAndValuesThatDoNotFitAreNamed) {  // G18
  auto u32_fault = [&](const auto& value) {
    const Metadata& metadata = with(value);
    const std::string got = refusal([&] { metadata.get_u32("k"); });
    EXPECT_EQ(refusal([&] { metadata.find_u32("k"); }), got) << "find_ refuses what get_ refuses";
    return got;
  };
  EXPECT_EQ(u32_fault(std::string("8")), "m.gguf: metadata 'k': expected u32, got str");
  EXPECT_EQ(u32_fault(std::vector<uint32_t>{1}), "m.gguf: metadata 'k': expected u32, got [u32]");
  EXPECT_EQ(u32_fault(true), "m.gguf: metadata 'k': expected u32, got bool true");
  EXPECT_EQ(u32_fault(8.0f), "m.gguf: metadata 'k': expected u32, got f32 8");
  EXPECT_EQ(u32_fault(int32_t{-1}), "m.gguf: metadata 'k': expected u32, got i32 -1");
  EXPECT_EQ(u32_fault((uint64_t{1} << 32) + 1), "m.gguf: metadata 'k': expected u32, got u64 4294967297");
  EXPECT_EQ(refusal([&] { with(uint32_t{1}).find_bool("k").value(); }),
            "m.gguf: metadata 'k': expected bool, got u32 1");
  EXPECT_EQ(refusal([&] { with(uint32_t{1}).get_f32("k"); }), "m.gguf: metadata 'k': expected f32, got u32 1");
  EXPECT_EQ(refusal([&] { with(uint32_t{1}).get_string("k"); }), "m.gguf: metadata 'k': expected str, got u32 1");
  EXPECT_EQ(refusal([&] { with(uint32_t{1}).get_strings("k"); }), "m.gguf: metadata 'k': expected [str], got u32");
}

TEST_F(MetadataTest, MissingKeysAreNamed) {  // G17
  const Metadata& metadata = with(1);
  EXPECT_EQ(refusal([&] { metadata.get_u32("llama.block_count"); }), "m.gguf: metadata 'llama.block_count' is missing");
  EXPECT_EQ(metadata.find_u32("no"), std::nullopt);
  EXPECT_EQ(metadata.find_strings("no"), std::nullopt);
  EXPECT_EQ(metadata.find_u32_per_layer("no", 4), std::nullopt);
  EXPECT_FALSE(metadata.contains("no"));
  EXPECT_TRUE(metadata.contains("k"));
}

TEST_F(MetadataTest, FloatsMustBeFinite) {  // G19
  EXPECT_EQ(with(0.5f).get_f32("k"), 0.5f);
  EXPECT_EQ(with(0.25).get_f32("k"), 0.25f);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal([&] { with(inf).get_f32("k"); }), "m.gguf: metadata 'k': expected a finite number, got inf");
  EXPECT_EQ(refusal([&] { with(std::nanf("")).get_f32("k"); }),
            "m.gguf: metadata 'k': expected a finite number, got nan");
  EXPECT_EQ(refusal([&] { with(1e300).get_f32("k"); }), "m.gguf: metadata 'k': expected f32, got f64 1e+300");
}

TEST_F(MetadataTest, ArraysCheckEachElement) {
  EXPECT_THAT(with(std::vector<uint8_t>{1, 255}).find_i32s("k").value(), ElementsAre(1, 255));
  EXPECT_THAT(with(std::vector<bool>{true, false}).find_bool_per_layer("k", 2).value(), ElementsAre(true, false));
  EXPECT_THAT(with(std::vector<double>{0.5, -1}).find_f32s("k").value(), ElementsAre(0.5f, -1.0f));
  EXPECT_THAT(with(std::vector<std::string>{"a", "", "c"}).get_strings("k"), ElementsAre("a", "", "c"));
  EXPECT_EQ(refusal([&] {
              with(std::vector<int32_t>{3, -2}).get_u32s("k");
            }),
            "m.gguf: metadata 'k': element 1: expected u32, got i32 -2");
  EXPECT_EQ(refusal([&] {
              with(std::vector<float>{0, std::nanf("")}).find_f32s("k").value();
            }),
            "m.gguf: metadata 'k': element 1 is not a number");
  EXPECT_EQ(refusal([&] { with(std::vector<std::vector<int>>{{1}}).find_i32s("k").value(); }),
            "m.gguf: metadata 'k': element 0: expected i32, got [i32]");
}

TEST_F(MetadataTest, ScalarOrOneValueALayer) {
  EXPECT_THAT(with(uint32_t{8}).find_u32_per_layer("k", 3).value(), ElementsAre(8, 8, 8));
  EXPECT_THAT(with(std::vector<int32_t>{4, 0, 2}).find_u32_per_layer("k", 3).value(), ElementsAre(4, 0, 2));
  EXPECT_THAT(*with(std::vector<bool>{true, false}).find_bool_per_layer("k", 2), ElementsAre(true, false));
  EXPECT_EQ(refusal([&] {
              with(std::vector<int32_t>{4, 0}).find_u32_per_layer("k", 3).value();
            }),
            "m.gguf: metadata 'k': 2 elements for 3 layers");
  EXPECT_EQ(refusal([&] { with(2.5f).find_u32_per_layer("k", 3).value(); }),
            "m.gguf: metadata 'k': expected u32, got f32 2.5");
}

TEST_F(MetadataTest, KeepsFileOrderAndFindsEveryKey) {
  const Metadata& metadata = made([](GgufWriter& w) {
    for (int i = 0; i < 100; ++i) w.set(fmt::format("key.{}", i * 37 % 100), i);
  });
  ASSERT_EQ(metadata.entries().size(), 100u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(metadata.entries()[i].key, fmt::format("key.{}", i * 37 % 100));
    EXPECT_EQ(metadata.find_i32(fmt::format("key.{}", i * 37 % 100)).value(), i);
  }
}

TEST_F(MetadataTest, RendersForPeople) {
  auto shown = [&](const auto& value) { return render(*with(value).find("k")); };
  EXPECT_EQ(shown(int8_t{-3}), "-3");
  EXPECT_EQ(shown(uint8_t{65}), "65");
  EXPECT_EQ(shown(1e-5f), "1e-05");
  EXPECT_EQ(shown(true), "true");
  EXPECT_EQ(shown("say \"hi\"\n\x1b[1m"), "\"say \\\"hi\\\"\\x0a\\x1b[1m\"");
  EXPECT_EQ(shown(std::vector<int>{1, 2, 3}), "[1, 2, 3]");
  EXPECT_EQ(shown(std::vector<int>{}), "[]");
  EXPECT_EQ(shown(std::vector<std::vector<int>>{{1}, {2, 3}}), "[[1], [2, 3]]");
  EXPECT_EQ(render(*with(std::vector<std::string>(1000, "x")).find("k"), 2), "[1000 x str] \"x\", \"x\", ...");
  EXPECT_LT(shown(std::string(10'000'000, 'n')).size(), 300u);  // G44
}

TEST_F(MetadataTest, AnyByteButZeroIsTrue) {  // G15
  GgufWriter writer;
  writer.set("a", false);
  std::vector<uint8_t> bytes = writer.to_bytes();
  const size_t at = 24 + 8 + 1 + 4;  // header, key, value type
  ASSERT_EQ(bytes[at], 0);
  for (int byte = 0; byte < 256; ++byte) {
    bytes[at] = static_cast<uint8_t>(byte);
    EXPECT_EQ(Gguf::parse(bytes, "m").metadata().find_bool("a").value(), byte != 0);
  }
}

}  // namespace
}  // namespace ingot
