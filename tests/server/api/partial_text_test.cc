// What of the results for an open turn is sent.
#include <gtest/gtest.h>

#include "server/api/partial_text.h"

namespace ingot {
namespace {

// A result of which no word is probable.
std::vector<SpeechPiece> unsure(const std::string& text) { return {{text, 0.1f}}; }

TEST(PartialText, IsWhatTwoResultsAgreeOn) {
  PartialText partial;
  EXPECT_EQ(partial.add(unsure("The har")), "");
  EXPECT_EQ(partial.add(unsure("The harbor.")), "The");
  EXPECT_EQ(partial.add(unsure("The harbor was")), " harbor");
  EXPECT_EQ(partial.add(unsure("The harbor was quiet.")), " was");
  EXPECT_EQ(partial.add(unsure("The harbor was quiet, when")), " quiet");  // the sign behind it is not certain
  EXPECT_EQ(partial.add(unsure("The harbor was quiet, when it")), ", when");
  EXPECT_EQ(partial.add_certain("The harbor was quiet when it rained."), " it rained.");
  EXPECT_EQ(partial.add_certain("The harbor was quiet when it rained. Then not."), " Then not.");
}

// Such a word needs no second result. The last one must be more probable, because it may go on.
TEST(PartialText, IsWhatIsProbable) {
  PartialText partial;
  const auto result = [](std::vector<SpeechPiece> pieces) { return pieces; };
  EXPECT_EQ(partial.add(result({{" The", 0.9f}, {" har", 0.9f}})), "The");
  EXPECT_EQ(partial.add(result({{" The", 0.9f}, {" har", 0.9f}, {"bor", 0.2f}, {" is", 0.9f}, {" not", 0.9f}})), "");
  EXPECT_EQ(partial.add(result({{" The", 0.1f}, {" harbor", 0.8f}, {", was", 0.8f}, {" quiet", 0.1f}})),
            " harbor, was");
  EXPECT_EQ(partial.add(result({{" The harbor, was", 0.8f}, {".", 0.1f}, {" I", 0.9f}, {".", 0.8f}})), "");
  EXPECT_EQ(partial.add(result({{" The harbor, was", 0.8f}, {".", 0.1f}, {" It", 0.97f}, {".", 0.1f}})), ". It");
}

// What was sent may be heard in another way later.
TEST(PartialText, GoesOnBehindAChangedWord) {
  PartialText partial;
  partial.add(unsure("I'd less to be"));
  EXPECT_EQ(partial.add(unsure("I'd less to be")), "I'd less to be");
  EXPECT_EQ(partial.add(unsure("Unless to be rather cold")), "");
  EXPECT_EQ(partial.add(unsure("Unless to be rather cold-hearted")), " rather");
  EXPECT_EQ(partial.add(unsure("Unless to beg rather cold-hearted")), " cold-hearted");
}

TEST(PartialText, NeverSendsAWordTwice) {
  PartialText partial;
  partial.add(unsure("I scream for it"));
  EXPECT_EQ(partial.add(unsure("I scream for it")), "I scream for it");
  EXPECT_EQ(partial.add(unsure("Ice cream")), "");  // a result that goes back
  EXPECT_EQ(partial.add(unsure("Ice cream for it")), "");
  EXPECT_EQ(partial.add(unsure("Ice-cream for it now and")), "");  // a word less than what was sent
  EXPECT_EQ(partial.add(unsure("Ice-cream for it now and then")), " now and");
  EXPECT_EQ(partial.add_certain("Ice-cream for it now and then!"), " then!");
}

TEST(PartialText, SendsNothingOfATextThatContradictsIt) {
  PartialText partial;
  partial.add(unsure("one two three"));
  EXPECT_EQ(partial.add(unsure("one two three")), "one two three");
  EXPECT_EQ(partial.add_certain("Ready, steady, go."), "");
  PartialText without;
  EXPECT_EQ(without.add_certain("All at once."), "All at once.");
  EXPECT_EQ(without.add_certain("All at once."), "");
}

TEST(PartialText, KnowsWords) {
  const auto sent_of = [](const std::string& before, const std::string& now) {
    PartialText partial;
    partial.add(unsure(before));
    return partial.add(unsure(now));
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
