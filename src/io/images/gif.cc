// GIF by giflib: the first frame, on a canvas that is transparent where the frame is not.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "io/images/decoders.h"

namespace ingot {
namespace {

struct GifSource {
  std::span<const uint8_t> rest;  // of the file
  bool is_truncated = false;
};

int read_gif_bytes(GifFileType* gif, GifByteType* out, int n_bytes) {
  auto* source = static_cast<GifSource*>(gif->UserData);
  const size_t n = std::min<size_t>(n_bytes, source->rest.size());
  source->is_truncated = source->is_truncated || n < size_t(n_bytes);
  std::memcpy(out, source->rest.data(), n);
  source->rest = source->rest.subspan(n);
  return int(n);
}

struct GifCloser {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

[[noreturn]] void fail_gif(const GifSource& source, int code) {
  if (source.is_truncated) fail_truncated_image("GIF");
  const char* why = GifErrorString(code);
  fail_damaged_image("GIF", why == nullptr ? "" : why);
}

// Reads an extension's blocks; returns the transparent colour of a graphics control block, or `transparent`.
int read_gif_extension(GifFileType* gif, const GifSource& source, int transparent) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) fail_gif(source, gif->Error);
  while (block != nullptr) {
    GraphicsControlBlock control = {};
    if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
      transparent = control.TransparentColor;
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) fail_gif(source, gif->Error);
  }
  return transparent;
}

void read_gif_frame(GifFileType* gif, const GifSource& source, int transparent, DecodedPixels& pixels) {
  const GifImageDesc& frame = gif->Image;
  const ColorMapObject* colors = frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap;
  if (colors == nullptr) fail_damaged_image("GIF", "no colours");
  std::vector<GifPixelType> line(frame.Width);
  constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};  // the four passes of an interlaced frame
  for (int pass = 0; pass < (frame.Interlace ? 4 : 1); ++pass)
    for (int y = frame.Interlace ? kFirst[pass] : 0; y < frame.Height; y += frame.Interlace ? kStep[pass] : 1) {
      if (DGifGetLine(gif, line.data(), frame.Width) == GIF_ERROR) fail_gif(source, gif->Error);
      uint8_t* out = pixels.values.data() + (size_t(frame.Top + y) * pixels.width + frame.Left) * 4;
      for (int x = 0; x < frame.Width; ++x, out += 4) {
        if (line[x] == transparent) continue;
        const GifColorType color = line[x] < colors->ColorCount ? colors->Colors[line[x]] : GifColorType{};
        out[0] = color.Red, out[1] = color.Green, out[2] = color.Blue, out[3] = 255;
      }
    }
}

}  // namespace

DecodedPixels decode_gif(std::span<const uint8_t> file, const ImageLimits& limits) {
  GifSource source{file};
  int code = 0;
  const std::unique_ptr<GifFileType, GifCloser> gif(DGifOpen(&source, read_gif_bytes, &code));
  if (gif == nullptr) fail_gif(source, code);
  int transparent = NO_TRANSPARENT_COLOR;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif.get(), &type) == GIF_ERROR) fail_gif(source, gif->Error);
    if (type == TERMINATE_RECORD_TYPE) fail_damaged_image("GIF", "no frame");
    if (type == EXTENSION_RECORD_TYPE) transparent = read_gif_extension(gif.get(), source, transparent);
    if (type == IMAGE_DESC_RECORD_TYPE) break;
  }
  if (DGifGetImageDesc(gif.get()) == GIF_ERROR) fail_gif(source, gif->Error);
  const GifImageDesc& frame = gif->Image;
  if (frame.Left < 0 || frame.Top < 0 || frame.Width < 1 || frame.Height < 1)
    fail_damaged_image("GIF", "an empty frame");
  // Like browsers, a frame that is larger than the canvas enlarges it.
  const uint64_t width = std::max(gif->SWidth, frame.Left + frame.Width);
  const uint64_t height = std::max(gif->SHeight, frame.Top + frame.Height);
  check_image_size(width, height, 4 + 3, limits);
  DecodedPixels pixels{.width = int(width), .height = int(height), .n_channels = 4};
  pixels.values.resize(width * height * 4);
  read_gif_frame(gif.get(), source, transparent, pixels);
  return pixels;
}

}  // namespace ingot
