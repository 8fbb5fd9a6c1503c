// The sounds of tools/goldens/make_speech.py and make_ears.py, which a formula makes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot {

// Noise whose loudness changes, with a square wave.
inline std::vector<float> golden_sound(size_t n, uint32_t seed = 1) {
  std::vector<float> samples;
  uint32_t state = seed;
  for (size_t i = 0; i < n; ++i) {
    state = (state * 1103515245u + 12345u) & 0x7FFFFFFFu;
    const double noise = static_cast<double>((state >> 8) % 4096) / 4096 - 0.5;
    const double loudness = static_cast<double>(1 + i / 2400 % 5) / 16;
    const double wave = i / (20 + i / 4800 % 7 * 8) % 2 != 0 ? 0.25 : -0.25;
    samples.push_back(static_cast<float>(loudness * (noise + wave)));
  }
  return samples;
}

}  // namespace ingot
