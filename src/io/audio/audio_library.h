// What libsndfile and libsamplerate have in common: they are opened at the first use, because they bring the codecs of
// many formats.
#pragma once
#include "base/error.h"
#include "base/library_functions.h"

namespace ingot {

[[noreturn]] inline void miss_library(const char* name) {
  throw Error(
      "the audio cannot be read, because this machine has no {}: install it (Debian and Ubuntu: apt install "
      "libsndfile1 libsamplerate0)",
      name);
}

}  // namespace ingot
