// HEIF and AVIF by libheif, which is opened at the first use, because it brings the codecs of whole films. libheif
// turns the picture upright itself.
#include <libheif/heif.h>

#include <cstring>
#include <memory>

#include "base/shared_library.h"
#include "io/images/decoders.h"

namespace ingot {
namespace {

// clang-format off
#define INGOT_HEIF_FUNCTIONS(F) \
  F(context_alloc) F(context_free) F(context_read_from_memory_without_copy) F(context_set_maximum_image_size_limit) \
  F(context_get_primary_image_handle) F(image_handle_release) F(image_handle_get_width) F(image_handle_get_height) \
  F(image_handle_has_alpha_channel) F(decode_image) F(image_release) F(image_get_width) F(image_get_height) \
  F(image_get_plane_readonly)
// clang-format on

// context_alloc is heif_context_alloc, and so on.
struct LibHeif {
#define INGOT_HEIF_MEMBER(name) decltype(&::heif_##name) name = nullptr;
  INGOT_HEIF_FUNCTIONS(INGOT_HEIF_MEMBER)
#undef INGOT_HEIF_MEMBER
  bool is_complete = true;
};

LibHeif open_libheif() {
  LibHeif functions;
  void* library = nullptr;
  for (const char* name : {"libheif.so.1", "libheif.1.dylib"})
    if (library == nullptr) library = open_library(name);
#define INGOT_HEIF_FIND(f)                                                                                      \
  functions.f =                                                                                                 \
      library == nullptr ? nullptr : reinterpret_cast<decltype(functions.f)>(function_of(library, "heif_" #f)); \
  functions.is_complete = functions.is_complete && functions.f != nullptr;
  INGOT_HEIF_FUNCTIONS(INGOT_HEIF_FIND)
#undef INGOT_HEIF_FIND
  return functions;
}

const LibHeif& libheif() {
  static const LibHeif functions = open_libheif();
  if (!functions.is_complete)
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
  const std::unique_ptr<heif_context, decltype(heif.context_free)> context(heif.context_alloc(), heif.context_free);
  if (context == nullptr) throw std::bad_alloc();
  heif.context_set_maximum_image_size_limit(context.get(), 1 << 16);
  check_heif(heif.context_read_from_memory_without_copy(context.get(), file.data(), file.size(), nullptr));

  heif_image_handle* handle = nullptr;
  check_heif(heif.context_get_primary_image_handle(context.get(), &handle));
  const HeifPointer<heif_image_handle> frees_handle(handle, heif.image_handle_release);
  const int expected_width = heif.image_handle_get_width(handle),
            expected_height = heif.image_handle_get_height(handle);
  if (expected_width < 1 || expected_height < 1) fail_damaged_image("HEIF", "it has no pixels");
  check_image_size(expected_width, expected_height, kHeifBytesPerPixel, limits);
  const int n_channels = heif.image_handle_has_alpha_channel(handle) != 0 ? 4 : 3;

  heif_image* image = nullptr;
  check_heif(heif.decode_image(handle, &image, heif_colorspace_RGB,
                               n_channels == 4 ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, nullptr));
  const HeifPointer<heif_image> frees_image(image, heif.image_release);
  int stride = 0;
  const uint8_t* plane = heif.image_get_plane_readonly(image, heif_channel_interleaved, &stride);
  const int width = heif.image_get_width(image, heif_channel_interleaved);
  const int height = heif.image_get_height(image, heif_channel_interleaved);
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
