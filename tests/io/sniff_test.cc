#include "io/sniff.h"

#include <gmock/gmock.h>

#include "io/gguf/gguf.h"
#include "io/refused.h"
#include "io/safetensors_bytes.h"

namespace ingot {
namespace {

TEST(Sniff, SaysWhatAFileReallyIs) {  // G03
  using namespace std::string_literals;
  const std::pair<std::string, std::string> cases[] = {
      {"FUGG\3\0\0\0"s, "big-endian"},
      {"GGML\1\2\3\4"s, "old GGML format"},
      {"lmgg\1\2\3\4"s, "old GGML format"},
      {"GGJT\1\0\0\0"s, "old GGJT format"},
      {"tjgg\3\0\0\0"s, "old GGJT format"},
      {"PK\3\4\0\0\0\0"s, "zip archive"},
      {"\x80\2}q\0"s, "pickle"},
      {"<!DOCTYPE html><html>"s, "web page"},
      {"<HTML><head>"s, "web page"},
      {"{\"a\": 1}"s, "JSON"},
      {"\x1f\x8b\x08\0"s, "gzip"},
      {"\x10\0\0\0\0\0\0\0{\"a\":{\"dtype\":1}}"s, "safetensors"},
      {"Entry not found"s, "failed download"},
      {std::string(100, '\0'), "zeros at its start"},
      {"\x1b[31mred"s, "an unknown kind of file, 8 bytes that start with \"\\x1b[31mred\""},
  };
  for (const auto& [content, expected] : cases) {
    const std::string message = refusal([&, c = content] { Gguf::parse(span_of(c), "m.gguf"); });
    EXPECT_THAT(message, testing::StartsWith("m.gguf: magic at offset 0: not a GGUF file but "));
    EXPECT_THAT(message, testing::HasSubstr(expected));
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("{} bytes", content.size())));
  }
}

TEST(Sniff, GitLfsPointerWithItsSize) {
  std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 4683073952\n";
  pointer.resize(134, '\n');
  EXPECT_THAT(refusal([&] { Gguf::parse(span_of(pointer), "m"); }),
              testing::HasSubstr("a Git LFS pointer, 134 bytes: "));
}

TEST(Sniff, AnEmptyFileIsSaidToBeEmpty) { EXPECT_THAT(describe_file({}, 0), testing::HasSubstr("an empty file")); }

}  // namespace
}  // namespace ingot
