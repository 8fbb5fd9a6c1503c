// Writes the keys of a GGUF file that describe the model.
#pragma once
#include <string>
#include <utility>

#include "io/gguf/writer.h"

namespace ingot {

// Writes "<arch>.<key>".
class GgufKeyWriter {
 public:
  GgufKeyWriter(GgufWriter& writer, std::string prefix) : writer_(writer), prefix_(std::move(prefix) + ".") {}
  template <class T>
  void set(const char* key, const T& value) const {
    writer_.set(prefix_ + key, value);
  }
  void count(const char* key, int value) const { set(key, static_cast<uint32_t>(value)); }

 private:
  GgufWriter& writer_;
  const std::string prefix_;
};

}  // namespace ingot
