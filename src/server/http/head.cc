#include "server/http/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/ascii.h"
#include "base/error.h"

namespace ingot {
namespace {

constexpr std::string_view kMethods[] = {"GET",     "HEAD",  "POST",    "PUT",  "DELETE",
                                         "OPTIONS", "PATCH", "CONNECT", "TRACE", "QUERY"};

bool is_token_char(char c) {
  const unsigned char u = static_cast<unsigned char>(c);
  return u > 0x20 && u < 0x7F && std::string_view("\"(),/:;<=>?@[\\]{}").find(c) == std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_char); }

[[noreturn]] void bad(const std::string& what) { throw ApiError(400, what); }

// Lines must end in CR LF. CR and LF must not occur anywhere else, and NUL must not occur at all.
void check_bytes(std::string_view head) {
  for (size_t i = 0; i < head.size(); ++i) {
    const bool is_pair = head[i] == '\r' && i + 1 < head.size() && head[i + 1] == '\n';
    if (is_pair) {
      ++i;
    } else if (head[i] == '\r' || head[i] == '\n' || head[i] == '\0') {
      bad(fmt::format("byte {} of the request's head is a bare CR, LF or NUL", i));
    }
  }
}

// Decodes the name after a path prefix. Clients escape the name. Routing ignores the name.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || end != digits.data() + 2 || byte < 0x20 || byte == 0x7F)
      bad("the request target has a malformed escape");
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

// Percent signs, dots, doubled slashes and absolute forms allow several spellings of one path, so they are all refused.
std::string canonical_path(std::string_view path) {
  if (!path.starts_with('/')) bad("the request target must begin with '/'");
  for (char c : path)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7F)
      bad("the request target holds a byte that is not printable ASCII");
  constexpr std::string_view kNamed = "/v1/models/";
  if (path.starts_with(kNamed) && path.find('%') != path.npos && path.find("..") == path.npos)
    return std::string(kNamed) + unescaped(path.substr(kNamed.size()));
  const bool odd = path.find('%') != path.npos || path.find("//") != path.npos || path.find('\\') != path.npos ||
                   path.find("/./") != path.npos || path.find("/..") != path.npos || path.ends_with("/.");
  if (odd) throw ApiError(404, fmt::format("there is no {}", printable(path, 128)));
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return std::string(path);
}

void parse_request_line(std::string_view line, HttpHead& head) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last || line.find(' ', first + 1) != last)
    bad("the request line is not METHOD TARGET VERSION");
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (!is_token(method)) bad("the request's method is not a word");
  if (std::ranges::find(kMethods, method) == std::end(kMethods))
    throw ApiError(501, fmt::format("method {} is not known", printable(method, 32)));
  if (!version.starts_with("HTTP/") || version.size() != 8) bad("the request line does not end in an HTTP version");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") throw ApiError(505, "only HTTP/1.1 and HTTP/1.0 are supported");
  head.is_http_1_1 = version == "HTTP/1.1";
  head.is_head = method == "HEAD";
  head.request.method = head.is_head ? "GET" : std::string(method);
  const size_t question = std::min(target.find('?'), target.size());
  head.request.path = canonical_path(target.substr(0, question));
  if (question < target.size()) head.request.query = target.substr(question + 1);
}

void parse_header(std::string_view line, HttpHead& head) {
  if (line.front() == ' ' || line.front() == '\t') bad("a header is folded over two lines");
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) bad("a header is not NAME: VALUE");
  const std::string_view value = trim(line.substr(colon + 1), " \t");
  for (char c : value)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F) bad("a header's value holds a control byte");
  head.request.headers.emplace_back(lower(line.substr(0, colon)), value);
}

// The value of a header that may occur at most once.
const std::string* only(const HttpRequest& request, std::string_view name) {
  const std::string* found = nullptr;
  for (const auto& [key, value] : request.headers) {
    if (key != name) continue;
    if (found) bad(fmt::format("header {} occurs twice", name));
    found = &value;
  }
  return found;
}

uint64_t parse_length(const std::string& text) {
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool digits = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (digits && error == std::errc::result_out_of_range) return UINT64_MAX;
  if (!digits || error != std::errc() || end != text.data() + text.size()) bad("Content-Length is not a number");
  return length;
}

void read_framing(HttpHead& head, const HttpLimits& limits) {
  const std::string* length = only(head.request, "content-length");
  const std::string* transfer = only(head.request, "transfer-encoding");
  if (length && transfer) bad("Content-Length and Transfer-Encoding occur together");
  if (transfer) {
    if (!head.is_http_1_1) bad("Transfer-Encoding needs HTTP/1.1");
    if (lower(*transfer) != "chunked") bad("chunked is the only supported Transfer-Encoding");
    head.body.chunked = true;
  } else if (length) {
    head.body.length = parse_length(*length);
    if (head.body.length > limits.body_bytes)
      throw ApiError(413,
                     fmt::format("the body has {} bytes: at most {}", head.body.length, limits.body_bytes));
  } else if (head.request.method == "POST" || head.request.method == "PUT" || head.request.method == "PATCH") {
    throw ApiError(411, "the request has no Content-Length");
  }
  if (const std::string* encoding = head.request.header("content-encoding"); encoding && lower(*encoding) != "identity")
    throw ApiError(415, "a Content-Encoding is not supported: send the body uncompressed");
}

void read_connection(HttpHead& head) {
  head.keep_alive = head.is_http_1_1;
  const std::string* host = only(head.request, "host");
  if (!host && head.is_http_1_1) bad("the Host header is missing");
  const auto is_host_char = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view(".-_:[]").find(c) != std::string_view::npos;
  };
  if (host && !std::ranges::all_of(*host, is_host_char)) bad("the Host header is not a host");
  if (const std::string* connection = head.request.header("connection")) {
    const std::string options = lower(*connection);
    if (options.find("close") != options.npos) head.keep_alive = false;
    if (options.find("keep-alive") != options.npos) head.keep_alive = true;
  }
  if (const std::string* expect = head.request.header("expect"))
    head.expects_continue = lower(*expect) == "100-continue";
}

}  // namespace

std::optional<size_t> head_length(std::string_view bytes, const HttpLimits& limits) {
  // Rejects the first bytes of another protocol instead of waiting for the rest.
  if (!bytes.empty() && !is_token_char(bytes.front())) bad("this is not an HTTP request");
  const size_t line = bytes.find('\n');
  if (std::min(line, bytes.size()) > limits.request_line_bytes)
    throw ApiError(414, fmt::format("the request line is longer than {} bytes", limits.request_line_bytes));
  const size_t blank = bytes.find("\r\n\r\n");
  if (std::min(blank, bytes.size()) > limits.head_bytes)
    throw ApiError(431, fmt::format("the request's headers are longer than {} bytes", limits.head_bytes));
  if (const size_t bare = bytes.find("\n\n"); bare < blank) bad("a line of the request's head ends in a bare LF");
  if (blank == bytes.npos) return std::nullopt;
  return blank + 4;
}

HttpHead parse_head(std::string_view bytes, const HttpLimits& limits) {
  HttpHead head;
  check_bytes(bytes);
  std::string_view rest = bytes.substr(0, bytes.size() - 2);  // without the blank line's CR LF
  const auto next_line = [&] {
    const size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    return line;
  };
  parse_request_line(next_line(), head);
  while (!rest.empty()) {
    if (head.request.headers.size() == limits.header_count)
      throw ApiError(431, fmt::format("the request has more than {} headers", limits.header_count));
    parse_header(next_line(), head);
  }
  read_framing(head, limits);
  read_connection(head);
  return head;
}

}  // namespace ingot
