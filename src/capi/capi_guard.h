// Helpers for the functions of the C API: `guarded` converts exceptions to status codes; others check arguments.
#pragma once
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "ingot/ingot.h"

namespace ingot {

inline std::string& last_error() {
  thread_local std::string message;
  return message;
}

template <class Body>
ingot_status guarded(Body&& body) noexcept {
  const auto failed = [](ingot_status status, const char* what) {
    try {
      last_error() = what;
    } catch (...) {
      last_error().clear();
    }
    return status;
  };
  try {
    return body();
  } catch (const Error& error) {
    return failed(INGOT_INVALID, error.what());
  } catch (const std::bad_alloc&) {
    return failed(INGOT_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(INGOT_INTERNAL, error.what());
  } catch (...) {
    return failed(INGOT_INTERNAL, "an exception that is not a std::exception");
  }
}

template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw Error("{} is NULL", name);
  return *pointer;
}

inline void check_range(const char* name, int value, int low, int high) {
  if (value < low || value > high) throw Error("{} is {}: it must be from {} to {}", name, value, low, high);
}

// Copies at most `capacity` elements of `from`, and sets *n to the size of `from`.
template <class T, class Container>
void copy_out(const Container& from, T* to, size_t capacity, size_t* n) {
  required(n, "n") = from.size();
  if (capacity > 0) std::copy_n(from.begin(), std::min(capacity, from.size()), &required(to, "the output"));
}

// Writes the defaults to the caller's struct, which may be from an older header (shorter) or a newer header (longer).
template <class Options>
void init_options(Options* options, size_t size, Options defaults) {
  if (options == nullptr || size < sizeof(size_t)) return;
  defaults.struct_size = size;
  std::memset(options, 0, size);
  std::memcpy(options, &defaults, std::min(size, sizeof(Options)));
}

// The defaults, overwritten with the fields of the caller's struct.
template <class Options>
Options options_of(const Options* given, void (*init)(Options*)) {
  Options options;
  init(&options);
  if (given == nullptr) return options;
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > 4096)
    throw Error("struct_size is {}: fill the options with their init function first", size);
  const char* bytes = reinterpret_cast<const char*>(given);
  if (size > sizeof(Options) && std::any_of(bytes + sizeof(Options), bytes + size, [](char byte) { return byte != 0; }))
    throw Error(
        "the program sets an option that this library does not have: the library is older than the program's header");
  std::memcpy(&options, given, std::min(size, sizeof(Options)));
  return options;
}

}  // namespace ingot
