// Log-mel features equal those of transformers' WhisperFeatureExtractor.
#include "model/speech/log_mel.h"

#include <gtest/gtest.h>

#include "model/speech/fourier.h"
#include "model/speech/speech_goldens.h"
#include "test_seed.h"

namespace ingot {
namespace {

TEST(LogMel, EqualsTheFeatureExtractor) {
  const std::string bytes = read_file((kSpeechData / "mel.bin").string());
  const int frames[] = {0, 249, 250, 2999};
  const auto* golden = reinterpret_cast<const float*>(bytes.data());
  for (const int n_mels : {80, 128})
    for (const size_t n : {40000, 480000}) {
      const std::vector<float> mel = LogMel(n_mels).features(golden_sound(n, 7), 3000);
      ASSERT_EQ(mel.size(), 3000u * static_cast<size_t>(n_mels));
      for (const int frame : frames)
        for (int band = 0; band < n_mels; ++band)
          ASSERT_NEAR(mel[static_cast<size_t>(frame * n_mels + band)], *golden++, 1e-5)
              << n_mels << " bands, " << n << " samples, frame " << frame << ", band " << band;
    }
  EXPECT_EQ(reinterpret_cast<const char*>(golden), bytes.data() + bytes.size());
}

TEST(LogMel, SamplesBehindTheWindowDoNotCount) {
  std::vector<float> samples = golden_sound(9600);
  const LogMel mel(8);
  const std::vector<float> window = mel.features(samples, 60);
  samples.resize(20000, 0.7f);
  EXPECT_EQ(mel.features(samples, 60), window);
  ThreadPool pool(3);
  EXPECT_EQ(mel.features(samples, 60, &pool), window);
  EXPECT_EQ(mel.features({}, 60), std::vector<float>(480, (-10.0f + 4) / 4));
}

TEST(Fourier, EqualsTheSum) {
  std::mt19937_64 random(test_seed());
  std::uniform_real_distribution<double> value(-1, 1);
  FourierRows x, scratch;
  for (double* part : {x.re, x.im})
    for (int i = 0; i < kFourierLength * kFourierLanes; ++i) part[i] = value(random);
  const FourierRows in = x;
  fourier_400(x, scratch);
  for (int f = 0; f < kFourierLength; f += 7)
    for (int lane = 0; lane < kFourierLanes; ++lane) {
      double re = 0, im = 0;
      for (int i = 0; i < kFourierLength; ++i) {
        const double angle = -2 * std::numbers::pi * (f * i % kFourierLength) / kFourierLength;
        const double a = in.re[i * kFourierLanes + lane], b = in.im[i * kFourierLanes + lane];
        re += a * std::cos(angle) - b * std::sin(angle), im += a * std::sin(angle) + b * std::cos(angle);
      }
      ASSERT_NEAR(x.re[f * kFourierLanes + lane], re, 1e-11);
      ASSERT_NEAR(x.im[f * kFourierLanes + lane], im, 1e-11);
    }
}

}  // namespace
}  // namespace ingot
