// libcurl, opened at the first use: so the program starts on machines that lack libcurl, and one program serves systems
// whose libcurl differs. Windows builds contain libcurl.
#pragma once
#include <curl/curl.h>

#include <span>

namespace ingot {

// clang-format off
#define INGOT_CURL_FUNCTIONS(F) \
  F(easy_cleanup) F(easy_getinfo) F(easy_init) F(easy_perform) F(easy_reset) F(easy_setopt) F(easy_strerror) \
  F(free) F(global_init) F(multi_add_handle) F(multi_cleanup) F(multi_info_read) F(multi_init) F(multi_perform) \
  F(multi_poll) F(multi_remove_handle) F(multi_setopt) F(slist_append) F(slist_free_all) F(url) F(url_cleanup) \
  F(url_dup) F(url_get) F(url_set)
// clang-format on

// easy_init is curl_easy_init, and so on.
struct LibCurl {
#define INGOT_CURL_MEMBER(name) decltype(&::curl_##name) name = nullptr;
  INGOT_CURL_FUNCTIONS(INGOT_CURL_MEMBER)
#undef INGOT_CURL_MEMBER
};

// The functions of the first of these libraries that has all of them. "" is the program with the libraries that it is
// linked with: a Python wheel carries its libcurl so. Throws Error if there is none.
LibCurl open_libcurl(std::span<const char* const> names);

// The functions of this machine's libcurl, initialized. Throws Error if there is none.
const LibCurl& libcurl();

}  // namespace ingot
