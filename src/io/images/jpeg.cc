// JPEG by libjpeg-turbo. The library reports errors through longjmp(), so functions with setjmp() have no objects with
// destructors: everything that must be freed is in JpegDecoder, outside.
#include <csetjmp>
#include <cstdio>
#include <cstring>
// after cstdio, which jpeglib.h needs
#include <jerror.h>
#include <jpeglib.h>

#include "io/images/decoders.h"

namespace ingot {
namespace {

constexpr int kMaxJpegScans = 500;  // a progressive file of some kilobytes may ask for work without end

struct JpegDecoder {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf failed;
  char message[JMSG_LENGTH_MAX] = {};
  bool is_truncated = false;
  std::vector<uint8_t> row;  // [width, 4] of a CMYK picture
  DecodedPixels pixels;

  ~JpegDecoder() { jpeg_destroy_decompress(&info); }
};

[[noreturn]] void on_jpeg_error(j_common_ptr info) {
  auto* decoder = static_cast<JpegDecoder*>(info->client_data);
  info->err->format_message(info, decoder->message);
  decoder->is_truncated = info->err->msg_code == JERR_INPUT_EOF || info->err->msg_code == JWRN_JPEG_EOF;
  std::longjmp(decoder->failed, 1);
}

void on_jpeg_message(j_common_ptr info, int level) {
  // The library would fill the missing part with grey.
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) on_jpeg_error(info);
}

void on_jpeg_progress(j_common_ptr info) {
  auto* decoder = static_cast<JpegDecoder*>(info->client_data);
  if (decoder->info.input_scan_number <= kMaxJpegScans) return;
  std::snprintf(decoder->message, sizeof decoder->message, "more than %d scans", kMaxJpegScans);
  std::longjmp(decoder->failed, 1);
}

// Steps of decoding; false after an error.
bool read_jpeg_header(JpegDecoder& d, std::span<const uint8_t> file) {
  if (setjmp(d.failed) != 0) return false;
  jpeg_create_decompress(&d.info);
  d.info.client_data = &d;
  d.info.progress = &d.progress;
  jpeg_mem_src(&d.info, file.data(), file.size());
  jpeg_save_markers(&d.info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&d.info, TRUE);
  d.info.out_color_space = d.info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  return true;
}

// One row of CMYK as pillow converts it. Adobe's files have inverted values.
void cmyk_to_rgb(const uint8_t* in, uint8_t* out, int width, bool is_inverted) {
  for (int x = 0; x < width; ++x, in += 4, out += 3)
    for (int c = 0; c < 3; ++c) {
      const int ink = is_inverted ? 255 - in[c] : in[c], light = is_inverted ? in[3] : 255 - in[3];
      const int product = ink * light + 128;
      out[c] = uint8_t(light - ((product + (product >> 8)) >> 8));
    }
}

bool read_jpeg_rows(JpegDecoder& d) {
  if (setjmp(d.failed) != 0) return false;
  const bool is_cmyk = d.info.out_color_space == JCS_CMYK;
  jpeg_start_decompress(&d.info);
  while (d.info.output_scanline < d.info.output_height) {
    uint8_t* out = d.pixels.values.data() + size_t(d.info.output_scanline) * d.pixels.width * 3;
    JSAMPROW row = is_cmyk ? d.row.data() : out;
    jpeg_read_scanlines(&d.info, &row, 1);
    if (is_cmyk) cmyk_to_rgb(row, out, d.pixels.width, d.info.saw_Adobe_marker != 0);
  }
  return true;
}

// Bytes for each pixel beside the result: a progressive file keeps the coefficients of the whole picture.
uint64_t bytes_of_coefficients(const jpeg_decompress_struct& info) {
  if (!jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&info))) return 0;
  uint64_t n = 0;
  for (int i = 0; i < info.num_components; ++i)
    n += uint64_t(info.comp_info[i].width_in_blocks) * info.comp_info[i].height_in_blocks * DCTSIZE2 * sizeof(JCOEF);
  const uint64_t n_pixels = std::max<uint64_t>(1, uint64_t(info.image_width) * info.image_height);
  return (n + n_pixels - 1) / n_pixels;
}

}  // namespace

DecodedPixels decode_jpeg(std::span<const uint8_t> file, const ImageLimits& limits) {
  JpegDecoder d;
  d.info.err = jpeg_std_error(&d.errors);
  d.info.client_data = &d;
  d.errors.error_exit = on_jpeg_error;
  d.errors.emit_message = on_jpeg_message;
  d.progress.progress_monitor = on_jpeg_progress;
  const auto check = [&](bool is_done) {
    if (is_done) return;
    if (d.is_truncated) fail_truncated_image("JPEG");
    fail_damaged_image("JPEG", d.message);
  };
  check(read_jpeg_header(d, file));
  check_image_size(d.info.image_width, d.info.image_height, 6 + bytes_of_coefficients(d.info), limits);
  d.pixels.width = int(d.info.image_width);
  d.pixels.height = int(d.info.image_height);
  d.pixels.values.resize(size_t(d.pixels.width) * d.pixels.height * 3);
  if (d.info.out_color_space == JCS_CMYK) d.row.resize(size_t(d.pixels.width) * 4);
  for (auto* marker = d.info.marker_list; marker != nullptr; marker = marker->next)
    if (marker->data_length >= 6 && std::memcmp(marker->data, "Exif\0", 6) == 0) {
      d.pixels.orientation = exif_orientation({marker->data, marker->data_length});
      break;
    }
  check(read_jpeg_rows(d));
  return std::move(d.pixels);
}

}  // namespace ingot
