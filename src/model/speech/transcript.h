// What a recording says: segments with times, as a speech model writes them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

struct SpeechWord {
  std::string text;           // with the space and the signs beside it
  double start = 0, end = 0;  // seconds
  float probability = 0;      // the mean of its tokens
};

struct SpeechSegment {
  double start = 0, end = 0;    // seconds
  std::string text;             // begins with a space in most languages, as the model writes it
  std::vector<int32_t> tokens;  // with those of times
  int64_t window_start = 0;     // of the window that it is from, in frames of 10 ms
  float temperature = 0;
  float avg_logprob = 0;
  float compression_ratio = 0;
  float no_speech_prob = 0;
  std::vector<SpeechWord> words = {};  // if wanted
};

// Some characters of a text.
struct SpeechPiece {
  std::string text;
  float probability = 0;  // the least of its tokens
};

// The likeliest text of a sound that goes on.
struct SpeechGuess {
  std::vector<SpeechPiece> pieces;  // none: the sound has no text, or one that looks wrong
  std::vector<int32_t> tokens;      // with those of times
};

struct Transcript {
  std::string language;       // code: "en"
  std::string task;           // "transcribe" or "translate"
  double seconds = 0;         // of the recording
  bool is_truncated = false;  // the file states more sound than it has
  std::vector<SpeechSegment> segments;

  std::string text() const;  // of all segments, without space at its ends
};

// The text of a segment without space at its ends.
std::string trimmed(const std::string& text);

}  // namespace ingot
