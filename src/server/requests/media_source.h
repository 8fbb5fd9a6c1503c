// Where the images and recordings of requests come from: data in the request, and with the operator's consent also URLs of the Internet
// and files of one folder.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "text/media_kind.h"

namespace ingot {

struct MediaPolicy {
  bool fetches_urls = false;  // http and https, from public addresses only
  std::string folder;         // file: URLs below this folder; empty: none
  int max_files = 32;         // of a request
  int max_queue = 64;         // requests with such files that wait or are being prepared
  std::chrono::seconds fetch_timeout{15};
};

// The bytes that `source` names or contains: data:...;base64,..., http(s)://..., file:..., or plain Base64 if `is_data`.
// where: the field, for messages; max_bytes: of the file. Throws ApiError 400.
std::vector<std::byte> load_media_source(const std::string& source, bool is_data, const std::string& where,
                                         const MediaPolicy& policy, MediaKind kind, uint64_t max_bytes);

}  // namespace ingot
