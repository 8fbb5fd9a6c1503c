// Any bytes as the file of an architecture. The file is refused by Error, or all its layers have known parts.
#include "io/walk.h"
#include "model/config/arch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    check_arch(JsonDocument::parse({reinterpret_cast<const char*>(data), size}, "arch.json"));
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
