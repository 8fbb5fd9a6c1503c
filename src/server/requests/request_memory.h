// The memory of a request: how much its objects take, and the error if the server's budget has no room for them.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "server/requests/http.h"

namespace ingot {

// At least the bytes that the parsed JSON and a copy take, from one pass over the text.
size_t json_bytes(std::string_view text);

// Sets the part to `bytes`. Throws ApiError: 413 if the budget could never have room, 503 if it has no room now.
void take_memory(MemoryBudget::Part& part, size_t bytes);

// The text of an answer that may be large. It takes the memory of the request's part before it grows, and throws
// ApiError like take_memory().
class AnswerText {
 public:
  // `n_beside`: the bytes that the handler takes while it writes the answer.
  AnswerText(const HttpRequest& request, size_t n_beside);
  AnswerText& operator+=(std::string_view text) {
    grow(text.size());
    text_ += text;
    return *this;
  }
  void add_json(std::string_view text);  // as a JSON string, with quotes
  std::string take() { return std::move(text_); }

 private:
  void grow(size_t n_more);

  const std::shared_ptr<MemoryBudget::Part> memory_;
  const size_t n_before_;
  std::string text_;
};

}  // namespace ingot
