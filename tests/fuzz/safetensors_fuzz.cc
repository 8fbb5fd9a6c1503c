// Any bytes as a safetensors file: refused by Error, or accepted with every promise kept. Anything else (another
// exception, a sanitizer's report, a hang) is a finding.
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
