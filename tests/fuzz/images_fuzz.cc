// Any bytes as an image. The image is refused by Error, or becomes a picture whose size and pixels agree. Any other
// result (another exception, a sanitizer's report, a hang) is a bug.
#include "io/images/decode.h"
#include "io/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  const ImageLimits limits{.max_bytes = 1 << 20, .max_pixels = 1 << 20, .max_memory = 64 << 20};
  try {
    const Picture picture = decode_image(std::as_bytes(std::span(data, size)), limits);
    ensure(picture.width > 0 && picture.height > 0, "a picture has pixels");
    ensure(uint64_t(picture.width) * picture.height <= limits.max_pixels, "a picture keeps to the limit");
    ensure(picture.rgb.size() == size_t(picture.width) * picture.height * 3, "a picture has all its pixels");
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
