// The functions of a library that is opened at run time, as a struct with a member for each.
#pragma once
#include <initializer_list>

#include "base/shared_library.h"

namespace ingot {

// The first of these libraries that this machine has; null: none.
inline void* first_library(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* library = open_library(name)) return library;
  return nullptr;
}

}  // namespace ingot

// Defines struct Name with the functions of a list, which is a macro of a macro, and `is_found`: whether a library has
// all of them. It is made from the names that the library may have.
#define INGOT_LIBRARY_MEMBER(name) decltype(&::name) name = nullptr;
#define INGOT_LIBRARY_FIND(name)                                                                          \
  name = library == nullptr ? nullptr : reinterpret_cast<decltype(&::name)>(function_of(library, #name)); \
  is_found = is_found && name != nullptr;
#define INGOT_LIBRARY(Name, FUNCTIONS)                        \
  struct Name {                                               \
    explicit Name(std::initializer_list<const char*> names) { \
      void* const library = first_library(names);             \
      FUNCTIONS(INGOT_LIBRARY_FIND)                           \
    }                                                         \
    FUNCTIONS(INGOT_LIBRARY_MEMBER)                           \
    bool is_found = true;                                     \
  };
