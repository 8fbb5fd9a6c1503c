// Damaged and hostile safetensors files, by the rows (S..) of the list of faults. Each is refused with an error
// message, fast, and without allocating more than a few times the size of the file.
#include <gmock/gmock.h>


#include "base/cpu_time.h"
#include "base/file.h"
#include "io/largest_allocation.h"
#include "io/refused.h"
#include "io/safetensors_bytes.h"
#include "io/walk_safetensors.h"

namespace ingot {
namespace {

using testing::HasSubstr;

void expect_file_refused(const std::string& bytes, const std::string& expected) {
  SCOPED_TRACE(expected);
  largest_allocation = 0;
  const CpuTimer timer;
  const std::string message = refusal([&] { Safetensors::parse(span_of(bytes), "m.safetensors"); });
  EXPECT_LT(timer.seconds(), 2) << message;
  EXPECT_LE(largest_allocation, std::max<size_t>(4 * bytes.size(), 8192)) << message;
  EXPECT_THAT(message, testing::StartsWith("m.safetensors"));
  EXPECT_THAT(message, HasSubstr(expected));
}

void expect_header_refused(const std::string& header, const std::string& expected, size_t n_data = 8) {
  expect_file_refused(safetensors_bytes(header, n_data), expected);
}

// One tensor 't' with these fields.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

TEST(SafetensorsHostile, HeaderLengths) {  // S01
  expect_file_refused("", "need 8 bytes, have 0: an empty file");
  for (size_t n = 1; n < 8; ++n) expect_file_refused(std::string(n, 'x'), fmt::format("need 8 bytes, have {}", n));
  expect_file_refused(u64_bytes(0) + "{}", "header length at offset 0: 0 bytes are too few");
  expect_file_refused(u64_bytes(1) + "{}", "header length at offset 0: 1 bytes are too few");
  for (const uint64_t length : {~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63, uint64_t{100'000'001}})
    expect_file_refused(u64_bytes(length) + "{}",
                        fmt::format("header length at offset 0: {} bytes; the limit is 100000000", length));
  expect_file_refused(u64_bytes(3) + "{}", "truncated: need 3 bytes, have 2");
  expect_file_refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer");
  expect_file_refused("<!DOCTYPE html><html><body></body></html>", "web page");
  expect_file_refused("GGUF" + std::string(60, '\0'), "GGUF file");
  expect_file_refused("PK\3\4" + std::string(60, 'x'), "zip archive");
}

TEST(SafetensorsHostile, HeadersThatAreNoObject) {  // S02
  for (const char* header : {"[]  ", "12  ", "\"a\"", "null", "true"})
    expect_header_refused(header, "expected an object", 0);
  for (const char* header : {"{} x", "{,}", "{\"a\":}", "  ", "{\"a\": NaN}", "{\"\xff\xff\": 1}", "abcd"})
    expect_header_refused(header, "is not JSON", 0);
  expect_header_refused(std::string("{}\0\0", 4), "is not JSON", 0);
  expect_header_refused("\xEF\xBB\xBF{}", "byte order mark", 0);
}

TEST(SafetensorsHostile, Duplicates) {  // S03
  const std::string t = R"("t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})",
                    u = R"("t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})";
  expect_header_refused("{" + t + "," + u + "}", "tensor 't': this name occurs twice");
  expect_header_refused("{" + t + "," + t + "}", "tensor 't': this name occurs twice", 4);
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "'__metadata__' at offset", 0);
  expect_header_refused(R"({"__metadata__":{"a":"1","a":"1"}})", "the key 'a' occurs twice", 0);
  expect_header_refused(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"dtype":"U8"}})",
                        "'dtype' at offset 60: the key occurs twice");
}

TEST(SafetensorsHostile, Nesting) {  // S04
  for (const size_t depth : {65, 1000, 1'000'000})
    expect_header_refused("{\"t\":" + std::string(depth, '[') + std::string(depth, ']') + "}",
                          "expected an object, got array", 0);
  for (const size_t depth : {65, 1000, 1'000'000})  // where any value is allowed
    expect_header_refused("{\"t\":{\"x\":" + std::string(depth, '[') + std::string(depth, ']') + "}}",
                          "nested more than 64 levels", 0);
}

