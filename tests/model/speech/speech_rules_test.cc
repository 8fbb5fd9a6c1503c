// The rules of times, by small cases; how text compresses, against zlib; subtitles.
#include "model/speech/speech_rules.h"

#include <gmock/gmock.h>

#include "backend/sampler.h"
#include "model/speech/compression.h"
#include "model/speech/silence.h"
#include "model/speech/speech_goldens.h"
#include "model/speech/transcript_text.h"
#include "model/speech/window_reader.h"

namespace ingot {
namespace {

// 0 to 9: text; 10: end; 11: start; 12: no times; 13 to 18: times.
const SpeechTokens kFewTokens = {.start = 11, .end = 10, .no_times = 12, .first_time = 13, .n_times = 6};

// The tokens that may follow, if all are about as likely. times: how much likelier a time is.
std::string allowed_tokens(const std::vector<int32_t>& written, float times = -20, bool with_times = true) {
  const SpeechRules rules(kFewTokens, std::vector<int32_t>{3}, std::vector<int32_t>{0, 10}, 2, with_times);
  std::vector<float> logits(19, 1.0f);
  for (size_t i = 13; i < 19; ++i) logits[i] += times;
  rules.apply(logits, written);
  std::string ids;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) ids += fmt::format("{}{}", ids.empty() ? "" : " ", i);
  return ids;
}

TEST(SpeechRules, Times) {
  EXPECT_EQ(allowed_tokens({}), "13 14 15");                // a window begins with a time that is not late
  EXPECT_EQ(allowed_tokens({13}), "0 1 2 4 5 6 7 8 9 10");  // text, or the end
  EXPECT_EQ(allowed_tokens({14, 1}), "0 1 2 4 5 6 7 8 9 10 15 16 17 18");  // a segment has a length
  EXPECT_EQ(allowed_tokens({14, 1}, 0), "15 16 17 18");                    // times together are likelier than any text
  EXPECT_EQ(allowed_tokens({14, 1, 16}), "10 16 17 18");  // the next segment may begin where this one ends
  EXPECT_EQ(allowed_tokens({14, 1, 16, 16}), "0 1 2 4 5 6 7 8 9 10");
  EXPECT_EQ(allowed_tokens({14, 1, 16, 16, 5}), "0 1 2 4 5 6 7 8 9 10 17 18");
}

TEST(SpeechRules, WithoutTimes) {
  EXPECT_EQ(allowed_tokens({}, 50, false), "1 2 4 5 6 7 8 9");
  EXPECT_EQ(allowed_tokens({1}, 50, false), "0 1 2 4 5 6 7 8 9 10");
}

TEST(SpeechRules, LogSumExp) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{0, 0, 0, 0}), std::log(4.0), 1e-6);
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1000, 999}), 1000 + std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_EQ(log_sum_exp({}), -std::numeric_limits<double>::infinity());
}

// The numbers are len(b) / len(zlib.compress(b)) of Python's zlib.
TEST(Compression, IsThatOfZlib) {
  EXPECT_EQ(compression_ratio(""), 0);
  EXPECT_NEAR(compression_ratio("a"), 1.0 / 9, 1e-12);
  EXPECT_NEAR(compression_ratio("hello world"), 11.0 / 19, 1e-12);
  std::string pairs, thanks;
  for (int i = 0; i < 200; ++i) pairs += "ab";
  for (int i = 0; i < 50; ++i) thanks += " thank you.";
  EXPECT_NEAR(compression_ratio(pairs), 400.0 / 15, 1e-12);
  EXPECT_NEAR(compression_ratio(thanks), 22, 1e-12);
}

TEST(WindowReader, KeepsOneWindow) {
  std::vector<float> samples(1000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i);
  SampleStream sound(samples);
  WindowReader reader(sound);
  EXPECT_EQ(reader.window(0, 100).size(), 100u);
  EXPECT_EQ(reader.n_read(), 100);
  EXPECT_EQ(reader.window(40, 100)[0], 40);
  EXPECT_TRUE(reader.has(500));
  EXPECT_EQ(reader.window(450, 100)[99], 549);
  EXPECT_EQ(reader.window(950, 100).size(), 50u);
  EXPECT_FALSE(reader.has(1000));
  EXPECT_EQ(reader.n_read(), 1000);
  EXPECT_TRUE(reader.window(1000, 100).empty());
}

