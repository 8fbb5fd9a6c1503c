// Where the turns of realtime sessions begin and end.
#include <gtest/gtest.h>

#include <cmath>

#include "io/audio/decode.h"
#include "server/api/realtime_sound.h"

namespace ingot {
namespace {

TEST(Realtime, TurnsBeginAndEndWithTheVoice) {
  constexpr int kRate = kSpeechRate;
  std::vector<float> sound(12 * kRate);
  uint32_t state = 1;
  for (float& x : sound) x = 0.002f * (static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1);
  const auto speak = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const double t = static_cast<double>(i - from) / kRate, loudness = std::max(0.0, std::sin(2 * M_PI * 4 * t));
      for (int k = 1; k <= 20; ++k)
        sound[static_cast<size_t>(i)] += static_cast<float>(0.02 * loudness * std::sin(2 * M_PI * 120 * k * t + k * k));
    }
  };
  speak(2 * kRate, 4 * kRate), speak(7 * kRate, 9 * kRate);
  TurnFinder finder;
  std::vector<std::pair<bool, double>> turns;
  for (int end = kRate / 10; end <= std::ssize(sound); end += kRate / 10) {
    const int begin = std::max(0, end - 6 * kRate);
    const auto recent = std::span(sound).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    if (const auto turn = finder.find(recent, end, {}))
      turns.emplace_back(turn->begins, static_cast<double>(turn->at) / kRate);
  }
  ASSERT_EQ(turns.size(), 4u);
  const std::vector<double> expected = {1.75, 4.25, 6.75, 9.25};  // a quarter of a second around
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(turns[i].first, i % 2 == 0);
    EXPECT_NEAR(turns[i].second, expected[i], 0.2) << i;
  }
}

// A turn that is cut, or committed by the client, goes on where it ended.
TEST(Realtime, TurnsGoOnBehindACut) {
  constexpr int kRate = kSpeechRate;
  std::vector<float> sound(5 * kRate);
  for (size_t i = 0; i < sound.size(); ++i) {
    const double t = static_cast<double>(i) / kRate, loudness = std::max(0.0, std::sin(2 * M_PI * 4 * t));
    for (int k = 1; k <= 20; ++k)
      sound[i] += static_cast<float>(0.02 * loudness * std::sin(2 * M_PI * 120 * k * t + k * k));
  }
  TurnFinder finder;
  const auto begun = finder.find(sound, std::ssize(sound), {});
  ASSERT_TRUE(begun && begun->begins);
  EXPECT_LE(begun->voice, std::ssize(sound));
  constexpr int64_t kCut = 5 * kRate - 1600;
  finder.cut(kCut);
  EXPECT_TRUE(finder.is_speaking());
  finder.reset(kCut);
  const auto again = finder.find(sound, std::ssize(sound), {});
  ASSERT_TRUE(again && again->begins);
  EXPECT_EQ(again->at, kCut);
  EXPECT_EQ(again->voice, kCut);  // not behind the sound
}

}  // namespace
}  // namespace ingot
