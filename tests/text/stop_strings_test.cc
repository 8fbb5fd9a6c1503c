#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

struct Outcome {
  std::string text, match;
  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& o, std::ostream* out) { *out << "'" << o.text << "' stopped by '" << o.match << "'"; }

// Searches the whole text for the stop string that ends first, and the longest if several end there.
Outcome whole_text(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (stop.size() > best.size() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        best = stop;
    }
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopStrings, HoldsBackOnlyWhatMayBeOne) {
  StopStrings stops({"<end>", "\n\n"});
  EXPECT_EQ(stops.push("hello <"), "hello ");
  EXPECT_EQ(stops.push("e"), "");
  EXPECT_EQ(stops.push("g>\n"), "<eg>");
  EXPECT_EQ(stops.push("x"), "\nx");
  EXPECT_EQ(stops.push("<en"), "");
  EXPECT_EQ(stops.push("d> tail"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.match(), "<end>");
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, FlushGivesBackWhatWasHeld) {
  StopStrings stops({"stop"});
  EXPECT_EQ(stops.push("do not sto"), "do not ");
  EXPECT_EQ(stops.push(""), "");
  EXPECT_EQ(stops.flush(), "sto");
  EXPECT_EQ(stops.push("p"), "p");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, NoneIsNothingToDo) {
  StopStrings stops({});
  EXPECT_EQ(stops.push("all of it"), "all of it");
  EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, AgreesWithSearchingTheWholeText) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto random_text = [&](size_t length, unsigned n_letters) {
    std::string text;
    while (text.size() < length) text += static_cast<char>('a' + random() % n_letters);
    return text;
  };
  int n_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    const unsigned n_letters = 1 + random() % 4;  // few letters: many near matches and overlaps
    std::vector<std::string> strings(1 + random() % 4);
    for (std::string& s : strings) s = random_text(1 + random() % 7, n_letters);
    const std::string text = random_text(random() % 60, n_letters);
    const Outcome expected = whole_text(text, strings);

    StopStrings stops(strings);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 5;
      shown += stops.push(std::string_view(text).substr(at, n));
      at += n;
      ASSERT_EQ(shown, expected.text.substr(0, shown.size())) << "shown too early";
      // Text is held back only if it is the beginning of a stop string.
      if (stops.stopped()) break;
      const std::string held = text.substr(0, std::min(at, text.size())).substr(shown.size());
      const bool open = held.empty() || std::any_of(strings.begin(), strings.end(), [&](const std::string& s) {
                          return s.compare(0, held.size(), held) == 0;
                        });
      ASSERT_TRUE(open) << "'" << held << "' held back";
    }
    shown += stops.flush();
    ASSERT_EQ((Outcome{shown, stops.match()}), expected) << "in '" << text << "'";
    n_stopped += stops.stopped();
  }
  EXPECT_GT(n_stopped, 1000);
  EXPECT_LT(n_stopped, 19000);
}

TEST(StopStrings, RefusesBadStrings) {
  EXPECT_THROW(StopStrings({"a", ""}), Error);
  EXPECT_THROW(StopStrings({std::string(257, 'a')}), Error);
  EXPECT_THROW(StopStrings(std::vector<std::string>(17, "a")), Error);
  EXPECT_NO_THROW(StopStrings(std::vector<std::string>(16, std::string(256, 'a'))));
}

}  // namespace
}  // namespace ingot
