// MarkerSpelling: converts a marker of a call format to the bytes that a grammar uses. A control token has no text; a
// grammar writes the token as kControlByte and its name. So the name of a control token in plain text is not part of a
// marker.
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
  // tokens: the control tokens that the format's markers may contain.
  MarkerSpelling() = default;
  explicit MarkerSpelling(std::vector<Token> tokens);

  // The text in the form that a grammar uses. The text stops at the first token that ends an answer, because a model
  // writes nothing after that token.
  struct Text {
    std::string bytes;
    bool ends_answer = false;
  };
  Text spell(std::string_view text) const;

  // Identifies the tokens: equal keys mean equal tokens.
  std::string key() const;

 private:
  std::vector<Token> tokens_;  // longest name first
};

// The end of a text that may contain anything else. `plain` is the marker, with a control token at each index of
// `controls`. `layout` follows the marker, in the form that a grammar uses.
struct Terminator {
  Terminator() = default;
  Terminator(std::string_view marker, const MarkerSpelling& spelling);

  std::string plain;
  std::vector<size_t> controls;
  std::string layout;
};

// Finds a terminator in text that arrives byte by byte.
struct TerminatorSearch {
  enum class Found : uint8_t { kNo, kYes, kNever };
  std::string held;      // may be the beginning of the terminator
  uint8_t n_tokens = 0;  // control tokens in `held`

  // kYes: the terminator ends with this byte. kNever: no text continues with this byte. Bytes that are not part of the
  // terminator are appended to `released`.
  Found feed(const Terminator& terminator, char c, std::string& released);
  // Whether `held` may become the terminator: its control tokens must have been written as control tokens.
  bool may_end(const Terminator& terminator) const;

 private:
  Found begin_token(const Terminator& terminator, std::string& released);
};

}  // namespace ingot
