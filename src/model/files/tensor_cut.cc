// Cuts a tensor that TensorFinder found to the part that a rank has.
#include <cstring>

#include "base/error.h"
#include "model/files/tensor_finder.h"

namespace ingot {
namespace {

int64_t total(const std::vector<Range>& ranges) {
  int64_t n = 0;
  for (const Range& range : ranges) n += range.n;
  return n;
}

}  // namespace

bool TensorFinder::take_part(const std::optional<RankPart>& kept_part, HostTensor& host) {
  if (!kept_part) {
    if (!shapes_only_) release(host);
    return false;
  }
  HostTensor part = host;
  part.n_out = total(kept_part->rows), part.n_in = total(kept_part->columns);
  if (part.n_out == host.n_out && part.n_in == host.n_in) return true;
  const int64_t block = info(host.format).block_size;
  for (const Range& columns : kept_part->columns) CHECK(columns.first % block == 0 && columns.n % block == 0);
  const size_t row_size = row_bytes(host.format, host.n_in), part_size = row_bytes(host.format, part.n_in);
  part.file_bytes =
      static_cast<size_t>(static_cast<double>(host.file_bytes) * static_cast<double>(part.n_out * part.n_in) /
                          static_cast<double>(host.n_out * host.n_in));
  if (!shapes_only_ && kept_part->rows.size() == 1 && part.n_in == host.n_in &&
      !is_own(host)) {  // neighbouring rows of a file
    part.whole = host.whole != nullptr ? host.whole : host.data;
    part.data = host.data + static_cast<size_t>(kept_part->rows.front().first) * row_size;
  } else if (!shapes_only_) {
    std::vector<uint8_t> bytes(static_cast<size_t>(part.n_out) * part_size);
    uint8_t* to = bytes.data();
    for (const Range& rows : kept_part->rows)
      for (int64_t i = rows.first; i < rows.first + rows.n; ++i)
        for (const Range& columns : kept_part->columns) {
          const size_t n = row_bytes(host.format, columns.n);
          std::memcpy(to, host.data + static_cast<size_t>(i) * row_size + row_bytes(host.format, columns.first), n);
          to += n;
        }
    release(host);
    part = own(part, std::move(bytes));
  }
  host = part;
  return true;
}

}  // namespace ingot
