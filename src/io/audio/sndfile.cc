// Audio by libsndfile and libsamplerate, which are opened at the first use, because libsndfile brings the codecs of
// many formats. libsndfile reads the bytes of a file through callbacks, and libsamplerate asks for one channel of what
// libsndfile has decoded.
#include <samplerate.h>
#include <sndfile.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/shared_library.h"
#include "io/audio/decoders.h"

namespace ingot {
namespace {

// clang-format off
#define INGOT_SNDFILE_FUNCTIONS(F) F(sf_open_virtual) F(sf_readf_float) F(sf_close) F(sf_strerror) F(sf_command)
#define INGOT_SAMPLERATE_FUNCTIONS(F) F(src_callback_new) F(src_callback_read) F(src_delete) F(src_strerror)
// clang-format on

struct AudioLibraries {
#define INGOT_AUDIO_MEMBER(name) decltype(&::name) name = nullptr;
  INGOT_SNDFILE_FUNCTIONS(INGOT_AUDIO_MEMBER)
  INGOT_SAMPLERATE_FUNCTIONS(INGOT_AUDIO_MEMBER)
#undef INGOT_AUDIO_MEMBER
  const char* missing = nullptr;  // the library that this machine lacks
};

void* first_library(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* library = open_library(name)) return library;
  return nullptr;
}

AudioLibraries open_audio_libraries() {
  AudioLibraries all;
  void* library = nullptr;
  const char* name = nullptr;
  const auto found = [&](void* function) {
    if (function == nullptr) all.missing = name;
    return function;
  };
#define INGOT_AUDIO_FIND(f) \
  all.f = reinterpret_cast<decltype(all.f)>(found(library == nullptr ? nullptr : function_of(library, #f)));
  name = "libsndfile", library = first_library({"libsndfile.so.1", "libsndfile.1.dylib", "sndfile.dll"});
  INGOT_SNDFILE_FUNCTIONS(INGOT_AUDIO_FIND)
  name = "libsamplerate", library = first_library({"libsamplerate.so.0", "libsamplerate.0.dylib", "samplerate.dll"});
  INGOT_SAMPLERATE_FUNCTIONS(INGOT_AUDIO_FIND)
#undef INGOT_AUDIO_FIND
  return all;
}

const AudioLibraries& audio_libraries() {
  static const AudioLibraries all = open_audio_libraries();
  if (all.missing != nullptr)
    throw Error(
        "the audio cannot be read, because this machine has no {}: install it (Debian and Ubuntu: apt install "
        "libsndfile1 libsamplerate0)",
        all.missing);
  return all;
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

class SndfileStream final : public AudioStream {
 public:
  SndfileStream(std::span<const std::byte> bytes, const char* format, const AudioLimits& limits)
      : libraries_(audio_libraries()), format_(format), limits_(limits), file_{bytes} {
    SF_VIRTUAL_IO io = {AudioFile::size, AudioFile::seek, AudioFile::read, AudioFile::write, AudioFile::tell};
    sound_ = libraries_.sf_open_virtual(&io, SFM_READ, &info_, &file_);
    if (sound_ == nullptr)
      throw Error("the audio is a damaged {} file: {}", format_, printable(libraries_.sf_strerror(nullptr), 120));
    try {
      check();
      int fault = 0;
      if (info_.samplerate != kSpeechRate)
        resampler_ = libraries_.src_callback_new(next_of_file, SRC_SINC_MEDIUM_QUALITY, 1, &fault, this);
      if (fault != 0) throw Error("the audio cannot be resampled: {}", libraries_.src_strerror(fault));
    } catch (...) {
      libraries_.sf_close(sound_);
      throw;
    }
  }
  ~SndfileStream() override {
    if (resampler_ != nullptr) libraries_.src_delete(resampler_);
    libraries_.sf_close(sound_);
  }

  size_t read(std::span<float> to) override {
    size_t n = 0;
    while (n < to.size()) {
      const size_t got = resampler_ == nullptr ? take(to.subspan(n)) : resample(to.subspan(n));
      if (got == 0) break;
      n += got;
    }
    for (float& x : to.first(n)) x = clean_sample(x);
    n_samples_ += n;
    if (static_cast<double>(n_samples_) > limits_.max_seconds * kSpeechRate) fail_long();
    return n;
  }

  std::optional<double> stated_seconds() const override {
    if (info_.frames <= 0 || info_.frames >= kUnknownFrames) return std::nullopt;
    return static_cast<double>(info_.frames) / info_.samplerate;
  }
  bool is_truncated() const override { return stated_seconds() && n_frames_ < info_.frames; }

 private:
  static constexpr sf_count_t kUnknownFrames = sf_count_t{1} << 62;
  static constexpr int kMaxChannels = 256;
  // Of libsamplerate: the rates may differ by this factor.
  static constexpr int kMaxRateRatio = 256;

  void check() const {
    if (info_.channels < 1 || info_.channels > kMaxChannels)
      throw Error("the audio has {} channels; the limit is {}", info_.channels, kMaxChannels);
    if (info_.samplerate < kSpeechRate / kMaxRateRatio + 1 || info_.samplerate > kSpeechRate * kMaxRateRatio)
      throw Error("the audio has {} samples a second: expected {} to {}", info_.samplerate,
                  kSpeechRate / kMaxRateRatio + 1, kSpeechRate * kMaxRateRatio);
    if (const auto seconds = stated_seconds(); seconds && *seconds > limits_.max_seconds) fail_long();
  }

  [[noreturn]] void fail_long() const {
    throw Error("the audio is longer than {} seconds, the limit: cut it into parts", limits_.max_seconds);
  }

  // The next samples of the file, averaged over the channels, at the file's own rate.
  size_t take(std::span<float> to) {
    size_t n = 0;
    while (n < to.size()) {
      if (at_ == n_read_ && !refill()) break;
      const size_t n_here = std::min(to.size() - n, n_read_ - at_);
      std::copy_n(mono_.begin() + static_cast<std::ptrdiff_t>(at_), n_here,
                  to.begin() + static_cast<std::ptrdiff_t>(n));
      at_ += n_here, n += n_here;
    }
    return n;
  }

  // False at the end. Some decoders go on behind a damaged place, but libsamplerate takes no input after the end.
  bool refill() {
    if (at_end_) return false;
    const auto n_channels = static_cast<size_t>(info_.channels);
    frames_.resize(mono_.size() * n_channels);
    const sf_count_t n = libraries_.sf_readf_float(sound_, frames_.data(), static_cast<sf_count_t>(mono_.size()));
    at_ = 0, n_read_ = n > 0 ? static_cast<size_t>(n) : 0;
    n_frames_ += static_cast<sf_count_t>(n_read_);
    for (size_t i = 0; i < n_read_; ++i) {
      float sum = 0;
      for (size_t c = 0; c < n_channels; ++c) sum += clean_sample(frames_[i * n_channels + c]);
      mono_[i] = sum / static_cast<float>(n_channels);
    }
    at_end_ = n_read_ == 0;
    return !at_end_;
  }

  size_t resample(std::span<float> to) {
    const double ratio = double{kSpeechRate} / info_.samplerate;
    const long n = libraries_.src_callback_read(resampler_, ratio, static_cast<long>(to.size()), to.data());
    return n > 0 ? static_cast<size_t>(n) : 0;
  }

  // libsamplerate asks for input.
  static long next_of_file(void* self, float** data) {
    auto& stream = *static_cast<SndfileStream*>(self);
    if (stream.at_ == stream.n_read_ && !stream.refill()) return 0;
    *data = stream.mono_.data() + stream.at_;
    const auto n = static_cast<long>(stream.n_read_ - stream.at_);
    stream.at_ = stream.n_read_;
    return n;
  }

  const AudioLibraries& libraries_;
  const char* format_;
  const AudioLimits limits_;
  AudioFile file_;
  SF_INFO info_ = {};
  SNDFILE* sound_ = nullptr;
  SRC_STATE* resampler_ = nullptr;
  std::vector<float> frames_;     // [n, channels]
  std::array<float, 4096> mono_;  // the frames that were decoded last
  size_t at_ = 0, n_read_ = 0;    // of mono_
  bool at_end_ = false;
  sf_count_t n_frames_ = 0;  // decoded so far
  size_t n_samples_ = 0;     // given out so far
};

}  // namespace

std::unique_ptr<AudioStream> open_sndfile(std::span<const std::byte> file, const char* format,
                                          const AudioLimits& limits) {
  return std::make_unique<SndfileStream>(file, format, limits);
}

}  // namespace ingot
