#include "io/images/decode.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/images/decoders.h"
#include "io/sniff.h"

namespace ingot {
namespace {

using Bytes = std::span<const uint8_t>;

bool has_at(Bytes file, size_t offset, std::string_view text) {
  return file.size() >= offset + text.size() && std::memcmp(file.data() + offset, text.data(), text.size()) == 0;
}

bool is_jpeg(Bytes file) { return has_at(file, 0, "\xFF\xD8\xFF"); }
bool is_png(Bytes file) { return has_at(file, 0, "\x89PNG\r\n\x1A\n"); }
bool is_webp(Bytes file) { return has_at(file, 0, "RIFF") && has_at(file, 8, "WEBP"); }
bool is_gif(Bytes file) { return has_at(file, 0, "GIF87a") || has_at(file, 0, "GIF89a"); }
bool is_heif(Bytes file) {
  if (!has_at(file, 4, "ftyp")) return false;
  for (const char* brand : {"heic", "heix", "heim", "heis", "mif1", "msf1", "avif", "avis"})
    if (has_at(file, 8, brand)) return true;
  return false;
}
bool is_tiff(Bytes file) { return has_at(file, 0, {"II*\0", 4}) || has_at(file, 0, {"MM\0*", 4}); }
bool is_bmp(Bytes file) { return has_at(file, 0, "BM") && has_at(file, 6, {"\0\0\0\0", 4}); }
bool is_jpeg_xl(Bytes file) { return has_at(file, 0, "\xFF\x0A") || has_at(file, 4, "JXL \r\n"); }
bool is_jpeg_2000(Bytes file) { return has_at(file, 4, "jP  \r\n"); }
bool is_pdf(Bytes file) { return has_at(file, 0, "%PDF"); }
bool is_svg(Bytes file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 1024));
  return head.find("<svg") != head.npos;
}

struct ImageFormat {
  const char* name;
  bool (*matches)(Bytes file);
  DecodedPixels (*decode)(Bytes file, const ImageLimits& limits);  // null: this program does not read the format
};

// cmake/images.cmake sets the macros: a decoder exists where its library was found.
constexpr ImageFormat kImageFormats[] = {
    {"JPEG", is_jpeg, INGOT_IMAGES_JPEG},
    {"PNG", is_png, INGOT_IMAGES_PNG},
    {"WebP", is_webp, INGOT_IMAGES_WEBP},
    {"GIF", is_gif, INGOT_IMAGES_GIF},
    {"HEIF or AVIF", is_heif, INGOT_IMAGES_HEIF},
    {"TIFF", is_tiff, nullptr},
    {"BMP", is_bmp, nullptr},
    {"JPEG XL", is_jpeg_xl, nullptr},
    {"JPEG 2000", is_jpeg_2000, nullptr},
    {"PDF", is_pdf, nullptr},
    {"SVG", is_svg, nullptr},
};

// Removes alpha in place: each pixel is laid over white, rounded as pillow's alpha_composite() over an opaque picture.
void lay_over_white(DecodedPixels& pixels) {
  const size_t n = size_t(pixels.width) * pixels.height;
  uint8_t* out = pixels.values.data();
  const uint8_t* in = pixels.values.data();
  for (size_t i = 0; i < n; ++i, in += 4, out += 3) {
    const unsigned alpha = in[3];
    for (int c = 0; c < 3; ++c) {
      const unsigned sum = in[c] * alpha + 255 * (255 - alpha) + 128;
      out[c] = uint8_t((sum + (sum >> 8)) >> 8);
    }
  }
  pixels.values.resize(n * 3);
  pixels.values.shrink_to_fit();
  pixels.n_channels = 3;
}

// Turns the picture upright. The pixel (x, y) of the result is read at (x0 + x*xx + y*yx, y0 + x*xy + y*yy).
Picture turn_upright(DecodedPixels pixels) {
  const int w = pixels.width, h = pixels.height, o = pixels.orientation;
  if (o <= 1 || o > 8) return {w, h, std::move(pixels.values)};
  const bool swaps = o >= 5;
  Picture out{swaps ? h : w, swaps ? w : h, std::vector<uint8_t>(pixels.values.size())};
  const bool flips_x = o == 2 || o == 3 || o == 7 || o == 8;  // in the file's axes
  const bool flips_y = o == 3 || o == 4 || o == 6 || o == 7;
  uint8_t* to = out.rgb.data();
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x, to += 3) {
      const int file_x = swaps ? y : x, file_y = swaps ? x : y;
      const size_t at = size_t(flips_y ? h - 1 - file_y : file_y) * w + (flips_x ? w - 1 - file_x : file_x);
      std::memcpy(to, pixels.values.data() + at * 3, 3);
    }
  return out;
}

}  // namespace

void check_image_size(uint64_t width, uint64_t height, uint64_t bytes_per_pixel, const ImageLimits& limits) {
  constexpr uint64_t kMaxImageSide = 1 << 20;
  if (width == 0 || height == 0) throw Error("the image is empty: it has {} x {} pixels", width, height);
  if (width > kMaxImageSide || height > kMaxImageSide || width * height > limits.max_pixels)
    throw Error("the image has {} x {} pixels; the limit is {} pixels: send a smaller one", width, height,
                limits.max_pixels);
  if (width * height * bytes_per_pixel > limits.max_memory)
    throw Error("the image has {} x {} pixels and needs {} bytes to decode; the limit is {}: send a smaller one", width,
                height, width * height * bytes_per_pixel, limits.max_memory);
}

void fail_damaged_image(const char* format, std::string_view why) {
  if (why.empty()) throw Error("the image is a damaged {} file", format);
  throw Error("the image is a damaged {} file: {}", format, printable(why, 120));
}

void fail_truncated_image(const char* format) {
  throw Error("the image is a truncated {} file: its end is missing", format);
}

bool is_image(std::span<const std::byte> file) {
  const Bytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  return std::ranges::any_of(kImageFormats, [&](const ImageFormat& format) { return format.matches(bytes); });
}

std::string image_formats() {
  std::vector<std::string> names;
  for (const ImageFormat& format : kImageFormats)
    if (format.decode != nullptr) names.emplace_back(format.name);
  if (names.empty()) return "no format";
  std::string text = names[0];
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

Picture decode_image(std::span<const std::byte> file, const ImageLimits& limits) {
  const Bytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  if (bytes.empty()) throw Error("the image is empty: it has no bytes");
  if (bytes.size() > limits.max_bytes)
    throw Error("the image has {} bytes; the limit is {}: send a smaller one", bytes.size(), limits.max_bytes);
  for (const ImageFormat& format : kImageFormats) {
    if (!format.matches(bytes)) continue;
    if (format.decode == nullptr)
      throw Error("the image is a {} file; this program reads {}", format.name, image_formats());
    DecodedPixels pixels = format.decode(bytes, limits);
    if (pixels.n_channels == 4) lay_over_white(pixels);
    return turn_upright(std::move(pixels));
  }
  throw Error("the image is {}; this program reads {}",
              describe_file(bytes.first(std::min<size_t>(bytes.size(), 512)), bytes.size()), image_formats());
}

}  // namespace ingot
