// CTranslate2's model.bin in memory.
#pragma once
#include <string>
#include <vector>

#include "io/audio_bytes.h"

namespace ingot {

inline std::string ct2_name(const std::string& name) {
  return little(static_cast<uint16_t>(name.size() + 1)) + name + std::string(1, '\0');
}

// type: 0 float32, 1 int8, 2 int16, 3 int32, 4 float16, 5 bfloat16.
inline std::string ct2_variable(const std::string& name, const std::vector<uint32_t>& shape, uint8_t type,
                                const std::string& data) {
  std::string bytes = ct2_name(name) + little(static_cast<uint8_t>(shape.size()));
  for (const uint32_t size : shape) bytes += little(size);
  return bytes + little(type) + little(static_cast<uint32_t>(data.size())) + data;
}

inline std::string ct2_model(const std::vector<std::string>& variables, const std::string& spec = "WhisperSpec",
                             const std::vector<std::pair<std::string, std::string>>& aliases = {}) {
  std::string bytes =
      little<uint32_t>(6) + ct2_name(spec) + little<uint32_t>(3) + little(static_cast<uint32_t>(variables.size()));
  for (const std::string& variable : variables) bytes += variable;
  bytes += little(static_cast<uint32_t>(aliases.size()));
  for (const auto& [alias, of] : aliases) bytes += ct2_name(alias) + ct2_name(of);
  return bytes;
}

}  // namespace ingot
