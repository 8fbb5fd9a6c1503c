#include "io/reader.h"

namespace ingot {

void Reader::fail_truncated(const char* field, uint64_t n_bytes) const {
  fail(field, "truncated: need {} bytes, have {}", n_bytes, remaining());
}

void Reader::fail_at_field(const char* field, const std::string& message) const {
  std::string context;
  for (const auto& [what, name] : context_) context += fmt::format("{} '{}': ", what, printable(name));
  throw Error("{}: {}{} at offset {}: {}", printable(file_), context, field, field_start_, message);
}

}  // namespace ingot
