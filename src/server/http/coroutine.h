// Coroutines for Asio. Clang 14 has them only as the technical specification's, which looks for them in
// std::experimental, so there the names of <coroutine> are put where it looks. To be included before anything of
// Boost.Asio.
#pragma once
#if defined(__clang__) && __clang_major__ < 15 && !defined(__cpp_impl_coroutine)
#define __cpp_impl_coroutine 201902L
#endif
#include <coroutine>
#if defined(__clang__) && __clang_major__ < 15
#pragma clang diagnostic ignored "-Wdeprecated-experimental-coroutine"  // which says what is said above
namespace std::experimental {
using std::coroutine_handle;
using std::coroutine_traits;
using std::noop_coroutine;
using std::suspend_always;
using std::suspend_never;
}  // namespace std::experimental
#endif
