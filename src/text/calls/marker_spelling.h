// How a model's tokens write a marker of a call format. A control token has no bytes of its own in a grammar: it stands
// there as kControlByte and its name. So a marker that a model writes with control tokens is spelled with these, and
// its name as plain text is no marker.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/calls/call_format.h"

namespace ingot {

class MarkerSpelling {
 public:
  struct Token {
    std::string name;
    bool ends_answer = false;
  };
  // The control tokens that the format's markers may hold.
  MarkerSpelling() = default;
  explicit MarkerSpelling(std::vector<Token> tokens);

  // The text as a grammar has it, up to the first token that ends an answer, for nothing is written behind that.
  struct Text {
    std::string bytes;
    bool ends_answer = false;
  };
  Text spell(std::string_view text) const;

  // A text that says which tokens these are.
  std::string key() const;

 private:
  std::vector<Token> tokens_;  // the longest first
};

// What ends a text that may hold anything else: `plain` is the marker, with a control token at each of `controls`.
// Behind it comes `layout`, as a grammar has it.
struct Terminator {
  Terminator() = default;
  Terminator(std::string_view marker, const MarkerSpelling& spelling);

  std::string plain;
  std::vector<size_t> controls;
  std::string layout;
};

// Looks for a terminator in text that comes byte by byte.
struct TerminatorSearch {
  enum class Found : uint8_t { kNo, kYes, kNever };
  std::string held;      // may be the beginning of it
  uint8_t n_tokens = 0;  // control tokens in `held`

  // kYes: it ends with this byte. kNever: no text goes on so. What is none of it is appended to `released`.
  Found feed(const Terminator& terminator, char c, std::string& released);
  // Whether `held` may become the terminator: where it has control tokens, they were written as such.
  bool may_end(const Terminator& terminator) const;

 private:
  Found begin_token(const Terminator& terminator, std::string& released);
};

}  // namespace ingot
