// Transcripts as files: plain text, subtitles (SRT, WebVTT) and the JSON of OpenAI's API.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "model/speech/transcript.h"

namespace ingot {

enum class TranscriptFormat : uint8_t { kText, kSrt, kVtt, kJson };
// "txt", "srt", "vtt" and "json": also the endings of the files.
inline constexpr std::string_view kTranscriptFormats[] = {"txt", "srt", "vtt", "json"};

// The whole file. Text has a line for each segment.
std::string render(const Transcript& transcript, TranscriptFormat format);

// A time as in subtitles: "01:02:03,456". mark: between seconds and milliseconds.
std::string subtitle_time(double seconds, char mark);

}  // namespace ingot
