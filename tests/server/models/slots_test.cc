// Slots: the choice of a request's slot. llama_test.py tests saving and restoring.
#include "server/models/slots.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

using Tokens = std::vector<int32_t>;

TEST(Slots, ARequestGoesWhereItsConversationIs) {
  Slots slots(3);
  slots.begin(1);
  slots.end(1, {{}, {1, 2, 3, 4, 5, 6}});
  slots.begin(2);
  slots.end(2, {{}, {1, 2, 7, 8, 9, 10}});
  EXPECT_EQ(slots.choose({1, 2, 3, 4, 5, 6, 7}), 1);
  EXPECT_EQ(slots.choose({1, 2, 7, 8, 9, 10, 11}), 2);
  EXPECT_EQ(slots.choose({1, 2, 3, 4}), 1) << "more than half of the history";
  EXPECT_EQ(slots.choose({1, 2, 20, 21}), 0) << "a beginning that many share says little: an unused slot";
}

TEST(Slots, OthersGoToTheIdleSlotUnusedForLongest) {
  Slots slots(3);
  const int first = slots.choose({1});
  slots.begin(first);
  EXPECT_EQ(slots.busy()[static_cast<size_t>(first)], true);
  const int second = slots.choose({2});
  EXPECT_NE(second, first);
  slots.begin(second);
  slots.end(first, {{}, {1}});
  const int third = slots.choose({3});
  EXPECT_TRUE(third != first && third != second);
  slots.begin(third);
  EXPECT_EQ(slots.choose({4}), first) << "the only idle one";
  slots.begin(first);
  EXPECT_EQ(slots.choose({5}), second) << "all are busy";
}

TEST(Slots, RememberTheirLastHistory) {
  Slots slots(1);
  EXPECT_TRUE(slots.history(0).tokens.empty());
  slots.begin(0);
  slots.end(0, {root_key("a"), {1, 2}});
  EXPECT_EQ(slots.history(0).tokens, (Tokens{1, 2}));
  EXPECT_EQ(slots.history(0).root, root_key("a"));
  slots.set(0, {});
  EXPECT_TRUE(slots.history(0).tokens.empty());
  EXPECT_FALSE(slots.busy()[0]);
}

}  // namespace
}  // namespace ingot
