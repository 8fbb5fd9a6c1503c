// Decodes the audio files that users send to one channel of 16,000 samples a second, as speech models read it. The
// content names the format; a name or a media type is never asked. The result is read in pieces, so a recording of ten
// hours needs no more memory than one of ten seconds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ingot {

inline constexpr int kSpeechRate = 16000;  // samples a second

struct AudioLimits {
  uint64_t max_bytes = uint64_t{4} << 30;  // of the file
  double max_seconds = 24 * 3600;          // of the recording
};

class AudioStream {
 public:
  virtual ~AudioStream() = default;
  // Fills `to` with the next samples. Returns their number; fewer than to.size() at the end, then 0. Samples are
  // finite. Channels are averaged. Throws Error if the recording is longer than the limit.
  virtual size_t read(std::span<float> to) = 0;
  // The length that the file states, in seconds; nothing if the file does not say. For progress only.
  virtual std::optional<double> stated_seconds() const = 0;
  // After the end: whether the file states more samples than it has.
  virtual bool is_truncated() const = 0;
};

// Samples in memory, kSpeechRate a second.
class SampleStream final : public AudioStream {
 public:
  explicit SampleStream(std::vector<float> samples) : samples_(std::move(samples)) {}
  size_t read(std::span<float> to) override;
  std::optional<double> stated_seconds() const override { return static_cast<double>(samples_.size()) / kSpeechRate; }
  bool is_truncated() const override { return false; }

 private:
  const std::vector<float> samples_;
  size_t at_ = 0;
};

// Opens an audio file in memory; the bytes must outlive the stream. Throws Error: the file has another format, is
// damaged, or exceeds a limit. The message is a sentence about "the audio", so that callers can say before it which.
std::unique_ptr<AudioStream> open_audio(std::span<const std::byte> file, const AudioLimits& limits);

// Whether a file, or the beginning of one, is in an audio format that this program knows, decoded or not.
bool is_audio(std::span<const std::byte> file);

// The formats that are read, for help: "WAV, FLAC, Ogg (Vorbis, Opus), MP3, AIFF, AU and CAF; by FFmpeg's libraries
// also AAC, MP4 or M4A, Matroska or WebM, WMA and AMR".
std::string audio_formats();

}  // namespace ingot
