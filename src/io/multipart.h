// Reads a form in multipart/form-data (RFC 7578), as browsers and HTTP clients send files.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct FormPart {
  std::string name;      // of the field
  std::string filename;  // "" if the part is no file
  bool is_file = false;
  std::string_view data;  // a view of the body
};

inline constexpr size_t kMaxFormParts = 128;

// content_type: the header's value, with the boundary. The parts are views of `body`. Throws Error: the body is not
// such a form, or has more than kMaxFormParts parts.
std::vector<FormPart> read_form_data(std::string_view content_type, std::string_view body);

}  // namespace ingot
