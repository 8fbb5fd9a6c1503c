#include "server/requests/request_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system.h"
#include "server/requests/fields.h"

namespace ingot {

// A value takes 16 bytes, a member of an object 48. A container takes as much again while it grows, and a block of
// memory for each container and each long text comes on top.
size_t json_bytes(std::string_view text) {
  constexpr size_t kElement = 32, kMember = 96, kBlock = 64, kCopies = 2;
  size_t n = kBlock + text.size();
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
      n += kBlock;
    } else if (c == '{' || c == '[') {
      n += kBlock + kElement;
    } else if (c == ',') {
      n += kElement;
    } else if (c == ':') {
      n += kMember;
    }
  }
  return kCopies * n;
}

void take_memory(MemoryBudget::Part& part, size_t bytes) {
  if (part.set(bytes)) return;
  if (bytes > part.limit())
    throw ApiError(413, fmt::format("this request needs about {} of memory, and all requests together may use {}",
                                    human_bytes(bytes), human_bytes(part.limit())),
                   "", "request_memory");
  throw ApiError(503, "the server's memory for requests is in use: try again soon", "", "request_memory");
}

AnswerText::AnswerText(const HttpRequest& request, size_t n_beside)
    : memory_(request.memory), n_before_(memory_ ? memory_->bytes() + n_beside : 0) {
  if (memory_) take_memory(*memory_, n_before_);
}

// The session copies the text once.
void AnswerText::grow(size_t n_more) {
  const size_t n = text_.size() + n_more;
  if (n <= text_.capacity()) return;
  const size_t capacity = std::max(n, 2 * text_.capacity());
  if (memory_) take_memory(*memory_, n_before_ + 2 * capacity);
  text_.reserve(capacity);
}

void AnswerText::add_json(std::string_view text) {
  constexpr size_t kMostOfAByte = 6;  // \u001f
  grow(kMostOfAByte * text.size() + 2);
  append_json_string(text_, text);
}

}  // namespace ingot
