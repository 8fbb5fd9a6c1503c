// The comparisons of check.h.
#include "base/check.h"

#include <gtest/gtest.h>

#include <ostream>

namespace ingot {
namespace {

// Loses its value when it is destroyed.
struct Number {
  int value;
  ~Number() { value = -1; }
  bool operator==(const Number& other) const { return value == other.value && value >= 0; }
};
std::ostream& operator<<(std::ostream& out, const Number& number) { return out << number.value; }
const Number& first_of(const Number& a, const Number&) { return a; }

// std::max, for example, returns a reference to one of its arguments, which may be a temporary.
TEST(Check, ComparesReferencesToTemporaries) {
  CHECK_EQ(first_of(Number{3}, Number{4}), Number{3});
}

TEST(CheckDeathTest, NamesTheConditionAndBothValues) {
  EXPECT_DEATH(CHECK_EQ(first_of(Number{3}, Number{4}), Number{4}), "first_of.*== Number\\{4\\} \\(3 vs 4\\)");
  EXPECT_DEATH(CHECK_LT(2, 1), "2 < 1 \\(2 vs 1\\)");
}

}  // namespace
}  // namespace ingot
