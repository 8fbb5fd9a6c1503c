// Damaged and hostile files, by the rows (G..) of the list of faults. Each is refused with an error message, fast, and
// without allocating more than a few times the size of the file. Files that only look hostile are accepted.
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <new>

#include "base/cpu_time.h"
#include "base/file.h"
#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "io/gguf_bytes.h"
#include "io/largest_allocation.h"
#include "io/refused.h"
#include "io/walk.h"

std::atomic<size_t> largest_allocation{0};

// Not inlined: GCC would see malloc and free where it expects new and delete.
[[gnu::noinline]] void* operator new(size_t n_bytes, const std::nothrow_t&) noexcept {
  size_t largest = largest_allocation.load();
  while (n_bytes > largest && !largest_allocation.compare_exchange_weak(largest, n_bytes)) {}
  return std::malloc(n_bytes != 0 ? n_bytes : 1);
}
[[gnu::noinline]] void* operator new(size_t n_bytes) {
  if (void* memory = operator new(n_bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ingot {
namespace {

using testing::HasSubstr;

constexpr uint64_t kHuge[] = {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 60};
constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4_0 = 2;

struct Row {
  const char* id;
  GgufBytes bytes;
  std::string expected;  // part of the message
};

void expect_refused(const Row& row) {
  SCOPED_TRACE(row.id);
  largest_allocation = 0;
  const CpuTimer timer;
  const std::string message = refusal([&] { Gguf::parse(row.bytes.span(), "m.gguf"); });
  EXPECT_LT(timer.seconds(), 1) << message;
  // A table entry takes more memory than its 38 bytes in the file, and a vector grows by doubling.
  EXPECT_LE(largest_allocation, std::max<size_t>(4 * row.bytes.size(), 4096)) << message;
  EXPECT_THAT(message, testing::StartsWith("m.gguf: "));
  EXPECT_THAT(message, HasSubstr(row.expected));
}

GgufBytes gguf(uint64_t n_tensors, uint64_t n_entries, uint32_t version = 3) {
  return GgufBytes().header(n_tensors, n_entries, version);
}

TEST(GgufHostile, Versions) {  // G04
  expect_refused({"0", gguf(0, 0, 0), "version 0 is not supported"});
  expect_refused({"1", gguf(0, 0, 1), "version 1 is not supported"});
  expect_refused({"4", gguf(0, 0, 4), "version 4 is not supported"});
  expect_refused({"swapped", gguf(0, 0, 0x03000000), "big-endian"});
}

TEST(GgufHostile, CountsBeyondTheFile) {  // G05, G06
  for (const uint64_t count : kHuge) {
    expect_refused({"G05", gguf(0, count).zeros(100), "metadata count at offset 16: truncated"});
    expect_refused({"G06", gguf(count, 0).zeros(100), "tensor count at offset 8: truncated"});
  }
  expect_refused({"G05 one more", gguf(0, 1001 / 13 + 1).zeros(1001), "metadata count at offset 16: truncated"});
  expect_refused({"G06 one more", gguf(1001 / 32 + 2, 0).zeros(1001 - 8), "tensor count at offset 8: truncated"});
  expect_refused({"G06 own struct", gguf(~uint64_t{0} / sizeof(TensorInfo) + 1, 0).zeros(64), "tensor count"});
  expect_refused({"limit", gguf(65537, 0).zeros(65537 * 32), "65537 entries; the limit is 65536"});
  expect_refused({"limit", gguf(0, 65537).zeros(65537 * 13), "65537 entries; the limit is 65536"});
}

TEST(GgufHostile, KeyLengths) {  // G07
  for (const uint64_t length : {~uint64_t{0}, (uint64_t{1} << 48) - 1, ~uint64_t{0} - 31, uint64_t{101}})
    expect_refused({"G07", gguf(0, 1).u64(length).zeros(100), "metadata key at offset 32: truncated"});
}

TEST(GgufHostile, KeyNames) {  // G08
  expect_refused({"empty", gguf(0, 1).u32_entry("", 1), "metadata key at offset 32: '' is empty"});
  expect_refused({"NUL", gguf(0, 1).u32_entry(std::string_view("a\0b", 3), 1), "'a\\x00b' contains a NUL byte"});
  expect_refused({"UTF-8", gguf(0, 1).u32_entry("a\xff", 1), "'a\\xff' is not valid UTF-8"});
  expect_refused({"long", gguf(0, 1).u32_entry(std::string(65536, 'k'), 1), "65536 bytes; the limit is 65535"});
  expect_refused({"escape, in a message", gguf(0, 1).str("\x1b[31m\r\n").u32(77).u32(0),
                  "metadata '\\x1b[31m\\x0d\\x0a': value type at offset 39: unknown value type 77"});
  const GgufBytes longest = gguf(0, 1).u32_entry(std::string(65535, 'k'), 7);
  EXPECT_EQ(Gguf::parse(longest.span(), "m").metadata().get_u32(std::string(65535, 'k')), 7u);
}

TEST(GgufHostile, DuplicateKeys) {  // G09
  expect_refused({"G09", gguf(0, 3).u32_entry("b", 1).u32_entry("a", 2).u32_entry("b", 3),
                  "metadata 'b' at offset 58: this key occurs twice"});
}

TEST(GgufHostile, ValueTypes) {  // G10
  for (const uint32_t type : {13u, 255u, ~0u})
    expect_refused({"G10", gguf(0, 1).str("k").u32(type).zeros(8), fmt::format("unknown value type {}", type)});
}

TEST(GgufHostile, Arrays) {  // G11, G13, G14
  for (const uint64_t count : kHuge) {
    expect_refused({"G11", gguf(0, 1).array_entry("k", 13, count), "array element type at offset 37: unknown"});
    for (uint32_t type = 0; type < kNumValueTypes; ++type)
      expect_refused(
          {"G13", gguf(0, 1).array_entry("k", type, count).zeros(3), "array length at offset 41: truncated"});
  }
  expect_refused(
      {"G13 strings", gguf(0, 1).array_entry("k", 8, 13).zeros(100), "array length at offset 41: truncated"});
  expect_refused({"G13 last one cut", gguf(0, 1).array_entry("k", 8, 2).str("a").u64(4).raw("abc"),
                  "metadata 'k': string at offset 66: truncated: need 4 bytes, have 3"});
  expect_refused({"G14", gguf(0, 1).str("k").u32(8).u64(uint64_t{1} << 30).zeros(100),
                  "metadata 'k': string at offset 45: truncated: need 1073741824 bytes, have 100"});
}

GgufBytes nested(size_t depth) {
  GgufBytes bytes = gguf(0, 1).str("k").u32(9);
  for (size_t i = 1; i < depth; ++i) bytes.u32(9).u64(1);
  return bytes.u32(4).u64(1).u32(42);
}

TEST(GgufHostile, Nesting) {  // G12
  for (const size_t depth : {1, 2}) {
    const GgufBytes bytes = nested(depth);
    EXPECT_THAT(render(*Gguf::parse(bytes.span(), "m").metadata().find("k")), HasSubstr("[42]"));
  }
  for (const size_t depth : {3, 64, 100'000}) expect_refused({"G12", nested(depth), "nested more than 2 levels deep"});
}

TEST(GgufHostile, Alignment) {  // G16
  const char* key = "general.alignment";
  expect_refused({"i32", gguf(0, 1).str(key).type(ValueType::kI32).u32(32), "expected u32, got i32"});
  expect_refused({"u64", gguf(0, 1).str(key).type(ValueType::kU64).u64(32), "expected u32, got u64"});
  for (const uint32_t alignment : {0u, 13u, 1u << 21, 1u << 30, 1u << 31})
    expect_refused(
        {"G16", gguf(0, 1).u32_entry(key, alignment), fmt::format("'{}': {} is not a power of two", key, alignment)});
  for (uint32_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    const GgufBytes bytes = gguf(1, 1).u32_entry(key, alignment).tensor("t", {1}, kF32, 0).align(alignment).put(1.5f);
    const Gguf model = Gguf::parse(bytes.span(), "m");
    EXPECT_EQ(model.data(model.tensors()[0]).data(), bytes.span().data() + bytes.size() - 4);
  }
}

TEST(GgufHostile, TensorNames) {  // G25
  auto named = [](std::string_view name) { return gguf(1, 0).tensor(name, {1}, kF32, 0).align().put(1.0f); };
  expect_refused({"empty", named(""), "tensor name at offset 32: '' is empty"});
  expect_refused({"64 bytes", named(std::string(64, 'n')), "64 bytes; the limit is 63"});
  expect_refused({"NUL", named(std::string_view("a\0", 2)), "contains a NUL byte"});
  expect_refused({"UTF-8", named("\xed\xa0\x80"), "is not valid UTF-8"});
  expect_refused({"length", gguf(1, 0).u64(~uint64_t{0}).zeros(100), "tensor name at offset 32: truncated"});
  expect_refused({"twice", gguf(2, 0).tensor("t", {1}, kF32, 0).tensor("t", {1}, kF32, 32).align().zeros(64),
                  "tensor 't': this name occurs twice"});
  const GgufBytes longest = named(std::string(63, 'n'));
  EXPECT_NE(Gguf::parse(longest.span(), "m").find(std::string(63, 'n')), nullptr);
}

// A file with one tensor of these dimensions, and some data.
GgufBytes shaped(const std::vector<uint64_t>& dims, uint32_t type) {
  return gguf(1, 0).tensor("t", dims, type, 0).align().zeros(256);
}

TEST(GgufHostile, Shapes) {  // G26, G27, G28, G29
  expect_refused({"G26", shaped({}, kF32), "tensor 't': dimension count at offset 33: 0 is not 1 to 4"});
  expect_refused({"G26", shaped({1, 1, 1, 1, 1}, kF32), "5 is not 1 to 4"});
  expect_refused({"G26", gguf(1, 0).str("t").u32(~0u).zeros(100), "4294967295 is not 1 to 4"});
  for (const std::vector<uint64_t>& dims : {std::vector<uint64_t>{0}, {0, 4}, {4, 0}, {4, 4, 4, 0}})
    expect_refused({"G27", shaped(dims, kF32), "a dimension is 0"});
  for (const uint64_t huge : {uint64_t{1} << 63, ~uint64_t{0}})
    for (const std::vector<uint64_t>& dims : {std::vector<uint64_t>{huge}, {1, huge}, {huge, huge}})
      expect_refused({"G27", shaped(dims, kF32), "multiply to more than 2^63"});
  const uint64_t k16 = 1 << 16;
  expect_refused({"G28", shaped({k16, k16, k16, k16}, kF32), "multiply to more than 2^63"});
  expect_refused({"G28", shaped({uint64_t{1} << 22, (uint64_t{1} << 42) + 1}, kF32), "multiply to more than 2^63"});
  expect_refused({"G28", shaped({uint64_t{1} << 62}, kF32), "take more than 2^63 bytes"});
  expect_refused({"G28", shaped({uint64_t{1} << 60}, kF32), "truncated: need 4611686018427387904 bytes, have 256"});
  expect_refused(
      {"G29", shaped({33}, kQ4_0), "rows of 33 elements are not a multiple of the 32 elements of a Q4_0 block"});
  expect_refused({"G29", shaped({16, 2}, kQ4_0), "rows of 16 elements are not a multiple"});
}

TEST(GgufHostile, TensorTypes) {  // G31
  for (const uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u})
    expect_refused({"removed", shaped({256}, type), fmt::format("tensor type {} (", type)});
  expect_refused({"removed", shaped({256}, 5), "5 (Q4_3 (removed); use the model in Q4_0)"});
  expect_refused({"removed", shaped({256}, 38), "38 (IQ4_NL_8_8 (removed); use the model in IQ4_NL)"});
  for (const uint32_t type : {43u, 1000u, 1u << 31, ~0u})
    expect_refused({"unknown", shaped({256}, type), fmt::format("tensor type {} (unknown) is not supported", type)});
}

TEST(GgufHostile, Offsets) {  // G30, G32
  auto at = [](uint64_t offset) { return gguf(1, 0).tensor("t", {8}, kF32, offset).align().zeros(64); };
  EXPECT_NO_THROW(Gguf::parse(at(32).span(), "m"));
  expect_refused({"misaligned", at(4), "data offset at offset 49: 4 is not a multiple of the alignment 32"});
  expect_refused({"beyond", at(64), "truncated: need 32 bytes, have 0"});
  expect_refused({"wraps", at(~uint64_t{31}), "truncated: need 32 bytes, have 0"});
  GgufBytes one_short = gguf(1, 0).tensor("t", {8}, kF32, 0).align().zeros(31);
  expect_refused({"one byte past the end", one_short, "truncated: need 32 bytes, have 31"});
  const uint64_t n = 0x7FFFFFFFFFFFFFC0;
  expect_refused(
      {"G30", gguf(2, 0).tensor("a", {n}, 24, 0).tensor("b", {n}, 24, n).align().zeros(64), "truncated: need"});
}

TEST(GgufHostile, Overlaps) {  // G33
  expect_refused({"half", gguf(2, 0).tensor("b", {16}, kF32, 32).tensor("a", {16}, kF32, 0).align().zeros(96),
                  "tensor 'b': data at offset 128 overlaps tensor 'a', which ends at 160"});
  GgufBytes many = gguf(60'000, 0);
  for (int i = 0; i < 60'000; ++i) many.tensor(fmt::format("t{}", i), {8}, kF32, 0);
  expect_refused({"60,000 at one place", many.align().zeros(64), "overlaps tensor"});
}

TEST(GgufHostile, HolesAreReported) {  // G34
  const GgufBytes padded = gguf(2, 0).tensor("a", {1}, kF32, 0).tensor("b", {1}, kF32, 32).align().zeros(64);
  EXPECT_THAT(Gguf::parse(padded.span(), "m").warnings(), testing::IsEmpty());
  const GgufBytes hole = gguf(2, 0).tensor("a", {1}, kF32, 0).tensor("b", {1}, kF32, 64).align().zeros(96);
  EXPECT_THAT(Gguf::parse(hole.span(), "m").warnings(), testing::ElementsAre("m: 60 bytes belong to no tensor"));
  const GgufBytes tail = gguf(1, 0).tensor("a", {8}, kF32, 0).align().zeros(32 + 40);
  EXPECT_THAT(Gguf::parse(tail.span(), "m").warnings(), testing::ElementsAre("m: 40 bytes belong to no tensor"));
}

// A file that uses every part of the format. Its last tensor ends at the end of the file.
std::vector<uint8_t> small_model() {
  GgufWriter writer;
  writer.set("general.architecture", "test");
  writer.set("general.alignment", uint32_t{32});
  writer.set("b", true);
  writer.set("f", 0.5f);
  writer.set("i", std::vector<int32_t>{1, 2, 3});
  writer.set("s", std::vector<std::string>{"one", "", "three"});
  writer.set("n", std::vector<std::vector<uint16_t>>{{1, 2}, {}, {3}});
  writer.add_tensor("f32", kF32, {4, 2}, std::vector<uint8_t>(32, 1));
  writer.add_tensor("q4", kQ4_0, {32, 1, 2}, std::vector<uint8_t>(36, 2));
  writer.add_tensor("last", kF32, {16}, std::vector<uint8_t>(64, 3));
  return writer.to_bytes();
}

TEST(GgufHostile, EveryPrefix) {  // G01, G35
  const std::vector<uint8_t> whole = small_model();
  EXPECT_NO_THROW(walk(Gguf::parse(whole, "m")));
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::vector<uint8_t> prefix(whole.begin(),
                                      whole.begin() + static_cast<ptrdiff_t>(n));  // ASan guards its end
    EXPECT_THAT(refusal([&] { Gguf::parse(prefix, "m.gguf"); }), HasSubstr("truncated: ")) << n << " bytes";
  }
}

TEST(GgufHostile, EveryByteChangedToEveryValue) {  // G02
  std::vector<uint8_t> bytes = small_model();
  const size_t header_bytes = Gguf::parse(bytes, "m").tensors()[0].offset;
  ASSERT_GT(header_bytes, 300u);
  size_t n_refused = 0;
  for (size_t i = 0; i < header_bytes; ++i) {
    const uint8_t original = bytes[i];
    for (int value = 0; value < 256; ++value) {
      bytes[i] = static_cast<uint8_t>(value);
      largest_allocation = 0;
      try {
        walk(Gguf::parse(bytes, "m"), /*call_getters=*/value % 32 == 0);
      } catch (const Error&) {
        ++n_refused;
      }
      ASSERT_LT(largest_allocation, 64u << 10) << "byte " << i << " = " << value;
    }
    bytes[i] = original;
  }
  EXPECT_GT(n_refused, header_bytes * 64) << "most changes to lengths, types and counts must be noticed";
}

TEST(GgufHostile, ManyKeysTakeLinearTime) {  // G09
  GgufBytes bytes = gguf(0, 65536);
  for (uint32_t i = 0; i < 65536; ++i) bytes.u32_entry(fmt::format("same.long.prefix.of.every.key.{:08}", i), i);
  const CpuTimer timer;
  const Gguf model = Gguf::parse(bytes.span(), "m");
  EXPECT_LT(timer.seconds(), 1);
  EXPECT_EQ(model.metadata().get_u32("same.long.prefix.of.every.key.00065535"), 65535u);
}

TEST(GgufHostile, LargeVocabularyAndTableOpenFast) {  // G45: must be accepted
  GgufWriter writer;
  std::vector<std::string> tokens, merges;
  for (int i = 0; i < 262'144; ++i) tokens.push_back(fmt::format("token{}", i));
  for (int i = 0; i < 600'000; ++i) merges.push_back(fmt::format("left{} right", i));
  writer.set("tokens", tokens);
  writer.set("scores", std::vector<float>(tokens.size(), -1.0f));
  writer.set("types", std::vector<int32_t>(tokens.size(), 1));
  writer.set("merges", merges);
  writer.set("head_count_kv", std::vector<uint32_t>(1024, 8));
  writer.set("expert_count", uint32_t{384});
  for (int i = 0; i < 2000; ++i) writer.add_tensor(fmt::format("blk.{}.w", i), kF32, {8}, std::vector<uint8_t>(32));
  const std::vector<uint8_t> bytes = writer.to_bytes();
  const CpuTimer timer;
  const Gguf model = Gguf::parse(bytes, "m");
  const double parsed = timer.seconds();
  EXPECT_EQ(model.metadata().get_strings("merges").back(), merges.back());
  EXPECT_EQ(model.metadata().get_strings("tokens")[262'143], tokens.back());
  EXPECT_EQ(model.metadata().find_f32s("scores").value().size(), tokens.size());
  EXPECT_EQ(model.metadata().find_u32_per_layer("head_count_kv", 1024).value()[1023], 8u);
  EXPECT_EQ(model.tensors().size(), 2000u);
  EXPECT_LT(timer.seconds(), 2);
  RecordProperty("parse_ms", fmt::format("{:.1f}", parsed * 1e3));
  RecordProperty("getters_ms", fmt::format("{:.1f}", (timer.seconds() - parsed) * 1e3));
}

}  // namespace
}  // namespace ingot
