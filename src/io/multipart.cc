#include "io/multipart.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {
namespace {

constexpr size_t kMaxBoundaryBytes = 70, kMaxPartHeadBytes = 8192;
constexpr std::string_view kLineEnd = "\r\n";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_but_case(std::string_view a, std::string_view b) { return std::ranges::equal(a, b, {}, lower, lower); }

std::string_view stripped(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Takes the next parameter of a header's value off its front: `; name="value"`. False if there is none.
bool take_parameter(std::string_view& rest, std::string_view& name, std::string& value) {
  const size_t semicolon = rest.find(';');
  if (semicolon == rest.npos) return false;
  rest.remove_prefix(semicolon + 1);
  const size_t equals = rest.find('=');
  if (equals == rest.npos) return false;
  name = stripped(rest.substr(0, equals));
  rest.remove_prefix(equals + 1);
  value.clear();
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.find(';'), rest.size());
    value = stripped(rest.substr(0, end));
    rest.remove_prefix(end);
    return true;
  }
  size_t at = 1;
  // Browsers write \" as %22, and file names of Windows have backslashes, so only these two are escapes.
  for (; at < rest.size() && rest[at] != '"'; ++at) {
    const bool escapes = rest[at] == '\\' && at + 1 < rest.size() && (rest[at + 1] == '"' || rest[at + 1] == '\\');
    value += rest[escapes ? ++at : at];
  }
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return true;
}

std::string boundary_of(std::string_view content_type) {
  std::string_view rest = content_type, name;
  if (!equal_but_case(stripped(rest.substr(0, rest.find(';'))), "multipart/form-data"))
    throw Error("the body must be a form: send it as Content-Type: multipart/form-data");
  std::string value;
  while (take_parameter(rest, name, value))
    if (equal_but_case(name, "boundary") && !value.empty() && value.size() <= kMaxBoundaryBytes) return value;
  throw Error("the Content-Type of the form names no boundary of 1 to {} characters", kMaxBoundaryBytes);
}

// The name and the file name in the head of a part.
FormPart part_of_head(std::string_view head, size_t number) {
  FormPart part;
  bool is_named = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find(kLineEnd), head.size());
    std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + kLineEnd.size(), head.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos || !equal_but_case(stripped(line.substr(0, colon)), "content-disposition")) continue;
    line.remove_prefix(colon + 1);
    std::string_view name;
    std::string value;
    while (take_parameter(line, name, value)) {
      if (equal_but_case(name, "name")) part.name = value, is_named = true;
      if (equal_but_case(name, "filename")) part.filename = value, part.is_file = true;
    }
  }
  if (!is_named) throw Error("part {} of the form has no name", number);
  return part;
}

}  // namespace

std::vector<FormPart> read_form_data(std::string_view content_type, std::string_view body) {
  const std::string delimiter = "\r\n--" + boundary_of(content_type);
  // The first delimiter may stand at the very beginning, without a line before it.
  const std::string_view first = std::string_view(delimiter).substr(kLineEnd.size());
  size_t at = body.starts_with(first) ? first.size() : body.find(delimiter);
  if (at == body.npos) throw Error("the form does not begin with its boundary");
  if (!body.starts_with(first)) at += delimiter.size();
  std::vector<FormPart> parts;
  for (;;) {
    const std::string_view rest = body.substr(at);
    if (rest.starts_with("--")) return parts;
    const size_t line = rest.substr(0, kMaxPartHeadBytes).find(kLineEnd);
    if (line == rest.npos || !stripped(rest.substr(0, line)).empty())
      throw Error("the form is damaged after its boundary {}", parts.size() + 1);
    if (parts.size() == kMaxFormParts) throw Error("the form has more than {} parts", kMaxFormParts);
    // The head ends at an empty line, which may be the line of the boundary itself.
    const size_t head_end = rest.substr(0, kMaxPartHeadBytes).find("\r\n\r\n", line);
    if (head_end == rest.npos)
      throw Error("part {} of the form has no head that ends within {} bytes", parts.size() + 1, kMaxPartHeadBytes);
    const size_t head_begin = std::min(line + kLineEnd.size(), head_end);
    FormPart part = part_of_head(rest.substr(head_begin, head_end - head_begin), parts.size() + 1);
    const size_t data_begin = head_end + 2 * kLineEnd.size();
    // The line end before a delimiter belongs to it, also if the data is empty.
    const size_t data_end = rest.find(delimiter, data_begin - kLineEnd.size());
    if (data_end == rest.npos) throw Error("the form is truncated: part {} does not end", parts.size() + 1);
    part.data = rest.substr(data_begin, std::max(data_end, data_begin) - data_begin);
    parts.push_back(std::move(part));
    at += data_end + delimiter.size();
  }
}

}  // namespace ingot
