#include "cli/commands/npy.h"

#include <fmt/format.h>

#include <bit>
#include <vector>

#include "base/check.h"
#include "base/file.h"

namespace ingot {

// The format: magic, version, length of the header as a little-endian u16, header, data. Spaces pad the header to align
// the data to 64 bytes.
void write_npy(const std::string& path, std::span<const float> values, int64_t rows, int64_t cols) {
  static_assert(std::endian::native == std::endian::little);
  CHECK_EQ(static_cast<int64_t>(values.size()), rows * cols);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  constexpr size_t kFixed = 10;
  header.append(64 - (kFixed + header.size() + 1) % 64, ' ') += '\n';
  std::vector<uint8_t> bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<uint8_t>(header.size() & 0xFF),
                                static_cast<uint8_t>(header.size() >> 8)};
  bytes.insert(bytes.end(), header.begin(), header.end());
  const auto* data = reinterpret_cast<const uint8_t*>(values.data());
  bytes.insert(bytes.end(), data, data + values.size_bytes());
  write_file(path, bytes);
}

}  // namespace ingot
