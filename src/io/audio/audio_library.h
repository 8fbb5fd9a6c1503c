// The libraries for sound are opened at the first use, because they bring the codecs of many formats.
#pragma once
#include <initializer_list>

#include "base/error.h"
#include "base/shared_library.h"

namespace ingot {

inline void* first_library(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* library = open_library(name)) return library;
  return nullptr;
}

[[noreturn]] inline void miss_library(const char* name) {
  throw Error(
      "the audio cannot be read, because this machine has no {}: install it (Debian and Ubuntu: apt install "
      "libsndfile1 libsamplerate0)",
      name);
}

}  // namespace ingot

// Defines a struct with a member for each function of a list, which is a macro of a macro, and `is_found`. It is made
// from the names that the library may have.
#define INGOT_AUDIO_MEMBER(name) decltype(&::name) name = nullptr;
#define INGOT_AUDIO_FIND(name)                                                                            \
  name = library == nullptr ? nullptr : reinterpret_cast<decltype(&::name)>(function_of(library, #name)); \
  is_found = is_found && name != nullptr;
#define INGOT_AUDIO_LIBRARY(Name, FUNCTIONS)                  \
  struct Name {                                               \
    explicit Name(std::initializer_list<const char*> names) { \
      void* const library = first_library(names);             \
      FUNCTIONS(INGOT_AUDIO_FIND)                             \
    }                                                         \
    FUNCTIONS(INGOT_AUDIO_MEMBER)                             \
    bool is_found = true;                                     \
  };
