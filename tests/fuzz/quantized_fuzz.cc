// A line of config.json, followed by a safetensors file. The input is refused by Error, or every quantized matrix is
// gathered into blocks that decode. Any other result (another exception, a sanitizer's report, a hang) is a bug.
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
