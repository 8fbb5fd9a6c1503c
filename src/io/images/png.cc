// PNG by libpng. The library reports errors through longjmp(), so the functions with setjmp() have no objects with
// destructors: everything that must be freed is in PngDecoder, outside.
#include <png.h>

#include <cstdio>
#include <cstring>

#include "io/images/decoders.h"

namespace ingot {
namespace {

struct PngDecoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const uint8_t> rest;  // of the file
  char message[160] = {};
  bool is_truncated = false;
  DecodedPixels pixels;
  std::vector<png_bytep> rows;  // [height]

  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_png_error(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder->message, sizeof decoder->message, "%s", message);
  png_longjmp(png, 1);
}

void on_png_warning(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep out, size_t n_bytes) {
  auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (n_bytes > decoder->rest.size()) {
    decoder->is_truncated = true;
    png_error(png, "truncated");
  }
  std::memcpy(out, decoder->rest.data(), n_bytes);
  decoder->rest = decoder->rest.subspan(n_bytes);
}

// Asks for RGB or RGBA of 8 bits. Like pillow, gamma and colour profiles are left alone.
bool read_png_header(PngDecoder& d) {
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  constexpr uint32_t kMaxChunkBytes = 8 << 20, kMaxChunks = 200;
  png_set_chunk_malloc_max(d.png, kMaxChunkBytes);
  png_set_chunk_cache_max(d.png, kMaxChunks);
  png_set_user_limits(d.png, 1 << 20, 1 << 20);
  png_set_read_fn(d.png, &d, read_png_bytes);
  png_read_info(d.png, d.info);
  const bool has_alpha =
      (png_get_color_type(d.png, d.info) & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(d.png, d.info, PNG_INFO_tRNS);
  d.pixels.width = int(png_get_image_width(d.png, d.info));
  d.pixels.height = int(png_get_image_height(d.png, d.info));
  d.pixels.n_channels = has_alpha ? 4 : 3;
  png_bytep exif = nullptr;
  png_uint_32 n_exif = 0;
  if (png_get_eXIf_1(d.png, d.info, &n_exif, &exif) != 0) d.pixels.orientation = exif_orientation({exif, n_exif});
  png_set_expand(d.png);
  png_set_strip_16(d.png);
  png_set_gray_to_rgb(d.png);
  png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  return true;
}

bool read_png_rows(PngDecoder& d) {
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  png_read_image(d.png, d.rows.data());
  return true;
}

}  // namespace

DecodedPixels decode_png(std::span<const uint8_t> file, const ImageLimits& limits) {
  PngDecoder d;
  d.rest = file;
  d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, on_png_error, on_png_warning);
  if (d.png != nullptr) d.info = png_create_info_struct(d.png);
  if (d.info == nullptr) throw std::bad_alloc();
  const auto check = [&](bool is_done) {
    if (is_done) return;
    if (d.is_truncated) fail_truncated_image("PNG");
    fail_damaged_image("PNG", d.message);
  };
  check(read_png_header(d));
  const size_t row_bytes = png_get_rowbytes(d.png, d.info);
  check_image_size(d.pixels.width, d.pixels.height, d.pixels.n_channels + 3, limits);
  if (row_bytes != size_t(d.pixels.width) * d.pixels.n_channels) fail_damaged_image("PNG", "rows of an unknown size");
  d.pixels.values.resize(row_bytes * d.pixels.height);
  d.rows.resize(d.pixels.height);
  for (int y = 0; y < d.pixels.height; ++y) d.rows[y] = d.pixels.values.data() + y * row_bytes;
  check(read_png_rows(d));
  return std::move(d.pixels);
}

}  // namespace ingot
