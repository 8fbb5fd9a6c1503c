#include "base/error.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(Printable, KeepsPlainText) { EXPECT_EQ(printable("naïve 漢字 🙂"), "naïve 漢字 🙂"); }

TEST(Printable, EscapesControlsAndBrokenUtf8) {
  EXPECT_EQ(printable("a\x1b[31m\r\n"), "a\\x1b[31m\\x0d\\x0a");
  EXPECT_EQ(printable(std::string("\0b", 2)), "\\x00b");
  EXPECT_EQ(printable("\xC0\x80"), "\\xc0\\x80");          // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(printable("\xC2\x9B"), "\\xc2\\x9b");          // C1: CSI
  EXPECT_EQ(printable("\xF0\x9F\x98"), "\\xf0\\x9f\\x98");  // cut short
}

TEST(Printable, CutsLongText) { EXPECT_EQ(printable(std::string(10'000, 'x'), 8), "xxxxxxxx..."); }

TEST(Error, FormatsItsMessage) { EXPECT_STREQ(Error("need {} bytes, have {}", 8, 3).what(), "need 8 bytes, have 3"); }

}  // namespace
}  // namespace ingot
