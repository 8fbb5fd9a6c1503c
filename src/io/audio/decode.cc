#include "io/audio/decode.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/audio/decoders.h"
#include "io/sniff.h"

namespace ingot {
namespace {

using AudioBytes = std::span<const uint8_t>;

bool has_mark(AudioBytes file, size_t offset, std::string_view text) {
  return file.size() >= offset + text.size() && std::memcmp(file.data() + offset, text.data(), text.size()) == 0;
}

bool is_wav(AudioBytes f) { return (has_mark(f, 0, "RIFF") || has_mark(f, 0, "RF64")) && has_mark(f, 8, "WAVE"); }
bool is_flac(AudioBytes f) { return has_mark(f, 0, "fLaC"); }
bool is_ogg(AudioBytes f) { return has_mark(f, 0, "OggS"); }
bool is_aiff(AudioBytes f) { return has_mark(f, 0, "FORM") && (has_mark(f, 8, "AIFF") || has_mark(f, 8, "AIFC")); }
bool is_au(AudioBytes f) { return has_mark(f, 0, ".snd"); }
bool is_caf(AudioBytes f) { return has_mark(f, 0, "caff"); }
// A frame of MPEG audio begins with 11 ones; layer 0 and version 1 are reserved, and so are two values that follow.
bool is_mp3(AudioBytes f) {
  if (has_mark(f, 0, "ID3")) return true;
  return f.size() >= 4 && f[0] == 0xFF && (f[1] & 0xE0) == 0xE0 && (f[1] & 0x18) != 0x08 && (f[1] & 0x06) != 0 &&
         (f[2] & 0xF0) != 0xF0 && (f[2] & 0x0C) != 0x0C;
}
bool is_aac(AudioBytes f) { return f.size() >= 2 && f[0] == 0xFF && (f[1] & 0xF6) == 0xF0; }
bool is_mp4(AudioBytes f) { return has_mark(f, 4, "ftyp"); }
bool is_matroska(AudioBytes f) { return has_mark(f, 0, "\x1A\x45\xDF\xA3"); }
bool is_asf(AudioBytes f) { return has_mark(f, 0, {"\x30\x26\xB2\x75\x8E\x66\xCF\x11", 8}); }
bool is_amr(AudioBytes f) { return has_mark(f, 0, "#!AMR"); }
bool is_midi(AudioBytes f) { return has_mark(f, 0, "MThd"); }

using AudioOpener = std::unique_ptr<AudioStream>(std::span<const std::byte>, const char* format, const AudioLimits&);

// cmake/audio.cmake sets the macros: null where the headers of the libraries were not found.
enum AudioReader { kNoReader, kSndfile, kFfmpeg };
constexpr AudioOpener* kOpeners[] = {nullptr, INGOT_AUDIO_OPEN, INGOT_FFMPEG_OPEN};

struct AudioFormat {
  const char* name;
  bool (*matches)(AudioBytes file);
  AudioReader reader;
};

constexpr AudioFormat kAudioFormats[] = {
    {"WAV", is_wav, kSndfile}, {"FLAC", is_flac, kSndfile},     {"Ogg (Vorbis, Opus)", is_ogg, kSndfile},
    {"AAC", is_aac, kFfmpeg},  // before MP3, whose frames begin alike
    {"MP3", is_mp3, kSndfile}, {"AIFF", is_aiff, kSndfile},     {"AU", is_au, kSndfile},
    {"CAF", is_caf, kSndfile}, {"MP4 or M4A", is_mp4, kFfmpeg}, {"Matroska or WebM", is_matroska, kFfmpeg},
    {"WMA", is_asf, kFfmpeg},  {"AMR", is_amr, kFfmpeg},        {"MIDI", is_midi, kNoReader},
};

// "A, B and C": the formats of some readers.
template <class Reads>
std::string names_of(const Reads& reads) {
  std::vector<std::string> names;
  for (const AudioFormat& format : kAudioFormats)
    if (reads(format.reader)) names.emplace_back(format.name);
  std::string text = names[0];
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string what_is_read() {
  if (kOpeners[kSndfile] == nullptr) return "no format, because it was built without libsndfile and libsamplerate";
  return names_of([](AudioReader reader) { return kOpeners[reader] != nullptr; });
}

}  // namespace

std::string audio_formats() {
  return names_of([](AudioReader reader) { return reader == kSndfile; }) + "; by FFmpeg's libraries also " +
         names_of([](AudioReader reader) { return reader == kFfmpeg; });
}

size_t SampleStream::read(std::span<float> to) {
  const size_t n = std::min(to.size(), samples_.size() - at_);
  std::copy_n(samples_.begin() + static_cast<std::ptrdiff_t>(at_), n, to.begin());
  at_ += n;
  return n;
}

bool is_audio(std::span<const std::byte> file) {
  const AudioBytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  return std::ranges::any_of(kAudioFormats, [&](const AudioFormat& format) { return format.matches(bytes); });
}

std::unique_ptr<AudioStream> open_audio(std::span<const std::byte> file, const AudioLimits& limits) {
  const AudioBytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  if (bytes.empty()) throw Error("the audio is empty: it has no bytes");
  if (bytes.size() > limits.max_bytes)
    throw Error("the audio has {} bytes; the limit is {}: send a shorter recording, or compress it", bytes.size(),
                limits.max_bytes);
  for (const AudioFormat& format : kAudioFormats) {
    if (!format.matches(bytes)) continue;
    if (AudioOpener* const open = kOpeners[format.reader]) return open(file, format.name, limits);
    if (format.reader == kFfmpeg)
      throw Error(
          "the audio is a {} file, and this program was built without FFmpeg; it reads {}: convert the file, as with "
          "'ffmpeg -i FILE audio.flac', or build the program where FFmpeg's headers are (libavformat-dev)",
          format.name, what_is_read());
    throw Error("the audio is a {} file; this program reads {}: convert it, as with 'ffmpeg -i FILE audio.flac'",
                format.name, what_is_read());
  }
  throw Error("the audio is {}; this program reads {}",
              describe_file(bytes.first(std::min<size_t>(bytes.size(), 512)), bytes.size()), what_is_read());
}

}  // namespace ingot
