// ReasoningSplitter: tells what a model thinks, between <think> and </think> at the front of its answer, from what it
// says. Works on text as it streams: what may be the beginning of a tag waits until more text decides.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

class ReasoningSplitter {
 public:
  struct Parts {
    std::string thought, said;
  };

  // `thinking`: the prompt has opened the thought already.
  explicit ReasoningSplitter(bool thinking = false) : state_(thinking ? State::kThinking : State::kStart) {}

  Parts push(std::string_view text);
  Parts flush();                        // at the end: what has waited is what it was
  Parts split(std::string_view whole);  // both at once

 private:
  enum class State { kStart, kThinking, kBetween, kSaying };
  void advance(Parts& parts, bool at_end);

  State state_;
  std::string held_;
};

// Without the white space in front, which templates put behind the tag, be there a thought or not.
std::string_view thought_of(std::string_view text);

// Whether a prompt ends where a thought begins.
bool opens_thought(std::string_view prompt_end);

}  // namespace ingot
