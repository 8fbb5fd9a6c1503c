// Philox4x32-10, a counter-based random generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). The draw for a token depends only on the request's seed and the token's position, so batches, chunks and
// preemption cannot change the draw. Host and device code share this header.
#pragma once
#include <cstdint>

#include "base/half.h"  // INGOT_HD

namespace ingot {

struct PhiloxBlock {
  uint32_t word[4];
};

INGOT_HD PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1), with all 53 bits of a double. `stream` separates several draws at one position.
INGOT_HD double uniform_draw(uint64_t seed, uint64_t position, uint32_t stream = 0) {
  const PhiloxBlock counter{{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, 0}};
  const PhiloxBlock random = philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (static_cast<uint64_t>(random.word[0]) << 32) | random.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace ingot
