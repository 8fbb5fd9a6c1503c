// A line of config.json and, after it, a safetensors file: refused by Error, or every quantized matrix gathered into
// blocks that decode. Anything else (another exception, a sanitizer's report, a hang) is a finding.
#include "io/quantized_fixtures.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), size);
  try {
    use_quantized(text.substr(std::min(line + 1, size)), text.substr(0, line));
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
