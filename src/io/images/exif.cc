// The one field of EXIF that changes pixels. EXIF is a TIFF file: a header with the byte order, then a list of entries
// of 12 bytes. Orientation is entry 0x0112 of the first list.
#include <optional>

#include "io/images/decoders.h"

namespace ingot {
namespace {

class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes) : bytes_(bytes), is_big_(bytes.size() > 1 && bytes[0] == 'M') {}

  std::optional<uint32_t> read(uint64_t offset, int n_bytes) const {
    if (offset + n_bytes > bytes_.size()) return std::nullopt;
    uint32_t value = 0;
    for (int i = 0; i < n_bytes; ++i) value = value << 8 | bytes_[offset + (is_big_ ? i : n_bytes - 1 - i)];
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool is_big_;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> exif) {
  constexpr uint32_t kOrientationTag = 0x0112, kShortType = 3;
  if (exif.size() >= 6 && exif[0] == 'E' && exif[1] == 'x' && exif[4] == 0) exif = exif.subspan(6);
  if (exif.size() < 8 || exif[0] != exif[1] || (exif[0] != 'I' && exif[0] != 'M')) return 1;
  const TiffReader tiff(exif);
  if (tiff.read(2, 2) != 42u) return 1;
  const uint64_t list = *tiff.read(4, 4);
  const auto n_entries = tiff.read(list, 2);
  if (!n_entries) return 1;
  for (uint64_t i = 0; i < *n_entries; ++i) {
    const uint64_t entry = list + 2 + 12 * i;
    const auto tag = tiff.read(entry, 2), type = tiff.read(entry + 2, 2), value = tiff.read(entry + 8, 2);
    if (!tag || !type || !value) return 1;
    if (*tag == kOrientationTag) return *type == kShortType && *value >= 1 && *value <= 8 ? int(*value) : 1;
  }
  return 1;
}

}  // namespace ingot
