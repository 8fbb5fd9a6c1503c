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

template <class A, class B, class Holds>
constexpr void check_op(const A& a, const B& b, Holds holds, const char* file, int line, const char* condition) {
  if (!holds(a, b)) [[unlikely]]
    check_failed(file, line, condition, check_values(a, b));
}

}  // namespace ingot::detail

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::ingot::detail::check_failed(__FILE__, __LINE__, #condition, "");                     \
  } while (0)

// The call keeps temporaries of both expressions alive. References to their results would not: std::max(f(), g()).
#define INGOT_CHECK_OP(a, op, b)                                                                             \
  ::ingot::detail::check_op((a), (b), [](const auto& left, const auto& right) { return left op right; },     \
                            __FILE__, __LINE__, #a " " #op " " #b)

#define CHECK_EQ(a, b) INGOT_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) INGOT_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) INGOT_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) INGOT_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) INGOT_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) INGOT_CHECK_OP(a, >=, b)
