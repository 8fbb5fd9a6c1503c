#include "model/speech/transcript_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "model/speech/languages.h"

namespace ingot {
namespace {

// The text of a segment on one line, with parts that mean something in subtitles replaced.
std::string line_of(const SpeechSegment& segment,
                    std::initializer_list<std::pair<std::string_view, std::string_view>> replaced) {
  std::string text = trimmed(segment.text);
  std::ranges::replace(text, '\n', ' ');
  std::ranges::replace(text, '\r', ' ');
  for (const auto& [from, to] : replaced)
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  return text;
}

std::string as_text(const Transcript& t) {
  std::string out;
  for (const SpeechSegment& segment : t.segments) out += line_of(segment, {}) + "\n";
  return out;
}

std::string as_srt(const Transcript& t) {
  std::string out;
  for (size_t i = 0; i < t.segments.size(); ++i) {
    const SpeechSegment& s = t.segments[i];
    out += fmt::format("{}{}\n{} --> {}\n{}\n", i == 0 ? "" : "\n", i + 1, subtitle_time(s.start, ','),
                       subtitle_time(s.end, ','), line_of(s, {{"-->", "->"}}));
  }
  return out;
}

std::string as_vtt(const Transcript& t) {
  std::string out = "WEBVTT\n";
  for (const SpeechSegment& s : t.segments)
    out += fmt::format("\n{} --> {}\n{}\n", subtitle_time(s.start, '.'), subtitle_time(s.end, '.'),
                       line_of(s, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}));
  return out;
}

double rounded(double x, double steps) { return std::round(x * steps) / steps; }

std::string as_json(const Transcript& t) {
  const auto* language = std::ranges::find(kSpeechLanguages, std::string_view(t.language), &SpeechLanguage::code);
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  for (const SpeechSegment& s : t.segments)
    segments.push_back({{"id", segments.size()},
                        {"seek", s.window_start},
                        {"start", rounded(s.start, 100)},
                        {"end", rounded(s.end, 100)},
                        {"text", s.text},
                        {"tokens", s.tokens},
                        {"temperature", rounded(s.temperature, 1e3)},
                        {"avg_logprob", rounded(s.avg_logprob, 1e6)},
                        {"compression_ratio", rounded(s.compression_ratio, 1e6)},
                        {"no_speech_prob", rounded(s.no_speech_prob, 1e6)}});
  nlohmann::ordered_json all = {
      {"task", t.task},
      {"language", language == std::end(kSpeechLanguages) ? t.language : language->name},
      {"duration", rounded(t.seconds, 1000)},
      {"text", t.text()},
      {"segments", std::move(segments)}};
  nlohmann::ordered_json words = nlohmann::ordered_json::array();
  for (const SpeechSegment& s : t.segments)
    for (const SpeechWord& word : s.words)
      words.push_back({{"word", trimmed(word.text)},
                       {"start", rounded(word.start, 100)},
                       {"end", rounded(word.end, 100)},
                       {"probability", rounded(word.probability, 1e4)}});
  if (!words.empty()) all["words"] = std::move(words);
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string subtitle_time(double seconds, char mark) {
  const auto ms = static_cast<int64_t>(std::llround(std::max(seconds, 0.0) * 1000));
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, mark, ms % 1000);
}

std::string render(const Transcript& transcript, TranscriptFormat format) {
  switch (format) {
    case TranscriptFormat::kSrt: return as_srt(transcript);
    case TranscriptFormat::kVtt: return as_vtt(transcript);
    case TranscriptFormat::kJson: return as_json(transcript);
    case TranscriptFormat::kText: break;
  }
  return as_text(transcript);
}

}  // namespace ingot
