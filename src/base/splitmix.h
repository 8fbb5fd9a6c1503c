// SplitMix64 (Steele, Lea and Flood 2014): the finaliser, which mixes the bits of a word, and the counter's step. For
// hashes and for streams of random words; not safe against deliberate collisions.
#pragma once
#include <cstdint>

namespace ingot {

inline constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio, odd

constexpr uint64_t splitmix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace ingot
