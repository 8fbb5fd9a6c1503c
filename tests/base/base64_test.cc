#include "base/base64.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

std::string decoded(std::string_view text) {
  const auto bytes = from_base64(text);
  return bytes ? std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()) : "(refused)";
}

// The examples of RFC 4648.
TEST(Base64, ThoseOfTheRfc) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(decoded(text), bytes);
  }
}

TEST(Base64, AllBytesComeBack) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += char(i);
  EXPECT_EQ(decoded(to_base64(bytes)), bytes);
}

TEST(Base64, OtherSpellings) {
  EXPECT_EQ(decoded("Zm9v\r\nYmFy"), "foobar");
  EXPECT_EQ(decoded("Zm8"), "fo");
  EXPECT_EQ(decoded("_-8="), "\xFF\xEF");
  EXPECT_EQ(decoded("/+8="), "\xFF\xEF");
}

TEST(Base64, OtherTextIsRefused) {
  for (const char* text : {"Z", "Zm9v!", "Zg=", "Zg===", "=Zg=", "Zm9vZ", "Zg==Zg=="})
    EXPECT_EQ(decoded(text), "(refused)") << text;
}

}  // namespace
}  // namespace ingot
