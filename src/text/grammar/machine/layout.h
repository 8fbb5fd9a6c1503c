// The layout of SchemaMachine's lists: the meaning of each position in a frame or a word.
#pragma once
#include <cstdint>
#include <span>

#include "text/grammar/languages/json_word.h"

namespace ingot {

// The kinds of frames, and the positions of their members.
enum FrameKind : uint32_t { kSlot, kObject, kArray };
enum SlotWord { kSlotParent = 1, kSlotPlan, kSlotText, kSlotLink };
enum ObjectWord { kObjectSlot = 1, kObjectPlan, kObjectCount, kObjectOrder, kObjectText, kNameText, kObjectBits };
enum ArrayWord { kArraySlot = 1, kArrayPlan, kArrayCount, kArrayText, kArrayBits };

// The kinds of words, and the positions of their members.
enum WordKind : uint32_t { kBare, kString, kName };
enum WordWord { kEscapeLow = 1, kEscapeHigh, kAnyAscii, kAlive, kGoals };  // kBare, kString: goal, language, ...
enum NameWord { kNameSet = 3, kNameNode, kOthers, kPatterns };             // kNameNode: node + 1, 0: none

inline constexpr uint32_t kFirstText = 1;  // the empty text; Automaton::kFreshText and kPastFresh follow

inline bool has_bit(std::span<const uint32_t> words, uint32_t i) { return (words[i / 32] >> (i % 32)) & 1; }
inline void set_bit(std::span<uint32_t> words, uint32_t i) { words[i / 32] |= 1u << (i % 32); }
inline size_t n_words(size_t n_bits) { return (n_bits + 31) / 32; }

inline Escape escape_of(std::span<const uint32_t> word) {
  return Escape::of(word[kEscapeLow] | uint64_t{word[kEscapeHigh]} << 32);
}
inline void set_escape(std::span<uint32_t> word, Escape escape) {
  word[kEscapeLow] = static_cast<uint32_t>(escape.number());
  word[kEscapeHigh] = static_cast<uint32_t>(escape.number() >> 32);
}

}  // namespace ingot
