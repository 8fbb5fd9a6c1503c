// Random numbers for the libstdc++ that wheels contain: its std::random_device calls arc4random, which glibc has only
// since 2.36. With this definition the wheel runs on glibc 2.34.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() {
  uint32_t value = 0;
  if (getentropy(&value, sizeof value) != 0) std::abort();  // as arc4random: there is no way to report it
  return value;
}
