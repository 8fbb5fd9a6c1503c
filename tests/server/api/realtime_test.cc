// The sound of realtime sessions: the resampler, and where turns begin and end.
#include <gtest/gtest.h>

#include <cmath>

#include "server/api/realtime_sound.h"

namespace ingot {
namespace {

// PCM of a tone of a third of full scale.
std::vector<int16_t> pcm_tone(double hz, int n, double level = 10000) {
  std::vector<int16_t> pcm;
  for (int i = 0; i < n; ++i)
    pcm.push_back(static_cast<int16_t>(std::lround(level * std::sin(2 * M_PI * hz * i / PcmResampler::kFrom))));
  return pcm;
}

TEST(Realtime, SoundIsResampledInPieces) {
  for (const double hz : {100.0, 1000.0, 5000.0}) {
    SCOPED_TRACE(hz);
    const std::vector<int16_t> pcm = pcm_tone(hz, 24000);
    std::vector<float> whole, parts;
    PcmResampler one, other;
    one.add(pcm, whole);
    for (size_t at = 0, n = 1; at < pcm.size(); at += n, n = n * 3 % 1009 + 1)
      other.add(std::span(pcm).subspan(at, std::min(n, pcm.size() - at)), parts);
    EXPECT_EQ(parts, whole);
    ASSERT_NEAR(static_cast<double>(whole.size()), 16000, 20);
    for (size_t i = 100; i < whole.size(); ++i) {
      const double t = static_cast<double>(i) / PcmResampler::kTo;
      ASSERT_NEAR(whole[i], 10000 / 32768.0 * std::sin(2 * M_PI * hz * t), 3e-3) << i;
    }
  }
  std::vector<float> above;
  PcmResampler().add(pcm_tone(11000, 24000), above);  // would be heard as 5,000 Hz
  for (size_t i = 100; i < above.size(); ++i) ASSERT_LT(std::abs(above[i]), 3e-3);
}

TEST(Realtime, TurnsBeginAndEndWithTheVoice) {
  constexpr int kRate = PcmResampler::kTo;
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
  constexpr int kRate = PcmResampler::kTo;
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
