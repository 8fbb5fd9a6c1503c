// Audio by libsndfile, which reads the bytes of a file through callbacks.
#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "io/audio/audio_library.h"
#include "io/audio/decoders.h"
#include "io/audio/frames.h"

namespace ingot {
namespace {

// clang-format off
#define INGOT_SNDFILE_FUNCTIONS(F) F(sf_open_virtual) F(sf_readf_float) F(sf_close) F(sf_strerror)
// clang-format on
INGOT_LIBRARY(SndfileLibrary, INGOT_SNDFILE_FUNCTIONS)

const SndfileLibrary& sndfile() {
  static const SndfileLibrary library({"libsndfile.so.1", "libsndfile.1.dylib", "sndfile.dll"});
  if (!library.is_found) miss_library("libsndfile");
  return library;
}

// The bytes of a file, as libsndfile reads them.
struct AudioFile {
  std::span<const std::byte> bytes;
  size_t at = 0;

  static AudioFile& of(void* user) { return *static_cast<AudioFile*>(user); }
  static sf_count_t size(void* user) { return static_cast<sf_count_t>(of(user).bytes.size()); }
  static sf_count_t tell(void* user) { return static_cast<sf_count_t>(of(user).at); }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    AudioFile& file = of(user);
    const auto n = static_cast<sf_count_t>(file.bytes.size());
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? static_cast<sf_count_t>(file.at) : n;
    file.at = static_cast<size_t>(offset < -from ? 0 : offset > n - from ? n : from + offset);
    return static_cast<sf_count_t>(file.at);
  }
  static sf_count_t read(void* to, sf_count_t n_bytes, void* user) {
    AudioFile& file = of(user);
    const size_t n = std::min(static_cast<size_t>(std::max<sf_count_t>(n_bytes, 0)), file.bytes.size() - file.at);
    if (n > 0) std::memcpy(to, file.bytes.data() + file.at, n);
    file.at += n;
    return static_cast<sf_count_t>(n);
  }
};

class SndfileSource final : public FrameSource {
 public:
  SndfileSource(std::span<const std::byte> bytes, const char* format) : file_{bytes} {
    SF_VIRTUAL_IO io = {AudioFile::size, AudioFile::seek, AudioFile::read, AudioFile::write, AudioFile::tell};
    sound_ = sndfile().sf_open_virtual(&io, SFM_READ, &info_, &file_);
    if (sound_ == nullptr)
      throw Error("the audio is a damaged {} file: {}", format, printable(sndfile().sf_strerror(nullptr), 120));
    if (info_.channels >= 1 && info_.channels <= kMaxAudioChannels) return;
    sndfile().sf_close(sound_);
    throw Error("the audio has {} channels; the limit is {}", info_.channels, kMaxAudioChannels);
  }
  ~SndfileSource() override { sndfile().sf_close(sound_); }

  int rate() const override { return info_.samplerate; }

  void read(std::vector<float>& frames) override {
    const auto n_channels = static_cast<size_t>(info_.channels);
    samples_.resize(static_cast<size_t>(kFramesAtOnce) * n_channels);
    const sf_count_t n = sndfile().sf_readf_float(sound_, samples_.data(), kFramesAtOnce);
    frames.resize(n > 0 ? static_cast<size_t>(n) : 0);
    for (size_t i = 0; i < frames.size(); ++i) {
      float sum = 0;
      for (size_t c = 0; c < n_channels; ++c) sum += clean_sample(samples_[i * n_channels + c]);
      frames[i] = sum / static_cast<float>(n_channels);
    }
  }

  std::optional<double> stated_seconds() const override {
    if (info_.frames <= 0 || info_.frames >= kUnknownFrames || info_.samplerate <= 0) return std::nullopt;
    return static_cast<double>(info_.frames) / info_.samplerate;
  }

 private:
  static constexpr sf_count_t kUnknownFrames = sf_count_t{1} << 62, kFramesAtOnce = 4096;

  AudioFile file_;
  SF_INFO info_ = {};
  SNDFILE* sound_ = nullptr;
  std::vector<float> samples_;  // [n, channels]
};

}  // namespace

std::unique_ptr<AudioStream> open_sndfile(std::span<const std::byte> file, const char* format,
                                          const AudioLimits& limits) {
  return std::make_unique<FramesStream>(std::make_unique<SndfileSource>(file, format), limits);
}

}  // namespace ingot
