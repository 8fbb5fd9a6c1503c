// Reads JSON strings byte by byte: decodes the escapes of a string's text into the UTF-8 bytes of its characters.
#pragma once
#include <cstdint>
#include <functional>

namespace ingot {

// The reader's position in an escape. number() is 0 between characters.
struct Escape {
  enum Phase : uint8_t { kNone, kBackslash, kHex, kLowBackslash, kLowU, kLowHex };
  Phase phase = kNone;
  uint8_t n_digits = 0;   // digits read, of four
  uint16_t value = 0;     // value of these digits
  uint16_t high = 0;      // the first half of a surrogate pair

  uint64_t number() const {
    return uint64_t{phase} | uint64_t{n_digits} << 8 | uint64_t{value} << 16 | uint64_t{high} << 32;
  }
  static Escape of(uint64_t number) {
    return {static_cast<Phase>(number & 0xff), static_cast<uint8_t>(number >> 8), static_cast<uint16_t>(number >> 16),
            static_cast<uint16_t>(number >> 32)};
  }
};

struct EscapeStep {
  enum Kind : uint8_t { kBad, kInside, kBytes };
  Kind kind = kBad;
  Escape next;                 // for kInside
  uint8_t bytes[4] = {}, n = 0;  // for kBytes: the character in UTF-8
};

// Reads one byte of a string. The byte must not be the closing quote.
EscapeStep step_escape(Escape escape, uint8_t byte);

// Whether the escape read so far can become a character that may follow `state`. step(state, byte) returns the state
// after a byte, or 0 if no text continues. Among ASCII characters, only control characters may be written as \uXXXX,
// unless `any_ascii` is set. So the spelling of a text can be predicted.
using ByteStep = std::function<uint32_t(uint32_t state, uint8_t byte)>;
bool can_complete(const ByteStep& step, uint32_t state, Escape escape, bool any_ascii);
// The same rule, without any_ascii, for a character that `step` has made of `escape` and `byte`.
bool may_spell(Escape escape, uint8_t byte, const EscapeStep& step);

}  // namespace ingot
