#include "base/ascii.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(Ascii, OnlyItsLettersChange) {
  EXPECT_EQ(lower("Content-TYPE: @[`{AZaz09"), "content-type: @[`{azaz09");
  EXPECT_EQ(lower("\xC3\x84\xFF"), "\xC3\x84\xFF") << "bytes of other characters stay";
  EXPECT_EQ(lower(""), "");
}

TEST(Ascii, TrimTakesBlanksFromBothEnds) {
  EXPECT_EQ(trim(" \t\r\na b\n"), "a b");
  EXPECT_EQ(trim("a"), "a");
  EXPECT_EQ(trim(" \t\r\n"), "");
  EXPECT_EQ(trim(""), "");
  EXPECT_EQ(trim("\n a ", " "), "\n a") << "only those that it is told";
}

}  // namespace
}  // namespace ingot
