// Coroutines for Asio. Clang 14 has only the coroutines of the technical specification, which looks for their names in
// std::experimental. So this header puts the names of <coroutine> there. Include this header before any header of
// Boost.Asio.
#pragma once
#if defined(__clang__) && __clang_major__ < 15 && !defined(__cpp_impl_coroutine)
#define __cpp_impl_coroutine 201902L
#endif
#include <coroutine>
#if defined(__clang__) && __clang_major__ < 15
#pragma clang diagnostic ignored "-Wdeprecated-experimental-coroutine"  // the warning describes the situation above
namespace std::experimental {
using std::coroutine_handle;
using std::coroutine_traits;
using std::noop_coroutine;
using std::suspend_always;
using std::suspend_never;
}  // namespace std::experimental
#endif
