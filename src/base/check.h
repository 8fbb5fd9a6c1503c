// CHECK: an assertion that is always on. A failure is a bug in ingot: CHECK prints the values and aborts. An error in a
// file, a request or the user's input throws Error instead.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace ingot::detail {

[[noreturn]] inline void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "ingot: %s:%d: CHECK failed: %s%s\nThis is a bug in ingot; please report it.\n", file, line,
               expression, values.c_str());
  std::abort();
}

template <class A, class B>
std::string check_values(const A& a, const B& b) {
  std::ostringstream out;
  out << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace ingot::detail

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::ingot::detail::check_failed(__FILE__, __LINE__, #condition, "");                     \
  } while (0)

#define INGOT_CHECK_OP(a, op, b)                                                             \
  do {                                                                                       \
    const auto& check_a = (a);                                                               \
    const auto& check_b = (b);                                                               \
    if (!(check_a op check_b)) [[unlikely]]                                                  \
      ::ingot::detail::check_failed(__FILE__, __LINE__, #a " " #op " " #b,                   \
                                    ::ingot::detail::check_values(check_a, check_b));        \
  } while (0)

#define CHECK_EQ(a, b) INGOT_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) INGOT_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) INGOT_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) INGOT_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) INGOT_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) INGOT_CHECK_OP(a, >=, b)
