// Files with saved prefixes: written files are read back, and every damaged file is refused.
#include "io/prefix_file.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "io/digest.h"
#include "io/largest_allocation.h"
#include "io/refused.h"
#include "io/safetensors_bytes.h"

namespace ingot {
namespace {

using testing::HasSubstr;

// Two blocks of three tokens each, in two caches; the first block of the first cache has no bytes.
PrefixFile small(const std::string& first, const std::string& second) {
  return {.model = "model",
          .layout = "layout",
          .salt = {1, 2},
          .block_tokens = 3,
          .caches = {{.block_bytes = 8, .n_missing = 1, .blocks = span_of(first)},
                     {.block_bytes = 2, .n_missing = 0, .blocks = span_of(second)}},
          .tokens = {5, 6, 7, 8}};
}

std::string written(const PrefixFile& file) {
  const std::string path = testing::TempDir() + "prefix_file_test_" + std::to_string(getpid()) + ".bin";
  PrefixFileWriter writer(path, file);
  for (const PrefixFile::Cache& cache : file.caches)
    for (const uint8_t& byte : cache.blocks) writer.write({&byte, 1});
  const size_t n_bytes = writer.commit();
  EXPECT_EQ(n_bytes, std::filesystem::file_size(path));
  std::string bytes = read_file(path);
  std::filesystem::remove(path);
  return bytes;
}

// The file with a new digest, valid for its changed bytes.
std::string signed_again(std::string bytes) {
  bytes.resize(bytes.size() - 64);
  Digest digest = Digest::sha256();
  digest.update(span_of(bytes));
  return bytes + digest.finish();
}

std::string prefix_refusal(const std::string& bytes) {
  largest_allocation = 0;
  const std::string message = refusal([&] { parse_prefix_file(span_of(bytes), "slot.bin"); });
  EXPECT_LE(largest_allocation, std::max<size_t>(4 * bytes.size(), 8192)) << message;
  EXPECT_THAT(message, testing::StartsWith("slot.bin"));
  return message;
}

TEST(PrefixFile, IsReadAsWritten) {
  const std::string first = "12345678", second = "abcd", bytes = written(small(first, second));
  const PrefixFile file = parse_prefix_file(span_of(bytes), "slot.bin");
  EXPECT_EQ(file.model, "model");
  EXPECT_EQ(file.layout, "layout");
  EXPECT_EQ(file.salt, (std::array<uint64_t, 2>{1, 2}));
  EXPECT_EQ(file.block_tokens, 3u);
  ASSERT_EQ(file.caches.size(), 2u);
  EXPECT_EQ(file.caches[0].block_bytes, 8u);
  EXPECT_EQ(file.caches[0].n_missing, 1u);
  EXPECT_EQ(file.tokens, (std::vector<int32_t>{5, 6, 7, 8}));
  const auto text_of = [](const PrefixFile::Cache& cache) {
    return std::string(cache.blocks.begin(), cache.blocks.end());
  };
  EXPECT_EQ(text_of(file.caches[0]), first);
  EXPECT_EQ(text_of(file.caches[1]), second);
  const std::string empty =
      written({.model = "m", .layout = "l", .block_tokens = 16, .caches = {{.block_bytes = 4}}, .tokens = {}});
  EXPECT_TRUE(parse_prefix_file(span_of(empty), "slot.bin").tokens.empty());
}

TEST(PrefixFile, IsRefusedWhereverItIsCutOrChanged) {
  const std::string first = "12345678", second = "abcd", bytes = written(small(first, second));
  for (size_t n = 0; n < bytes.size(); ++n) prefix_refusal(bytes.substr(0, n));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    prefix_refusal(changed);
  }
  EXPECT_THAT(prefix_refusal(bytes + "x"), HasSubstr("1 bytes follow it"));
}

// An attacker writes the digest too.
TEST(PrefixFile, NumbersAreCheckedBehindAValidDigest) {
  const std::string first = "12345678", second = "abcd", bytes = written(small(first, second));
  const size_t numbers = 8 + 8 + 5 + 8 + 6 + 16;  // behind the magic, the texts and the salt
  const auto with = [&](size_t at, const auto& value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + numbers + at, &value, sizeof value);
    return signed_again(changed);
  };
  EXPECT_THAT(prefix_refusal(with(0, uint32_t{0})), HasSubstr("tokens of a block at offset"));
  for (const uint32_t n_caches : {0u, 65u, ~0u})
    EXPECT_THAT(prefix_refusal(with(4, n_caches)), HasSubstr("must be 1 to 64"));
  for (const size_t cache : {8, 20}) {
    EXPECT_THAT(prefix_refusal(with(cache, uint64_t{0})), HasSubstr("is 0: must be 1 to"));
    EXPECT_THAT(prefix_refusal(with(cache, ~uint64_t{0})), HasSubstr("must be 1 to"));
    EXPECT_THAT(prefix_refusal(with(cache, uint64_t{1} << 40)), HasSubstr("truncated"));
    EXPECT_THAT(prefix_refusal(with(cache + 8, ~uint32_t{0})), HasSubstr("leaves out the bytes of 4294967295 blocks"));
  }
  EXPECT_THAT(prefix_refusal(with(32, ~uint32_t{0})), HasSubstr("truncated"));
  EXPECT_THAT(prefix_refusal(with(36, int32_t{-1})), HasSubstr("has the invalid token -1"));
  EXPECT_EQ(parse_prefix_file(span_of(with(36, int32_t{9})), "slot.bin").tokens[0], 9);
}

TEST(PrefixFile, SaysWhatAFileIsNot) {
  EXPECT_THAT(prefix_refusal("GGUF" + std::string(100, '\0')), HasSubstr("this is not a file of a saved slot"));
  EXPECT_THAT(prefix_refusal("INGOTKV1" + std::string(100, '\0')), HasSubstr("saved by another version of ingot"));
  EXPECT_THAT(prefix_refusal(""), HasSubstr("truncated"));
}

}  // namespace
}  // namespace ingot
