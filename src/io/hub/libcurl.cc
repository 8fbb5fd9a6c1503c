#include "io/hub/libcurl.h"

#include "base/error.h"
#include "base/shared_library.h"

namespace ingot {
namespace {

#ifdef _WIN32
constexpr const char* kLibraries[] = {""};
#else
// Both names have the same functions. Debian's second library uses GnuTLS.
constexpr const char* kLibraries[] = {"", "libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};
#endif

bool has_all(LibCurl& functions, [[maybe_unused]] const char* name) {
#ifdef _WIN32
#define INGOT_CURL_FIND(f) functions.f = &::curl_##f;
  INGOT_CURL_FUNCTIONS(INGOT_CURL_FIND)
  return true;
#else
  void* library = open_library(name);
  bool all = library != nullptr;
#define INGOT_CURL_FIND(f) \
  all = all && (functions.f = reinterpret_cast<decltype(functions.f)>(function_of(library, "curl_" #f))) != nullptr;
  INGOT_CURL_FUNCTIONS(INGOT_CURL_FIND)
  return all;
#endif
#undef INGOT_CURL_FIND
}

}  // namespace

LibCurl open_libcurl(std::span<const char* const> names) {
  for (const char* name : names)
    if (LibCurl functions; has_all(functions, name)) return functions;
  throw Error(
      "downloads and load tests need libcurl 7.66 or newer, and this machine has none: install it (Debian and Ubuntu: "
      "apt install libcurl4, Fedora: dnf install libcurl), or download the model elsewhere and name its file");
}

const LibCurl& libcurl() {
  static const LibCurl functions = [] {
    LibCurl found = open_libcurl(kLibraries);
    if (const CURLcode code = found.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
      throw Error("libcurl cannot start: {}", found.easy_strerror(code));
    return found;
  }();
  return functions;
}

}  // namespace ingot
