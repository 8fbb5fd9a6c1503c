// Sound files in memory, as their formats define them.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

namespace ingot {

template <class T>
std::string little(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

struct WavShape {
  int rate = 16000, n_channels = 1, bits = 16;
  bool is_float = false;
  uint32_t stated_bytes = 0;  // of the data; 0: as many as there are
};

// A RIFF WAVE file of samples from -1 to 1: [n, n_channels].
inline std::string wav_bytes(const std::vector<double>& samples, const WavShape& s = {}) {
  std::string data;
  for (const double x : samples) {
    if (s.is_float) {
      data += s.bits == 32 ? little(static_cast<float>(x)) : little(x);
    } else if (s.bits == 8) {
      data += little(static_cast<uint8_t>(std::lround(x * 127) + 128));
    } else {
      const auto value = static_cast<int64_t>(std::llround(x * (std::pow(2.0, s.bits - 1) - 1)));
      data += little(value).substr(0, static_cast<size_t>(s.bits) / 8);
    }
  }
  const int frame = s.n_channels * s.bits / 8;
  const std::string format =
      little<uint16_t>(s.is_float ? 3 : 1) + little<uint16_t>(static_cast<uint16_t>(s.n_channels)) +
      little<uint32_t>(static_cast<uint32_t>(s.rate)) + little<uint32_t>(static_cast<uint32_t>(s.rate * frame)) +
      little<uint16_t>(static_cast<uint16_t>(frame)) + little<uint16_t>(static_cast<uint16_t>(s.bits));
  const auto n = s.stated_bytes > 0 ? s.stated_bytes : static_cast<uint32_t>(data.size());
  return "RIFF" + little(static_cast<uint32_t>(36 + n)) + "WAVEfmt " + little<uint32_t>(16) + format + "data" +
         little(n) + data;
}

// One channel of a tone.
inline std::vector<double> tone(double hertz, int rate, double seconds, double loudness = 0.5) {
  std::vector<double> samples(static_cast<size_t>(seconds * rate));
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = loudness * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / rate);
  return samples;
}

}  // namespace ingot