Transcript example_transcript() {
  Transcript t{.language = "de", .task = "transcribe", .seconds = 3725.5};
  t.segments.push_back({.start = 0,
                        .end = 1.5,
                        .text = " Ein Wort --> & <zwei>.",
                        .tokens = {5, 6},
                        .avg_logprob = -0.25f,
                        .compression_ratio = 0.5f,
                        .no_speech_prob = 0.125f});
  t.segments.push_back({.start = 3723.004,
                        .end = 3725.5,
                        .text = " Ende\nhier.",
                        .tokens = {7},
                        .window_start = 372000,
                        .temperature = 0.5f});
  return t;
}

TEST(Silence, Beginnings) {
  std::vector<float> sound(48000);
  EXPECT_EQ(quiet_beginning(sound, -60), 48000u);
  EXPECT_EQ(quiet_beginning({}, -60), 0u);
  for (size_t i = 20000; i < 22000; ++i) sound[i] = 0.01f * std::sin(static_cast<float>(i) * 0.3f);  // -40 dBFS
  EXPECT_EQ(quiet_beginning(sound, -39.5), 48000u);
  EXPECT_EQ(quiet_beginning(sound, -40.5), 20160u);  // the first 30 ms that are loud throughout
  EXPECT_EQ(quiet_beginning(sound, -60), 19680u);
  EXPECT_EQ(quiet_beginning(std::span(sound).subspan(20500), -60), 0u);
}

TEST(Silence, TextsThatSaySomething) {
  for (const char* text : {" a", "...5", " \u00fc", " \u4f60", "\u0645", "$", "\xff", "\ufffd"})
    EXPECT_TRUE(says_something(text)) << text;
  for (const char* text : {"", " ", " .", "...", " \u266a\u266a", " - -", "!?", "\u3002"})
    EXPECT_FALSE(says_something(text)) << text;
}

TEST(TranscriptText, Formats) {
  const Transcript t = example_transcript();
  EXPECT_EQ(t.text(), "Ein Wort --> & <zwei>. Ende\nhier.");
  EXPECT_EQ(render(t, TranscriptFormat::kText), "Ein Wort --> & <zwei>.\nEnde hier.\n");
  EXPECT_EQ(render(t, TranscriptFormat::kSrt),
            "1\n00:00:00,000 --> 00:00:01,500\nEin Wort -> & <zwei>.\n\n"
            "2\n01:02:03,004 --> 01:02:05,500\nEnde hier.\n");
  EXPECT_EQ(render(t, TranscriptFormat::kVtt),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nEin Wort --&gt; &amp; &lt;zwei&gt;.\n\n"
            "01:02:03.004 --> 01:02:05.500\nEnde hier.\n");
  EXPECT_EQ(render(t, TranscriptFormat::kJson),
            R"({"task":"transcribe","language":"german","duration":3725.5,"text":"Ein Wort --> & <zwei>. Ende\nhier.",)"
            R"("segments":[{"id":0,"seek":0,"start":0.0,"end":1.5,"text":" Ein Wort --> & <zwei>.","tokens":[5,6],)"
            R"("temperature":0.0,"avg_logprob":-0.25,"compression_ratio":0.5,"no_speech_prob":0.125},)"
            R"({"id":1,"seek":372000,"start":3723.0,"end":3725.5,"text":" Ende\nhier.","tokens":[7],)"
            R"("temperature":0.5,"avg_logprob":0.0,"compression_ratio":0.0,"no_speech_prob":0.0}]})"
            "\n");
  const Transcript empty{.language = "en"};
  EXPECT_EQ(render(empty, TranscriptFormat::kText), "");
  EXPECT_EQ(render(empty, TranscriptFormat::kVtt), "WEBVTT\n");
}

}  // namespace
}  // namespace ingot
