// Audio files against formulas: formats, rates and channels; then damaged and hostile ones.
#include "io/audio/decode.h"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>
#include <random>

#include "io/audio/resample.h"
#include "io/audio_bytes.h"
#include "io/largest_allocation.h"
#include "io/refused.h"
#include "test_seed.h"

namespace ingot {
namespace {

using testing::HasSubstr;

std::unique_ptr<AudioStream> opened_audio(const std::string& bytes, const AudioLimits& limits = {}) {
  return open_audio(std::as_bytes(std::span(bytes)), limits);
}

std::vector<float> all_samples(AudioStream& audio) {
  std::vector<float> samples, part(1000);
  while (const size_t n = audio.read(part)) samples.insert(samples.end(), part.begin(), part.begin() + n);
  return samples;
}
std::vector<float> decoded_audio(const std::string& bytes, const AudioLimits& limits = {}) {
  return all_samples(*opened_audio(bytes, limits));
}

std::string audio_file(const char* name) {
  std::ifstream file(std::string(INGOT_TEST_DATA "/audio/") + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The largest difference from a tone, away from the ends, where resamplers have no neighbours.
double tone_error(const std::vector<float>& samples, double hertz, double loudness) {
  double largest = 0;
  for (size_t i = 400; i + 400 < samples.size(); ++i)
    largest = std::max(largest, std::abs(samples[i] - loudness * std::sin(2 * std::numbers::pi * hertz *
                                                                          static_cast<double>(i) / kSpeechRate)));
  return largest;
}

TEST(Audio, SamplesOfAnyWidth) {
  const std::vector<double> samples = {0, 0.5, -0.5, 0.25, -1, 1, 0.125};
  for (const auto& [bits, is_float] :
       {std::pair{8, false}, {16, false}, {24, false}, {32, false}, {32, true}, {64, true}}) {
    SCOPED_TRACE(fmt::format("{} bits{}", bits, is_float ? " float" : ""));
    const std::vector<float> read = decoded_audio(wav_bytes(samples, {.bits = bits, .is_float = is_float}));
    ASSERT_EQ(read.size(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i)
      EXPECT_NEAR(read[i], samples[i], is_float ? 1e-7 : 1.01 / std::pow(2.0, bits - 1) + 1e-7) << i;
  }
}

TEST(Audio, ChannelsAreAveraged) {
  std::vector<double> frames;
  for (int i = 0; i < 50; ++i)
    for (int c = 0; c < 6; ++c) frames.push_back((c + 1) / 8.0);
  for (const float x : decoded_audio(wav_bytes(frames, {.n_channels = 6, .bits = 32, .is_float = true})))
    ASSERT_NEAR(x, 21.0 / 48, 1e-6);
}

TEST(Audio, RatesBecomeSixteenThousand) {
  for (const int rate : {8000, 11025, 22050, 44100, 48000, 96000, 192000}) {
    SCOPED_TRACE(rate);
    const std::vector<float> read =
        decoded_audio(wav_bytes(tone(440, rate, 0.5), {.rate = rate, .bits = 32, .is_float = true}));
    EXPECT_NEAR(static_cast<double>(read.size()), 8000, 40);
    EXPECT_LT(tone_error(read, 440, 0.5), 5e-4);
  }
}

TEST(Audio, HighFrequenciesOfSpeechStay) {
  for (const int rate : {22050, 44100, 48000}) {
    SCOPED_TRACE(rate);
    const std::vector<float> read =
        decoded_audio(wav_bytes(tone(7000, rate, 0.5), {.rate = rate, .bits = 32, .is_float = true}));
    EXPECT_LT(tone_error(read, 7000, 0.5), 2e-2);
  }
}

TEST(Audio, FrequenciesAboveTheHalfOfTheRateAreLeftOut) {
  const std::vector<float> read = decoded_audio(wav_bytes(tone(12000, 48000, 0.5), {.rate = 48000}));
  for (size_t i = 400; i + 400 < read.size(); ++i) ASSERT_LT(std::abs(read[i]), 2e-3) << i;
}

TEST(Audio, SoundIsResampledInPieces) {
  for (const double hz : {100.0, 1000.0, 5000.0}) {
    SCOPED_TRACE(hz);
    const std::vector<double> exact = tone(hz, 24000, 1);
    const std::vector<float> sound(exact.begin(), exact.end());
    std::vector<float> whole, parts;
    Resampler one(24000), other(24000);
    one.add(sound, true, whole);
    for (size_t at = 0, n = 1; at < sound.size(); at += n, n = n * 3 % 1009 + 1)
      other.add(std::span(sound).subspan(at, std::min(n, sound.size() - at)), at + n >= sound.size(), parts);
    ASSERT_NEAR(static_cast<double>(whole.size()), 16000, 2);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 1e-5) << i;
    EXPECT_LT(tone_error(whole, hz, 0.5), 3e-3);
  }
  std::vector<float> late;  // what is certain comes soon
  Resampler(24000).add(std::vector<float>(2400, 0.1f), false, late);
  EXPECT_GT(late.size(), 1500u);
}

// The left channel has 16,000 of 32,768, the right one half of that.
constexpr double kToneLoudness = 16000.0 / 32768 * 0.75;

// Of a lossy codec. least: the part of the power that is the tone.
void expect_tone(const std::vector<float>& read, double least) {
  ASSERT_GT(read.size(), 4500u);
  ASSERT_LT(read.size(), 6000u);
  // Lossy codecs may begin a little later: the tone is found by its parts in phase and out of phase.
  double sine = 0, cosine = 0, all = 0;
  for (size_t i = 1200; i < 4000; ++i) {
    const double angle = 2 * std::numbers::pi * 440 * static_cast<double>(i) / kSpeechRate;
    sine += read[i] * std::sin(angle), cosine += read[i] * std::cos(angle), all += double{read[i]} * read[i];
  }
  const double power = (sine * sine + cosine * cosine) * 2 / 2800;
  EXPECT_GT(power, least * all);
  EXPECT_NEAR(std::sqrt(all / 2800), kToneLoudness / std::sqrt(2.0), 0.05 * kToneLoudness);
}

TEST(Audio, CompressedFormats) {
  EXPECT_LT(tone_error(decoded_audio(audio_file("tone.flac")), 440, kToneLoudness), 1e-4);
  for (const char* name : {"tone.ogg", "tone.opus", "tone.mp3"}) {
    SCOPED_TRACE(name);
    expect_tone(decoded_audio(audio_file(name)), 0.98);
  }
}

// The formats that FFmpeg's libraries read, if this build and this machine have them.
class FfmpegAudio : public testing::Test {
 protected:
  void SetUp() override {
    const std::string m4a = audio_file("tone.m4a");
    try {
      opened_audio(m4a);
    } catch (const Error& error) {
      for (const char* reason : {"this program was built without FFmpeg", "and this machine has none: install"})
        if (std::string(error.what()).find(reason) != std::string::npos) GTEST_SKIP() << error.what();
      throw;
    }
  }
};

TEST_F(FfmpegAudio, OtherFormats) {
  for (const char* name : {"tone.m4a", "tone.aac", "tone.webm", "tone.wma"}) {
    SCOPED_TRACE(name);
    const auto audio = opened_audio(audio_file(name));
    expect_tone(all_samples(*audio), 0.96);
    EXPECT_FALSE(audio->is_truncated());
  }
  std::string amr = "#!AMR\n";
  for (int i = 0; i < 50; ++i) amr += "\x04" + std::string(12, '\x55');  // 20 ms at 4,750 bits a second
  EXPECT_NEAR(static_cast<double>(decoded_audio(amr).size()), 16000, 400);
}

TEST_F(FfmpegAudio, LimitsAndTruncatedFiles) {
  const std::string m4a = audio_file("tone.m4a"), webm = audio_file("tone.webm");
  EXPECT_NEAR(*opened_audio(m4a)->stated_seconds(), 0.3, 0.05);
  EXPECT_THAT(refusal([&] { decoded_audio(m4a, {.max_seconds = 0.2}); }), HasSubstr("longer than 0.2 seconds"));
  EXPECT_THAT(refusal([&] { decoded_audio(audio_file("tone.aac"), {.max_seconds = 0.2}); }), HasSubstr("longer than"));
  const std::string cut = webm.substr(0, webm.size() / 2);
  const auto half = opened_audio(cut);
  EXPECT_LT(all_samples(*half).size(), 4000u);
  EXPECT_TRUE(half->is_truncated());
}

TEST_F(FfmpegAudio, OtherCodecsAreNamed) {
  std::string webm = audio_file("tone.webm");
  webm.replace(webm.find("A_OPUS"), 6, "A_TTA1");
  EXPECT_THAT(refusal([&] { decoded_audio(webm); }), HasSubstr("has the codec tta, which this program does not read"));
  EXPECT_THAT(refusal([] { decoded_audio("\x1A\x45\xDF\xA3webm"); }), HasSubstr("damaged Matroska or WebM file"));
}

TEST_F(FfmpegAudio, DamagedFilesAreReadOrRefused) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const char* name : {"tone.m4a", "tone.aac", "tone.webm", "tone.wma"})
    for (int i = 0; i < 200; ++i) try {
        std::string bytes = audio_file(name);
        const auto n_damaged = draw() % 8 + 1;
        for (size_t n = 0; n < n_damaged; ++n) bytes[draw() % bytes.size()] = static_cast<char>(draw());
        if (draw() % 2 == 0) bytes.resize(draw() % bytes.size() + 1);
        for (const float x : decoded_audio(bytes, {.max_seconds = 100})) ASSERT_TRUE(std::isfinite(x));
      } catch (const Error&) {}
}

TEST(Audio, NumbersThatAreNotFiniteAreSilence) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<float> read =
      decoded_audio(wav_bytes({0.5, nan, inf, -inf, 1e30, 0.25}, {.bits = 64, .is_float = true}));
  EXPECT_EQ(read, (std::vector<float>{0.5f, 0, 0, 0, 32768, 0.25f}));
  for (const float x :
       decoded_audio(wav_bytes({nan, nan, inf, 1, nan, 0.5, inf, -inf}, {.rate = 48000, .bits = 32, .is_float = true})))
    EXPECT_TRUE(std::isfinite(x));
}

TEST(Audio, AnotherNameChangesNothing) {  // nothing but the bytes is asked
  EXPECT_GT(decoded_audio(audio_file("tone.flac")).size(), 4700u);
  EXPECT_THAT(refusal([] { decoded_audio("fLaC, or so it says"); }), HasSubstr("a damaged FLAC file"));
  EXPECT_THAT(refusal([] { decoded_audio("RIFF....WAVE, or so it says"); }), HasSubstr("a damaged WAV file"));
}

TEST(Audio, OtherFilesAreNamed) {
  EXPECT_THAT(refusal([] { decoded_audio(""); }), HasSubstr("the audio is empty"));
  EXPECT_THAT(refusal([] {
                decoded_audio(
                    std::string("\0\0\0\x20"
                                "ftypM4A ",
                                12));
              }),
              HasSubstr("MP4 or M4A file"));
  EXPECT_THAT(refusal([] { decoded_audio("\x1A\x45\xDF\xA3webm"); }), HasSubstr("Matroska or WebM file"));
  EXPECT_THAT(refusal([] { decoded_audio("\xFF\xF1\x50\x80"); }), HasSubstr("AAC file"));
  EXPECT_THAT(refusal([] { decoded_audio("MThd....."); }), HasSubstr("MIDI file; this program reads WAV, FLAC"));
  EXPECT_THAT(refusal([] { decoded_audio("<!DOCTYPE html><html></html>"); }), HasSubstr("web page"));
  EXPECT_THAT(refusal([] { decoded_audio("{\"a\": 1}"); }), HasSubstr("this program reads WAV, FLAC"));
}

TEST(Audio, NoSamples) {
  const auto audio = opened_audio(wav_bytes({}));
  EXPECT_TRUE(all_samples(*audio).empty());
  EXPECT_FALSE(audio->is_truncated());
}

TEST(Audio, TruncatedFilesEndEarly) {
  const std::string whole = audio_file("tone.flac");
  const auto flac = opened_audio(whole);
  EXPECT_NEAR(*flac->stated_seconds(), 0.3, 1e-9);
  EXPECT_GT(all_samples(*flac).size(), 4000u);
  EXPECT_FALSE(flac->is_truncated());
  const std::string cut = whole.substr(0, whole.size() / 2);
  const auto half = opened_audio(cut);
  EXPECT_LT(all_samples(*half).size(), 4000u);
  EXPECT_TRUE(half->is_truncated());
  // Programs that write to a pipe state a size that they do not know yet.
  EXPECT_EQ(decoded_audio(wav_bytes(tone(440, 16000, 0.1), {.stated_bytes = 0xFFFFFFFF})).size(), 1600u);
}

TEST(Audio, EveryCutIsReadOrRefused) {
  for (const std::string& whole :
       {wav_bytes(tone(440, 16000, 0.004), {.bits = 24}), audio_file("tone.opus").substr(0, 600)})
    for (size_t n = 0; n < whole.size(); ++n) try {
        EXPECT_LE(decoded_audio(whole.substr(0, n)).size(), 2000u);
      } catch (const Error&) {}
}

// The decoder goes on behind a damaged place, after it has said that the file ends there. The fuzzer found the file.
TEST(Audio, NothingFollowsTheEnd) {
  const std::string bytes = audio_file("damaged.mp3");
  const auto audio = opened_audio(bytes);
  EXPECT_EQ(all_samples(*audio).size(), 1365u);
  EXPECT_TRUE(audio->is_truncated());
}

TEST(Audio, Limits) {
  const std::string second = wav_bytes(tone(440, 16000, 1));
  EXPECT_THAT(refusal([&] { decoded_audio(second, {.max_bytes = 1000}); }),
              HasSubstr("32044 bytes; the limit is 1000"));
  EXPECT_THAT(refusal([&] { decoded_audio(second, {.max_seconds = 0.5}); }), HasSubstr("longer than 0.5 seconds"));
  EXPECT_EQ(decoded_audio(second, {.max_seconds = 1}).size(), 16000u);
  EXPECT_THAT(refusal([&] { decoded_audio(wav_bytes({0.1}, {.rate = 20})); }), HasSubstr("20 samples a second"));
  EXPECT_THAT(refusal([&] { decoded_audio(wav_bytes({0.1}, {.rate = 1 << 23})); }), HasSubstr("samples a second"));
}

TEST(Audio, LongFilesNeedNoMoreMemory) {
  constexpr int kSeconds = 20 * 60;
  std::string bytes = wav_bytes({}, {.bits = 8});
  const auto n = static_cast<uint32_t>(kSeconds * 16000);
  std::memcpy(bytes.data() + bytes.size() - 4, &n, 4);
  bytes.resize(bytes.size() + n, '\x80');
  largest_allocation = 0;
  const auto audio = opened_audio(bytes);
  EXPECT_EQ(*audio->stated_seconds(), kSeconds);
  std::vector<float> part(4096);
  size_t total = 0;
  while (const size_t got = audio->read(part)) total += got;
  EXPECT_EQ(total, n);
  EXPECT_LT(largest_allocation, size_t{256} << 10);
}

}  // namespace
}  // namespace ingot
