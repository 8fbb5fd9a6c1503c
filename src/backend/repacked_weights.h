// RepackedWeights: what a backend says where weights take other room on its device than in files, before any is loaded.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace ingot {

class RepackedWeights {
 public:
  virtual ~RepackedWeights() = default;
  virtual size_t packed_bytes(Format format, int64_t n_elements) const = 0;
};

}  // namespace ingot
