// Checks the bytes of a request's head before they are parsed. Ambiguous bytes are refused, because a proxy in front
// may have interpreted them differently (request smuggling, RFC 9112 sections 2.2, 5 and 6). The parsed head is an
// HttpRequest with one path, used for both routing and the check of the key. Pure functions of bytes.
#pragma once
#include <cstdint>
#include <optional>

#include "server/requests/http.h"

namespace ingot {

struct HttpLimits {
  size_t request_line_bytes = 8 << 10;
  size_t head_bytes = 16 << 10;
  size_t header_count = 100;
  size_t body_bytes = 16 << 20;
};

// How the body of a request is delimited.
struct BodyFraming {
  bool chunked = false;
  uint64_t length = 0;  // unless chunked
};

struct HttpHead {
  HttpRequest request;  // without its body
  BodyFraming body;
  bool is_head = false;  // the method is HEAD, so the answer has no body
  bool is_http_1_1 = true;
  bool keep_alive = true;
  bool expects_continue = false;
};

// The length of the head at the start of `bytes`, with its blank line; empty if the head is not complete yet. Throws
// ApiError (400, 414, 431) if the head is already too long or if its first bytes cannot begin a head.
std::optional<size_t> head_length(std::string_view bytes, const HttpLimits& limits);

// Parses `head`, the bytes measured by head_length. Throws ApiError: 400, 405, 411, 413, 414, 415, 431, 501, 505. After
// any of these errors, the connection is unusable.
HttpHead parse_head(std::string_view head, const HttpLimits& limits);

}  // namespace ingot
