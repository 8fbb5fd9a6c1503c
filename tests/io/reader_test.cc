#include "io/reader.h"

#include <gtest/gtest.h>

#include "io/gguf_bytes.h"
#include "io/refused.h"

namespace ingot {
namespace {

TEST(Reader, ReadsUnalignedValuesInOrder) {
  GgufBytes bytes;
  bytes.u8(7).u32(0x01020304).put(-5.25f).put(int64_t{-9}).str("text");
  Reader reader(bytes.span(), "file");
  EXPECT_EQ(reader.read<uint8_t>("a"), 7);
  EXPECT_EQ(reader.read<uint32_t>("b"), 0x01020304u);
  EXPECT_EQ(reader.read<float>("c"), -5.25f);
  EXPECT_EQ(reader.read<int64_t>("d"), -9);
  EXPECT_EQ(reader.read_string("e"), "text");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(Reader, NamesFileContextFieldOffsetAndBothSizes) {
  GgufBytes bytes;
  bytes.u32(1).u8(2);
  Reader reader(bytes.span(), "some\nfile");
  reader.read<uint32_t>("first");
  Reader::Scope scope(reader, "metadata", "a.key");
  EXPECT_EQ(refusal([&] { reader.read<uint64_t>("second"); }),
            "some\\x0afile: metadata 'a.key': second at offset 4: truncated: need 8 bytes, have 1");
  EXPECT_EQ(reader.offset(), 4u) << "a failed read takes nothing";
}

TEST(Reader, ForgetsTheContextThatItLeft) {
  Reader reader({}, "f");
  { Reader::Scope scope(reader, "tensor", "t"); }
  EXPECT_EQ(refusal([&] { reader.read<uint8_t>("x"); }), "f: x at offset 0: truncated: need 1 bytes, have 0");
}

TEST(Reader, StringLengthThatWouldWrapIsTruncation) {
  for (const uint64_t length : {~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 48, uint64_t{1} << 30, uint64_t{5}}) {
    GgufBytes bytes;
    bytes.u64(length).raw("abcd");
    Reader reader(bytes.span(), "f");
    EXPECT_EQ(refusal([&] { reader.read_string("key"); }),
              fmt::format("f: key at offset 8: truncated: need {} bytes, have 4", length));
  }
}

}  // namespace
}  // namespace ingot
