// Audio by FFmpeg's libraries, for formats that libsndfile lacks. Their types depend on the version, so only the
// version whose headers the program was built with is opened. The format is known, and only some codecs are let in:
// FFmpeg has hundreds, and the more obscure ones are the less safe ones. Nothing but the bytes of the file is read.
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/library_functions.h"
#include "io/audio/decoders.h"
#include "io/audio/frames.h"

namespace ingot {
namespace {

// clang-format off
#define INGOT_AVUTIL_FUNCTIONS(F) F(av_malloc) F(av_strdup) F(av_freep) F(av_frame_alloc) F(av_frame_free) \
  F(av_max_alloc) F(av_strerror) F(av_log_set_level) F(av_get_bytes_per_sample) F(av_sample_fmt_is_planar)
#define INGOT_AVCODEC_FUNCTIONS(F) F(avcodec_find_decoder) F(avcodec_alloc_context3) F(avcodec_free_context) \
  F(avcodec_parameters_to_context) F(avcodec_open2) F(avcodec_send_packet) F(avcodec_receive_frame) \
  F(avcodec_get_name) F(av_packet_alloc) F(av_packet_free) F(av_packet_unref)
#define INGOT_AVFORMAT_FUNCTIONS(F) F(avformat_alloc_context) F(avformat_open_input) F(avformat_close_input) \
  F(avformat_find_stream_info) F(av_find_best_stream) F(av_find_input_format) F(av_read_frame) \
  F(avio_alloc_context) F(avio_context_free)
// clang-format on
INGOT_LIBRARY(AvutilLibrary, INGOT_AVUTIL_FUNCTIONS)
INGOT_LIBRARY(AvcodecLibrary, INGOT_AVCODEC_FUNCTIONS)
INGOT_LIBRARY(AvformatLibrary, INGOT_AVFORMAT_FUNCTIONS)

#define INGOT_AV_NAMES(name, version)                                                       \
  {                                                                                         \
    "lib" name ".so." AV_STRINGIFY(version), "lib" name "." AV_STRINGIFY(version) ".dylib", \
        name "-" AV_STRINGIFY(version) ".dll"                                               \
  }

constexpr size_t kMostAllocated = size_t{128} << 20;  // bytes at once: an index of 24 hours of AAC has 90 MB
constexpr int kBufferBytes = 1 << 16, kMostProbed = 1 << 20, kMostStreams = 64;
constexpr int kLeastFrames = 4096;  // that read() gathers

struct FfmpegLibraries {
  AvutilLibrary util{INGOT_AV_NAMES("avutil", LIBAVUTIL_VERSION_MAJOR)};
  AvcodecLibrary codec{INGOT_AV_NAMES("avcodec", LIBAVCODEC_VERSION_MAJOR)};
  AvformatLibrary format{INGOT_AV_NAMES("avformat", LIBAVFORMAT_VERSION_MAJOR)};
  bool is_found = util.is_found && codec.is_found && format.is_found;
};

const FfmpegLibraries& ffmpeg(const char* file_format) {
  static const FfmpegLibraries all = [] {
    FfmpegLibraries found;
    if (found.is_found) found.util.av_log_set_level(AV_LOG_QUIET), found.util.av_max_alloc(kMostAllocated);
    return found;
  }();
  if (!all.is_found)
    throw Error(
        "the audio is a {} file, which needs FFmpeg's libraries (libavformat {}), and this machine has none: install "
        "them (Debian and Ubuntu: apt install libavformat{}), or convert the file, as with 'ffmpeg -i FILE audio.flac'",
        file_format, LIBAVFORMAT_VERSION_MAJOR, LIBAVFORMAT_VERSION_MAJOR);
  return all;
}

// ingot's formats, and FFmpeg's names of them.
constexpr std::pair<std::string_view, const char*> kDemuxers[] = {
    {"AAC", "aac"}, {"MP4 or M4A", "mov"}, {"Matroska or WebM", "matroska"}, {"WMA", "asf"}, {"AMR", "amr"}};

// Decoders that may run, also while FFmpeg looks at the streams of a file.
constexpr std::string_view kDecoders =
    "aac,alac,mp3float,mp3,mp2float,mp2,opus,vorbis,flac,ac3,eac3,amrnb,amrwb,wmav1,wmav2,wmapro,pcm_u8,pcm_s16le,"
    "pcm_s16be,pcm_s24le,pcm_f32le";

bool may_run(std::string_view decoder) {
  return ("," + std::string(kDecoders) + ",").find(fmt::format(",{},", decoder)) != std::string::npos;
}

// The bytes of a file, as FFmpeg reads them.
struct FfmpegBytes {
  std::span<const std::byte> bytes;
  int64_t at = 0;

