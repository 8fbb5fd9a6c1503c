// Several windows at once, and beams: the texts are those of windows that are written one by one, and of transformers.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "model/speech/speech_goldens.h"
#include "model/speech/voice.h"

namespace ingot {
namespace {

BackendOptions batch_backend(const std::string& device) {
  return {.device = device, .n_threads = 2, .activations = device == "cuda" ? "f32" : ""};
}

std::vector<std::string> batch_devices() {
  return has_gpu() ? std::vector<std::string>{"ref", "cpu", "cuda"} : std::vector<std::string>{"ref", "cpu"};
}

const SpeechOptions kGreedyOnly = {.language = "de", .temperatures = {0}, .most_no_speech = std::nullopt};

Transcript transcript_with(SpeechModel& model, const SpeechOptions& options, std::vector<float> samples) {
  SampleStream sound(std::move(samples));
  return model.transcribe(sound, options);
}

// Searches of transformers for the first windows, one by one and together.
TEST(SpeechBatch, BeamsAreThoseOfTransformers) {
  const nlohmann::json goldens = speech_goldens()["beams"];
  ASSERT_EQ(goldens.size(), 3u);
  for (const std::string& device : batch_devices()) {
    SCOPED_TRACE(device);
    SpeechFiles files = open_speech_files(kSpeechData.string());
    const SpeechRules rules(files.tokens, files.suppressed, files.first_suppressed, files.latest_start, true);
    SpeechNet net(files.config, std::move(files.weights), batch_backend(device),
                  {.windows = 3, .heard = 2, .texts = 15});
    SpeechWriter writer(net, files.tokens, 2);
    const std::vector<float> samples = golden_sound(kGoldenSamples);
    std::vector<std::span<const float>> windows;
    for (const auto& golden : goldens) windows.push_back(std::span(samples).subspan(golden["at"].get<size_t>(), 9600));
    const std::vector<SharedFloats> sounds = writer.hear(windows);
    const auto prompt = std::vector<int32_t>{257, 260, 262};
    std::vector<SpeechTask> tasks;
    for (size_t i = 0; i < goldens.size(); ++i)
      tasks.push_back({.sound = sounds[i].all(),
                       .prompt = prompt,
                       .rules = &rules,
                       .beams = {.n_beams = goldens[i]["n_beams"].get<int>()}});
    const std::vector<WrittenText> together = writer.write(tasks);
    for (size_t i = 0; i < goldens.size(); ++i) {
      EXPECT_EQ(together[i].tokens, goldens[i]["tokens"].get<std::vector<int32_t>>()) << i;
      EXPECT_NEAR(together[i].avg_logprob, goldens[i]["score"].get<double>(), 2e-3) << i;
      const std::vector<WrittenText> alone = writer.write(std::span(tasks).subspan(i, 1));
      EXPECT_EQ(alone[0].tokens, together[i].tokens) << i;
    }
  }
}

// Each window at once has the text that it has alone.
TEST(SpeechBatch, WindowsAtOnceHaveTheirOwnTexts) {
  for (const std::string& device : batch_devices()) {
    SCOPED_TRACE(device);
    SpeechFiles files = open_speech_files(kSpeechData.string());
    const SpeechRules rules(files.tokens, files.suppressed, files.first_suppressed, files.latest_start, true);
    SpeechNet net(files.config, std::move(files.weights), batch_backend(device),
                  {.windows = 5, .heard = 2, .texts = 5});
    SpeechWriter writer(net, files.tokens, 2);
    const std::vector<float> samples = golden_sound(kGoldenSamples);
    std::vector<std::span<const float>> windows;
    for (size_t i = 0; i < 5; ++i) windows.push_back(std::span(samples).subspan(5000 * i, 9600 - 700 * i));
    const std::vector<SharedFloats> sounds = writer.hear(windows);
    const std::vector<int32_t> shorter = {257, 258, 262}, longer = {265, 65, 66, 257, 260, 262};
    std::vector<SpeechTask> tasks;
    for (size_t i = 0; i < 5; ++i)
      tasks.push_back({.sound = sounds[i].all(),
                       .prompt = i % 2 == 0 ? shorter : longer,
                       .rules = &rules,
                       .temperature = i == 3 ? 1.0f : 0.0f,
                       .seed = 7});
    const std::vector<WrittenText> together = writer.write(tasks);
    for (size_t i = 0; i < 5; ++i) {
      const std::vector<WrittenText> alone = writer.write(std::span(tasks).subspan(i, 1));
      EXPECT_EQ(alone[0].tokens, together[i].tokens) << i;
      EXPECT_NEAR(alone[0].avg_logprob, together[i].avg_logprob, 1e-3) << i;
      EXPECT_NEAR(alone[0].no_speech, together[i].no_speech, 1e-4) << i;
    }
  }
}

TEST(SpeechBatch, ARecordingIsCutIntoWindows) {
  SpeechModel model(open_speech_files(kSpeechData.string()), batch_backend("cpu"), {.n_parallel = 3, .n_beams = 2});
  SpeechOptions options = kGreedyOnly;
  options.n_parallel = 3;
  const Transcript transcript = transcript_with(model, options, golden_sound(kGoldenSamples));
  EXPECT_EQ(transcript.seconds, static_cast<double>(kGoldenSamples) / kSpeechRate);
  ASSERT_GT(transcript.segments.size(), 3u);
  std::set<int64_t> windows;
  for (size_t i = 0; i < transcript.segments.size(); ++i) {
    const SpeechSegment& s = transcript.segments[i];
    windows.insert(s.window_start);
    EXPECT_LE(s.start, s.end);
    EXPECT_LE(s.end, transcript.seconds + 0.6);
    EXPECT_LE(transcript.segments[i > 0 ? i - 1 : 0].window_start, s.window_start);
  }
  EXPECT_GT(windows.size(), 3u);
  options.word_times = true;
  for (const SpeechSegment& s : transcript_with(model, options, golden_sound(kGoldenSamples)).segments)
    EXPECT_FALSE(s.words.empty());
  options.n_parallel = 4;
  EXPECT_THROW(transcript_with(model, options, golden_sound(kGoldenSamples)), Error);
  options = kGreedyOnly, options.n_beams = 3;
  EXPECT_THROW(transcript_with(model, options, golden_sound(kGoldenSamples)), Error);
}

// A sound like a voice: a buzz with four syllables a second. [n]
std::vector<float> voice_like(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    const double t = static_cast<double>(i) / kSpeechRate, loudness = std::max(0.0, std::sin(2 * M_PI * 4 * t));
    for (int k = 1; k <= 20; ++k)
      x[i] += static_cast<float>(0.02 * loudness * std::sin(2 * M_PI * 120 * k * t + k * k));
  }
  return x;
}

std::vector<float> noise_of(size_t n, float level) {
  std::vector<float> x(n);
  uint32_t state = 1;
  for (float& s : x) s = level * (static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1.0f);
  return x;
}

TEST(Voice, IsFoundInNoise) {
  constexpr size_t kSecond = kSpeechRate;
  for (const float level : {0.0f, 0.003f, 0.03f}) {
    SCOPED_TRACE(level);
    std::vector<float> x = noise_of(20 * kSecond, level);
    const std::vector<float> voice = voice_like(4 * kSecond);
    for (size_t i = 0; i < voice.size(); ++i) x[8 * kSecond + i] += voice[i];
    const std::vector<VoiceSpan> spans = voice_spans(x, -60);
    ASSERT_EQ(spans.size(), 1u);
    EXPECT_NEAR(static_cast<double>(spans[0].begin) / kSecond, 8, 0.35);
    EXPECT_NEAR(static_cast<double>(spans[0].end) / kSecond, 12, 0.35);
  }
}

TEST(Voice, WindowsEndAtPauses) {
  const std::vector<float> silence(10000);
  const std::vector<VoiceSpan> spans = {{0, 2000}, {3000, 5000}, {6000, 10000}};
  EXPECT_EQ(last_pause(silence, spans, 1000), 5500);
  EXPECT_EQ(last_pause(silence, std::span(spans).first(2), 1000), 2500);
  std::vector<float> loud = noise_of(20000, 0.3f);
  std::fill(loud.begin() + 12000, loud.begin() + 16000, 0.0f);
  EXPECT_NEAR(static_cast<double>(last_pause(loud, {}, 8000)), 14000, 1000);
}

TEST(Voice, SteadySoundsHaveNone) {
  constexpr size_t kSecond = kSpeechRate;
  std::vector<float> hum(10 * kSecond), clicks(10 * kSecond), beeps(10 * kSecond);
  for (size_t i = 0; i < hum.size(); ++i) {
    hum[i] = 0.2f * static_cast<float>(std::sin(2 * M_PI * 50 * static_cast<double>(i) / kSecond));
    clicks[i] = i % kSecond < 20 ? 0.5f : 0.0f;
    const double phase = 2 * M_PI * 440 * static_cast<double>(i) / kSecond;
    beeps[i] = i / kSecond % 2 == 0 ? 0.1f * static_cast<float>(std::sin(phase)) : 0.0f;
  }
  EXPECT_TRUE(voice_spans(hum, -60).empty());
  EXPECT_TRUE(voice_spans(clicks, -60).empty());
  EXPECT_TRUE(voice_spans(beeps, -60).empty());
  EXPECT_TRUE(voice_spans(noise_of(10 * kSecond, 0.3f), -60).empty());
  EXPECT_TRUE(voice_spans(std::vector<float>(10 * kSecond), -60).empty());
  EXPECT_TRUE(voice_spans({}, -60).empty());
}

}  // namespace
}  // namespace ingot
