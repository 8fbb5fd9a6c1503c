// Any bytes as a safetensors file. The file is refused by Error, or accepted with all promises kept. Any other result
// (another exception, a sanitizer's report, a hang) is a bug.
#include "io/walk_safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    walk(Safetensors::parse({data, size}, "fuzz.safetensors"));
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
