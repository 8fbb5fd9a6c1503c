// The two sweeps of small files: a cut at every place, and every byte changed to every value. A cut file is refused. A
// changed file is refused by Error, or read with all promises intact (`use` checks them). Any other result is a bug.
// Run the sweeps under a sanitizer.
#pragma once
#include <string>

#include "io/refused.h"

namespace ingot {

// use(bytes) reads the file, and throws Error if it refuses the file.
template <class Use>
void expect_cuts_refused(const std::string& whole, const Use& use) {
  EXPECT_NO_THROW(use(whole));
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_NE(refusal([&] { use(whole.substr(0, n)); }), "") << n << " of " << whole.size() << " bytes";
}

// Returns how many of the size * 256 files were refused. The others were read; they include the unchanged file once for
// each byte.
template <class Use>
size_t sweep_bytes(std::string bytes, const Use& use) {
  size_t n_refused = 0;
  for (char& byte : bytes) {
    const char original = byte;
    for (int value = 0; value < 256; ++value) {
      byte = static_cast<char>(value);
      try {
        use(bytes);
      } catch (const Error&) {
        ++n_refused;
        EXPECT_NE(value, static_cast<uint8_t>(original)) << "the file as it was is refused";
      }
    }
    byte = original;
  }
  return n_refused;
}

}  // namespace ingot