TEST(SafetensorsHostile, ManyTensors) {  // S05
  std::string same = "{", tiled = "{";
  for (int i = 0; i < 100'000; ++i) {
    const char* comma = i > 0 ? "," : "";
    same += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", comma, i);
    tiled += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", comma, i, i, i + 1);
  }
  expect_header_refused(same + "}", "overlaps tensor 't", 8);
  const std::string bytes = safetensors_bytes(tiled + "}", 100'000);
  largest_allocation = 0;
  const CpuTimer timer;
  EXPECT_EQ(Safetensors::parse(span_of(bytes), "m").tensors().size(), 100'000u);
  EXPECT_LT(timer.seconds(), 3);  // some tenths in a release build
  EXPECT_LT(largest_allocation, size_t{64} << 20);
}

TEST(SafetensorsHostile, Offsets) {  // S06
  const std::pair<const char*, const char*> rows[] = {{"[-1,8]", "'data_offsets' at offset 55: -1 is negative"},
                                                      {"[8,0]", "begins at 8, after its end at 0"},
                                                      {"[0,9]", "9 bytes, but shape [8] of U8 takes 8"},
                                                      {"[8,16]", "truncated: need 8 bytes, have 0"},
                                                      {"[9007199254740992,9007199254741000]", "truncated: need 8 bytes, have 0"},
                                                      {"[9223372036854775800,9223372036854775808]", "expected integers, got real"},
                                                      {"[18446744073709551608,18446744073709551616]", "expected integers, got real"},
                                                      {"[0.0,8.0]", "expected integers, got real"},
                                                      {"[\"0\",\"8\"]", "expected integers, got str"},
                                                      {"[0]", "expected 2 elements, got 1"},
                                                      {"[]", "expected 2 elements, got 0"},
                                                      {"[0,4,8]", "more than 2 elements"},
                                                      {"[[0],8]", "expected integers, got array"},
                                                      {"8", "expected an array, got integer"},
                                                      {"null", "expected an array, got null"},
                                                      {"{}", "expected an array, got object"}};
  for (const auto& [offsets, expected] : rows) expect_header_refused(tensor("\"U8\"", "[8]", offsets), expected);
  expect_header_refused(R"({"t":{"dtype":"U8","shape":[8]}})", "'data_offsets' at offset");
  expect_header_refused(R"({"t":{"shape":[8],"data_offsets":[0,8]}})", "'dtype' at offset");
  expect_header_refused(R"({"t":{"dtype":"U8","data_offsets":[0,8]}})", "'shape' at offset");
  expect_header_refused(R"({"t":{}})", "is missing");
}

TEST(SafetensorsHostile, Shapes) {  // S07
  const std::pair<const char*, const char*> rows[] = {{"[-8]", "-8 is negative"},
                                                      {"[8.0]", "expected integers, got real"},
                                                      {"[\"8\"]", "expected integers, got str"},
                                                      {"[[8]]", "expected integers, got array"},
                                                      {"8", "expected an array, got integer"},
                                                      {"[2,18446744073709551614]", "expected integers, got real"},
                                                      {"[2,9223372036854775807]", "multiply to more than 2^64 bits"},
                                                      {"[4294967296,4294967296]", "multiply to more than 2^64 bits"},
                                                      {"[1,1,1,1,1,1,1,1,8]", "more than 8 dimensions"},
                                                      {"[0]", "8 bytes, but shape [0] of U8 takes 0"}};
  for (const auto& [shape, expected] : rows) expect_header_refused(tensor("\"U8\"", shape, "[0,8]"), expected);
}

TEST(SafetensorsHostile, Types) {  // S08
  for (const char* dtype : {"\"f32\"", "\"F31\"", "\"\"", "\"F32 \"", "\"Q4_0\"", "\"\\u001b[2J\""})
    expect_header_refused(tensor(dtype, "[2]", "[0,8]"), "is not a type of the safetensors format");
  for (const char* dtype : {"3", "null", "[\"F32\"]", "true"})
    expect_header_refused(tensor(dtype, "[2]", "[0,8]"), "'dtype' at offset");
  expect_header_refused(tensor("\"F4\"", "[3]", "[0,2]"), "12 bits of F4 do not fill whole bytes");
  expect_header_refused(tensor("\"F6_E2M3\"", "[5]", "[0,4]"), "30 bits of F6_E2M3");
  expect_header_refused(tensor("\"F32\"", "[3]", "[0,8]"), "8 bytes, but shape [3] of F32 takes 12");
  expect_header_refused(R"({"":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "name is empty");
  expect_header_refused(R"({"t":[]})", "tensor 't' at offset 13: expected an object, got array");
  expect_header_refused(R"({"__metadata__":{"a":1}})",
                        "'__metadata__': 'a' at offset 29: expected a string, got integer", 0);
  expect_header_refused(R"({"__metadata__":{"a":{"b":"c"}}})", "expected a string, got object", 0);
  expect_header_refused(R"({"__metadata__":"a"})", "expected an object, got str", 0);
}

TEST(SafetensorsHostile, Layout) {  // S09, S14
  const std::string one = tensor("\"U8\"", "[8]", "[0,8]");
  for (const size_t n_data : {0u, 1u, 6u, 7u})
    expect_header_refused(one, fmt::format("tensor 't': data at offset 61: truncated: need 8 bytes, have {}", n_data),
                          n_data);
  expect_header_refused(one, "offset 69: 17 bytes after the last tensor", 25);
  expect_header_refused(tensor("\"U8\"", "[7]", "[1,8]"), "1 bytes before it belong to no tensor");
  expect_header_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      "tensor 'b': data at offset 117: 2 bytes before it");
  expect_header_refused(
      R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      "tensor 'b': data at offset 117: overlaps tensor 'a', which ends at 119");
  expect_header_refused("{}", "8 bytes after the last tensor", 8);
}

// A file that uses every part of the format, for the sweeps.
std::string written_fixture() {
  return safetensors_bytes(
      R"({"__metadata__":{"format":"pt","k":"v\u00e9"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("h":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"s":{"x":[1,{"y":2.5}],"dtype":"I64","shape":[],"data_offsets":[32,40]},)"
      R"("z":{"dtype":"F16","shape":[0,7],"data_offsets":[40,40]}}  )",
      40);
}

TEST(SafetensorsHostile, EveryTruncation) {
  const std::string whole = written_fixture();
  EXPECT_GT(walk(Safetensors::parse(span_of(whole), "m")), 0u);
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);
    EXPECT_NE(refusal([&] { Safetensors::parse(span_of(cut), "m"); }), "") << n;
  }
}

TEST(SafetensorsHostile, EveryByteValueAtEveryPlace) {
  const std::string whole = written_fixture();
  size_t n_accepted = 0, n_refused = 0;
  for (size_t i = 0; i < whole.size() - 40; ++i) {
    std::string bytes = whole;
    for (int value = 0; value < 256; ++value) {
      bytes[i] = static_cast<char>(value);
      try {
        walk(Safetensors::parse(span_of(bytes), "m"));
        ++n_accepted;
      } catch (const Error&) {
        ++n_refused;
      }
    }
  }
  EXPECT_GT(n_refused, 30'000u);
  EXPECT_GT(n_accepted, 1'000u);  // names and values of metadata
}

}  // namespace
}  // namespace ingot
