// What every function of the C API is made of: a body in `guarded`, where exceptions become codes, and checks of what C
// passes.
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
    return failed(INGOT_INTERNAL, "an exception that is no std::exception");
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

// As much of `from` as there is room for, and how much there is.
template <class T, class Container>
void copy_out(const Container& from, T* to, size_t capacity, size_t* n) {
  required(n, "n") = from.size();
  if (capacity > 0) std::copy_n(from.begin(), std::min(capacity, from.size()), &required(to, "the output"));
}

// The caller's struct, as far as it goes, over the defaults.
template <class Options>
Options options_of(const Options* given, void (*init)(Options*)) {
  Options options;
  init(&options);
  if (given == nullptr) return options;
  if (given->struct_size < sizeof(size_t) || given->struct_size > 4096)
    throw Error("struct_size is {}: fill the options with their init function first", given->struct_size);
  std::memcpy(&options, given, std::min(given->struct_size, sizeof(Options)));
  return options;
}

}  // namespace ingot