  static int read(void* user, uint8_t* to, int n_bytes) {
    auto& file = *static_cast<FfmpegBytes*>(user);
    const int64_t n = std::min<int64_t>(n_bytes, std::ssize(file.bytes) - file.at);
    if (n <= 0) return AVERROR_EOF;
    std::memcpy(to, file.bytes.data() + file.at, static_cast<size_t>(n));
    file.at += n;
    return static_cast<int>(n);
  }
  static int64_t seek(void* user, int64_t offset, int whence) {
    auto& file = *static_cast<FfmpegBytes*>(user);
    const int64_t n = std::ssize(file.bytes);
    if ((whence & AVSEEK_SIZE) != 0) return n;
    const int from = whence & ~AVSEEK_FORCE;
    const int64_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? file.at : n;
    if (offset < -base || offset > n - base) return AVERROR(EINVAL);
    return file.at = base + offset;
  }
};

// Files that name other files get none.
int open_nothing(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) { return AVERROR(EACCES); }

// The mean of the channels of frame i. T: the type of a sample; scale: of full loudness.
template <class T>
void add_frames(const AVFrame& frame, int n_channels, bool is_planar, double scale, double zero,
                std::vector<float>& out) {
  for (int i = 0; i < frame.nb_samples; ++i) {
    double sum = 0;
    for (int c = 0; c < n_channels; ++c) {
      const uint8_t* plane = frame.extended_data[is_planar ? c : 0];
      T x;
      std::memcpy(&x, plane + sizeof(T) * static_cast<size_t>(is_planar ? i : i * n_channels + c), sizeof(T));
      sum += clean_sample(static_cast<float>((static_cast<double>(x) - zero) / scale));
    }
    out.push_back(static_cast<float>(sum / n_channels));
  }
}

class FfmpegSource final : public FrameSource {
 public:
  FfmpegSource(std::span<const std::byte> bytes, const char* format)
      : library_(ffmpeg(format)), format_(format), file_{bytes} {
    try {
      open();
      open_decoder();
      decode();  // only a frame says the rate for certain
      if (first_.empty()) throw Error("the audio is a damaged {} file: it has no sound that can be decoded", format_);
    } catch (...) {
      close();
      throw;
    }
  }
  ~FfmpegSource() override { close(); }

  int rate() const override { return rate_; }

  void read(std::vector<float>& frames) override {
    frames.clear();
    std::swap(frames, first_);
    while (std::ssize(frames) < kLeastFrames && decode()) {
      frames.insert(frames.end(), first_.begin(), first_.end());
      first_.clear();
    }
  }

  std::optional<double> stated_seconds() const override {
    if (input_->duration <= 0 || input_->duration_estimation_method == AVFMT_DURATION_FROM_BITRATE) return std::nullopt;
    return static_cast<double>(input_->duration) / AV_TIME_BASE;
  }

 private:
  void check(int code) const {
    if (code >= 0) return;
    char why[AV_ERROR_MAX_STRING_SIZE] = "";
    library_.util.av_strerror(code, why, sizeof why);
    throw Error("the audio is a damaged {} file: {}", format_, printable(why, 120));
  }
  template <class T>
  T* made(T* given) const {
    if (given == nullptr) throw std::bad_alloc();
    return given;
  }

  void open() {
    auto* buffer = static_cast<unsigned char*>(made(library_.util.av_malloc(kBufferBytes)));
    io_ = library_.format.avio_alloc_context(buffer, kBufferBytes, 0, &file_, FfmpegBytes::read, nullptr,
                                             FfmpegBytes::seek);
    if (io_ == nullptr) {
      library_.util.av_freep(&buffer);
      throw std::bad_alloc();
    }
    input_ = made(library_.format.avformat_alloc_context());
    input_->pb = io_, input_->io_open = open_nothing;
    input_->codec_whitelist = made(library_.util.av_strdup(std::string(kDecoders).c_str()));
    input_->flags |= AVFMT_FLAG_CUSTOM_IO;
    input_->probesize = kMostProbed, input_->max_streams = kMostStreams;
    const auto* demuxer = std::ranges::find(kDemuxers, format_, &std::pair<std::string_view, const char*>::first);
    const AVInputFormat* known = library_.format.av_find_input_format(demuxer->second);
    if (known == nullptr) throw Error("the audio is a {} file, which this machine's FFmpeg does not read", format_);
    check(library_.format.avformat_open_input(&input_, nullptr, known, nullptr));  // frees input_ if it fails
    check(library_.format.avformat_find_stream_info(input_, nullptr));
  }

