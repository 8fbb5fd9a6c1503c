// How JSON writes a string: the bytes of a value's text, and the bytes that each stands for.
#pragma once
#include <cstdint>
#include <functional>

namespace ingot {

// Where in an escape a reader is. Its number is 0 between characters.
struct Escape {
  enum Phase : uint8_t { kNone, kBackslash, kHex, kLowBackslash, kLowU, kLowHex };
  Phase phase = kNone;
  uint8_t n_digits = 0;   // read of four
  uint16_t value = 0;     // of these digits
  uint16_t high = 0;      // the first half of a surrogate pair

  uint64_t number() const { return uint64_t{phase} | uint64_t{n_digits} << 8 | uint64_t{value} << 16 | uint64_t{high} << 32; }
  static Escape of(uint64_t number) {
    return {static_cast<Phase>(number & 0xff), static_cast<uint8_t>(number >> 8), static_cast<uint16_t>(number >> 16),
            static_cast<uint16_t>(number >> 32)};
  }
};

struct EscapeStep {
  enum Kind : uint8_t { kBad, kInside, kBytes };
  Kind kind = kBad;
  Escape next;                 // of kInside
  uint8_t bytes[4] = {}, n = 0;  // of kBytes: what the character is, in UTF-8
};

// Reads one byte of a string that is no closing quote.
EscapeStep step_escape(Escape escape, uint8_t byte);

// True where an escape that stands at `escape` can become a character that may follow `state`: step(state, byte) is the
// state after a byte, 0 where nothing goes on. Of ASCII only control characters are written \uXXXX, unless
// `any_ascii`: so a text has one spelling, and can be foreseen.
using ByteStep = std::function<uint32_t(uint32_t state, uint8_t byte)>;
bool can_complete(const ByteStep& step, uint32_t state, Escape escape, bool any_ascii);
// The same rule for a character that `step` has made of `escape` and `byte`, without any_ascii.
bool may_spell(Escape escape, uint8_t byte, const EscapeStep& step);

}  // namespace ingot
