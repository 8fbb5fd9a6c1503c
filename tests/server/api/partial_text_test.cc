// What of the results for an open turn is sent.
#include <gtest/gtest.h>

#include "server/api/partial_text.h"

namespace ingot {
namespace {

TEST(PartialText, IsWhatTwoResultsAgreeOn) {
  PartialText partial;
  EXPECT_EQ(partial.add("The har"), "");
  EXPECT_EQ(partial.add("The harbor."), "The");
  EXPECT_EQ(partial.add("The harbor was"), " harbor");
  EXPECT_EQ(partial.add("The harbor was quiet."), " was");
  EXPECT_EQ(partial.add("The harbor was quiet, when"), " quiet");  // the sign behind it is not certain
  EXPECT_EQ(partial.add("The harbor was quiet, when it"), ", when");
  EXPECT_EQ(partial.add_certain("The harbor was quiet when it rained."), " it rained.");
  EXPECT_EQ(partial.add_certain("The harbor was quiet when it rained. Then not."), " Then not.");
}

TEST(PartialText, NeverSendsAWordTwice) {
  PartialText partial;
  partial.add("I scream for it");
  EXPECT_EQ(partial.add("I scream for it"), "I scream for it");
  EXPECT_EQ(partial.add("Ice cream"), "");  // a result that goes back
  EXPECT_EQ(partial.add("Ice cream for it"), "");
  EXPECT_EQ(partial.add("Ice-cream for it now and"), "");  // a word less than what was sent
  EXPECT_EQ(partial.add("Ice-cream for it now and then"), " now and");
  EXPECT_EQ(partial.add_certain("Ice-cream for it now and then!"), " then!");
}

TEST(PartialText, SendsNothingOfATextThatContradictsIt) {
  PartialText partial;
  partial.add("one two three");
  EXPECT_EQ(partial.add("one two three"), "one two three");
  EXPECT_EQ(partial.add_certain("Ready, steady, go."), "");
  PartialText without;
  EXPECT_EQ(without.add_certain("All at once."), "All at once.");
  EXPECT_EQ(without.add_certain("All at once."), "");
}

TEST(PartialText, KnowsWords) {
  const auto sent_of = [](const std::string& before, const std::string& now) {
    PartialText partial;
    partial.add(before);
    return partial.add(now);
  };
  EXPECT_EQ(sent_of("I don", "I don't"), "I");
  EXPECT_EQ(sent_of("at 3", "at 3.5"), "at");
  EXPECT_EQ(sent_of("at 3.5", "at 3.5 s"), "at 3.5");
  EXPECT_EQ(sent_of("Größe", "größe"), "größe");
  EXPECT_EQ(sent_of("Größe", "Große"), "");
  EXPECT_EQ(sent_of("今天天气", "今天天很好"), "今天天");
  EXPECT_EQ(sent_of("\xff x", "\xff x y"), "x");
  EXPECT_EQ(sent_of("...", "..."), "");
  EXPECT_EQ(sent_of("", "a"), "");
}

}  // namespace
}  // namespace ingot