  void open_decoder() {
    stream_ = library_.format.av_find_best_stream(input_, AVMEDIA_TYPE_AUDIO, -1, -1, nullptr, 0);
    if (stream_ < 0) throw Error("the audio is a {} file without sound", format_);
    for (unsigned i = 0; i < input_->nb_streams; ++i)
      if (static_cast<int>(i) != stream_) input_->streams[i]->discard = AVDISCARD_ALL;
    const AVCodecParameters& parameters = *input_->streams[stream_]->codecpar;
    const AVCodec* codec = library_.codec.avcodec_find_decoder(parameters.codec_id);
    if (codec == nullptr || !may_run(codec->name))
      throw Error(
          "the sound of the {} file has the codec {}, which this program does not read: convert it, as with "
          "'ffmpeg -i FILE audio.flac'",
          format_, printable(library_.codec.avcodec_get_name(parameters.codec_id), 32));
    decoder_ = made(library_.codec.avcodec_alloc_context3(codec));
    check(library_.codec.avcodec_parameters_to_context(decoder_, &parameters));
    decoder_->thread_count = 1, decoder_->pkt_timebase = input_->streams[stream_]->time_base;
    check(library_.codec.avcodec_open2(decoder_, codec, nullptr));
    packet_ = made(library_.codec.av_packet_alloc());
    frame_ = made(library_.util.av_frame_alloc());
  }

  void close() {
    library_.util.av_frame_free(&frame_);
    library_.codec.av_packet_free(&packet_);
    library_.codec.avcodec_free_context(&decoder_);
    library_.format.avformat_close_input(&input_);
    if (io_ != nullptr) library_.util.av_freep(&io_->buffer);
    library_.format.avio_context_free(&io_);
  }

  // Adds the next frames to first_. False at the end of what can be decoded; damaged packets are passed over.
  bool decode() {
    for (;;) {
      if (library_.codec.avcodec_receive_frame(decoder_, frame_) >= 0) {
        take_frame();
        if (!first_.empty()) return true;
      } else if (is_drained_) {
        return false;
      } else {
        send_packet();
      }
    }
  }

  void send_packet() {
    for (;;) {
      if (library_.format.av_read_frame(input_, packet_) < 0) {  // the end, or a damaged place without a way on
        is_drained_ = true;
        library_.codec.avcodec_send_packet(decoder_, nullptr);
        return;
      }
      const bool is_sound = packet_->stream_index == stream_;
      if (is_sound) library_.codec.avcodec_send_packet(decoder_, packet_);
      library_.codec.av_packet_unref(packet_);
      if (is_sound) return;
    }
  }

  void take_frame() {
    const AVFrame& frame = *frame_;
    const int n_channels = frame.ch_layout.nb_channels;
    if (n_channels < 1 || n_channels > kMaxAudioChannels)
      throw Error("the audio has {} channels; the limit is {}", n_channels, kMaxAudioChannels);
    if (rate_ == 0) rate_ = frame.sample_rate;
    if (frame.sample_rate != rate_)
      throw Error("the audio changes from {} to {} samples a second: convert it, as with 'ffmpeg -i FILE audio.flac'",
                  rate_, frame.sample_rate);
    const auto format = static_cast<AVSampleFormat>(frame.format);
    const bool is_planar = library_.util.av_sample_fmt_is_planar(format) != 0;
    switch (format) {
      case AV_SAMPLE_FMT_U8:
      case AV_SAMPLE_FMT_U8P: return add_frames<uint8_t>(frame, n_channels, is_planar, 0x1p7, 128, first_);
      case AV_SAMPLE_FMT_S16:
      case AV_SAMPLE_FMT_S16P: return add_frames<int16_t>(frame, n_channels, is_planar, 0x1p15, 0, first_);
      case AV_SAMPLE_FMT_S32:
      case AV_SAMPLE_FMT_S32P: return add_frames<int32_t>(frame, n_channels, is_planar, 0x1p31, 0, first_);
      case AV_SAMPLE_FMT_FLT:
      case AV_SAMPLE_FMT_FLTP: return add_frames<float>(frame, n_channels, is_planar, 1, 0, first_);
      case AV_SAMPLE_FMT_DBL:
      case AV_SAMPLE_FMT_DBLP: return add_frames<double>(frame, n_channels, is_planar, 1, 0, first_);
      default: throw Error("the audio has samples of an unknown type, {}", static_cast<int>(format));
    }
  }

  const FfmpegLibraries& library_;
  const std::string_view format_;
  FfmpegBytes file_;
  AVIOContext* io_ = nullptr;
  AVFormatContext* input_ = nullptr;
  AVCodecContext* decoder_ = nullptr;
  AVPacket* packet_ = nullptr;
  AVFrame* frame_ = nullptr;
  int stream_ = -1, rate_ = 0;
  bool is_drained_ = false;
  std::vector<float> first_;  // frames that were decoded and not read
};

}  // namespace

std::unique_ptr<AudioStream> open_ffmpeg(std::span<const std::byte> file, const char* format,
                                         const AudioLimits& limits) {
  return std::make_unique<FramesStream>(std::make_unique<FfmpegSource>(file, format), limits);
}

}  // namespace ingot
