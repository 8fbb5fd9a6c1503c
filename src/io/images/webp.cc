// WebP by libwebp. Of an animation, the first frame lies on a transparent canvas.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "io/images/decoders.h"

namespace ingot {
namespace {

struct WebPFrame {
  WebPIterator it = {};
  ~WebPFrame() { WebPDemuxReleaseIterator(&it); }
};

int webp_orientation(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk = {};
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0)
    orientation = exif_orientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

DecodedPixels decode_webp(std::span<const uint8_t> file, const ImageLimits& limits) {
  // Lossless pictures need four more bytes a pixel inside the library.
  constexpr uint64_t kWebPBytesPerPixel = 4 + 4 + 3;
  const WebPData data{file.data(), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemuxPartial(&data, &state),
                                                                         WebPDemuxDelete);
  if (demuxer == nullptr || state == WEBP_DEMUX_PARSE_ERROR) fail_damaged_image("WebP", "");
  if (state != WEBP_DEMUX_DONE) fail_truncated_image("WebP");
  const uint64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const uint64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  check_image_size(width, height, kWebPBytesPerPixel, limits);
  WebPFrame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame.it) == 0 || frame.it.complete == 0) fail_truncated_image("WebP");
  const WebPIterator& it = frame.it;
  if (it.x_offset < 0 || it.y_offset < 0 || it.width < 1 || it.height < 1 || uint64_t(it.x_offset) + it.width > width ||
      uint64_t(it.y_offset) + it.height > height)
    fail_damaged_image("WebP", "a frame outside the picture");

  const bool covers_all = uint64_t(it.width) == width && uint64_t(it.height) == height;
  DecodedPixels pixels{.width = int(width), .height = int(height), .n_channels = covers_all && !it.has_alpha ? 3 : 4};
  pixels.values.resize(width * height * pixels.n_channels);
  pixels.orientation = webp_orientation(demuxer.get());
  const size_t stride = width * pixels.n_channels;
  const size_t start = it.y_offset * stride + size_t(it.x_offset) * pixels.n_channels;
  const auto decode = pixels.n_channels == 3 ? WebPDecodeRGBInto : WebPDecodeRGBAInto;
  if (decode(it.fragment.bytes, it.fragment.size, pixels.values.data() + start, pixels.values.size() - start,
             int(stride)) == nullptr)
    fail_damaged_image("WebP", "its data ends early or has no meaning");
  return pixels;
}

}  // namespace ingot
