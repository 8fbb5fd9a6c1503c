// HEIF and AVIF by libheif, which is opened at the first use, because it brings the codecs of whole films. libheif
// turns the picture upright itself.
#include <libheif/heif.h>

#include <cstring>
#include <memory>

#include "base/library_functions.h"
#include "io/images/decoders.h"

namespace ingot {
namespace {

// clang-format off
#define INGOT_HEIF_FUNCTIONS(F) \
  F(heif_context_alloc) F(heif_context_free) F(heif_context_read_from_memory_without_copy) \
  F(heif_context_set_maximum_image_size_limit) F(heif_context_get_primary_image_handle) F(heif_image_handle_release) \
  F(heif_image_handle_get_width) F(heif_image_handle_get_height) F(heif_image_handle_has_alpha_channel) \
  F(heif_decode_image) F(heif_image_release) F(heif_image_get_width) F(heif_image_get_height) \
  F(heif_image_get_plane_readonly)
// clang-format on
INGOT_LIBRARY(LibHeif, INGOT_HEIF_FUNCTIONS)

const LibHeif& libheif() {
  static const LibHeif functions({"libheif.so.1", "libheif.1.dylib"});
  if (!functions.is_found)
    throw Error(
        "the image is a HEIF or AVIF file, which needs libheif, and this machine has none: send a JPEG or PNG file, or "
        "install libheif (Debian and Ubuntu: apt install libheif1)");
  return functions;
}

void check_heif(const heif_error& error) {
  if (error.code == heif_error_Ok) return;
  if (error.subcode == heif_suberror_End_of_data) fail_truncated_image("HEIF");
  fail_damaged_image("HEIF", error.message == nullptr ? "" : error.message);
}

template <class T>
using HeifPointer = std::unique_ptr<T, void (*)(const T*)>;

}  // namespace

DecodedPixels decode_heif(std::span<const uint8_t> file, const ImageLimits& limits) {
  // Planes of the codec, their conversion, and the result.
  constexpr uint64_t kHeifBytesPerPixel = 8 + 8 + 4;
  const LibHeif& heif = libheif();
  const std::unique_ptr<heif_context, decltype(heif.heif_context_free)> context(heif.heif_context_alloc(),
                                                                                heif.heif_context_free);
  if (context == nullptr) throw std::bad_alloc();
  heif.heif_context_set_maximum_image_size_limit(context.get(), 1 << 16);
  check_heif(heif.heif_context_read_from_memory_without_copy(context.get(), file.data(), file.size(), nullptr));

  heif_image_handle* handle = nullptr;
  check_heif(heif.heif_context_get_primary_image_handle(context.get(), &handle));
  const HeifPointer<heif_image_handle> frees_handle(handle, heif.heif_image_handle_release);
  const int expected_width = heif.heif_image_handle_get_width(handle),
            expected_height = heif.heif_image_handle_get_height(handle);
  if (expected_width < 1 || expected_height < 1) fail_damaged_image("HEIF", "it has no pixels");
  check_image_size(expected_width, expected_height, kHeifBytesPerPixel, limits);
  const int n_channels = heif.heif_image_handle_has_alpha_channel(handle) != 0 ? 4 : 3;

  heif_image* image = nullptr;
  check_heif(heif.heif_decode_image(handle, &image, heif_colorspace_RGB,
                                    n_channels == 4 ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB,
                                    nullptr));
  const HeifPointer<heif_image> frees_image(image, heif.heif_image_release);
  int stride = 0;
  const uint8_t* plane = heif.heif_image_get_plane_readonly(image, heif_channel_interleaved, &stride);
  const int width = heif.heif_image_get_width(image, heif_channel_interleaved);
  const int height = heif.heif_image_get_height(image, heif_channel_interleaved);
  if (plane == nullptr || width < 1 || height < 1 || stride < width * n_channels)
    fail_damaged_image("HEIF", "it has no pixels");
  check_image_size(width, height, kHeifBytesPerPixel, limits);
  DecodedPixels pixels{.width = width, .height = height, .n_channels = n_channels};
  const size_t row_bytes = size_t(width) * n_channels;
  pixels.values.resize(row_bytes * height);
  for (int y = 0; y < height; ++y)
    std::memcpy(pixels.values.data() + y * row_bytes, plane + size_t(y) * stride, row_bytes);
  return pixels;
}

}  // namespace ingot
