// The tiny models that hear of tests/data/ears (tools/goldens/make_ears.py).
#pragma once
#include <bit>

#include "model/loader.h"
#include "model/speech/golden_sound.h"
#include "model/vision/vision_goldens.h"

namespace ingot {

inline const fs::path kEarModels = fs::path(INGOT_TEST_DATA) / "ears";

inline nlohmann::json ear_golden(const std::string& name) {
  return nlohmann::json::parse(read_file((kEarModels / name / "goldens.json").string()));
}

// A WAV file of 32-bit floats, one channel, 16,000 samples a second: decoding changes no sample.
inline std::vector<std::byte> float_wav(const std::vector<float>& samples) {
  std::vector<std::byte> bytes;
  const auto text = [&](std::string_view s) {
    for (const char c : s) bytes.push_back(static_cast<std::byte>(c));
  };
  const auto number = [&](uint32_t value, int n) {
    for (int i = 0; i < n; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  const auto n_data = static_cast<uint32_t>(samples.size() * 4);
  text("RIFF"), number(36 + n_data, 4), text("WAVEfmt "), number(16, 4);
  number(3, 2), number(1, 2), number(kSpeechRate, 4), number(kSpeechRate * 4, 4), number(4, 2), number(32, 2);
  text("data"), number(n_data, 4);
  for (const float sample : samples) number(std::bit_cast<uint32_t>(sample), 4);
  return bytes;
}

inline MediaFile golden_recording(size_t n, uint32_t seed) {
  return {.bytes = std::make_shared<const std::vector<std::byte>>(float_wav(golden_sound(n, seed))),
          .kind = MediaKind::kSound,
          .where = fmt::format("sound {}", seed)};
}

// The recordings of a prompt of goldens.json.
inline std::vector<PreparedMedia> prepared_sounds(const Sense& ears, const nlohmann::json& prompt) {
  std::vector<PreparedMedia> sounds;
  for (const auto& sound : prompt["sounds"])
    sounds.push_back(ears.prepare(golden_recording(sound[0], sound[1]), {}, sound.dump()));
  return sounds;
}

// As allowed_error(), with more for the cpu backend: the norms between the matrices of a projector magnify rounding.
inline double allowed_ear_error(const std::string& device) { return device == "ref" ? 1e-4 : 6e-2; }

// The voxtral checkpoint with the ears of its directory, or of the mmproj file beside it.
inline LoadedModel load_voxtral(const std::string& device, bool is_gguf) {
  return load_vision(kEarModels / "voxtral", device, is_gguf);
}

}  // namespace ingot
