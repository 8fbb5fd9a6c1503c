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

// Two blocks of three tokens each; the first block has no bytes.
PrefixFile small(const std::string& blocks) {
  return {.model = "model",
          .layout = "layout",
          .salt = {1, 2},
          .block_tokens = 3,
          .block_bytes = 8,
          .n_missing = 1,
          .tokens = {5, 6, 7, 8},
          .blocks = span_of(blocks)};
}

std::string written(const PrefixFile& file) {
  const std::string path = testing::TempDir() + "prefix_file_test_" + std::to_string(getpid()) + ".bin";
  const size_t n_bytes = write_prefix_file(path, file);
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
  const std::string bytes = written(small("12345678"));
  const PrefixFile file = parse_prefix_file(span_of(bytes), "slot.bin");
  EXPECT_EQ(file.model, "model");
  EXPECT_EQ(file.layout, "layout");
  EXPECT_EQ(file.salt, (std::array<uint64_t, 2>{1, 2}));
  EXPECT_EQ(file.block_tokens, 3u);
  EXPECT_EQ(file.block_bytes, 8u);
  EXPECT_EQ(file.n_missing, 1u);
  EXPECT_EQ(file.tokens, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(std::string(file.blocks.begin(), file.blocks.end()), "12345678");
  const std::string empty = written({.model = "m", .layout = "l", .block_tokens = 16, .block_bytes = 4});
  EXPECT_TRUE(parse_prefix_file(span_of(empty), "slot.bin").tokens.empty());
}

TEST(PrefixFile, IsRefusedWhereverItIsCutOrChanged) {
  const std::string bytes = written(small("12345678"));
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
  const std::string bytes = written(small("12345678"));
  const size_t numbers = 8 + 8 + 5 + 8 + 6 + 16;  // behind the magic, the texts and the salt
  const auto with = [&](size_t at, const auto& value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + numbers + at, &value, sizeof value);
    return signed_again(changed);
  };
  EXPECT_THAT(prefix_refusal(with(0, uint32_t{0})), HasSubstr("tokens of a block at offset"));
  EXPECT_THAT(prefix_refusal(with(4, uint64_t{0})), HasSubstr("is 0: must be 1 to"));
  EXPECT_THAT(prefix_refusal(with(4, ~uint64_t{0})), HasSubstr("must be 1 to"));
  EXPECT_THAT(prefix_refusal(with(4, uint64_t{1} << 40)), HasSubstr("truncated"));
  EXPECT_THAT(prefix_refusal(with(12, ~uint32_t{0})), HasSubstr("leaves out the bytes of 4294967295 blocks"));
  EXPECT_THAT(prefix_refusal(with(16, ~uint32_t{0})), HasSubstr("truncated"));
  EXPECT_THAT(prefix_refusal(with(20, int32_t{-1})), HasSubstr("has the invalid token -1"));
  EXPECT_EQ(parse_prefix_file(span_of(with(20, int32_t{9})), "slot.bin").tokens[0], 9);
}

TEST(PrefixFile, SaysWhatAFileIsNot) {
  EXPECT_THAT(prefix_refusal("GGUF" + std::string(100, '\0')), HasSubstr("this is not a file of a saved slot"));
  EXPECT_THAT(prefix_refusal(""), HasSubstr("truncated"));
}

}  // namespace
}  // namespace ingot
