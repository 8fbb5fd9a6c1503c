// Regular languages over bytes as hash-consed expressions: union, intersection, complement, concatenation, repetition.
// An expression is its own automaton: the derivative of a language by a byte is the language of the texts that may
// follow that byte (Brzozowski, "Derivatives of regular expressions", 1964). Derivatives are made on first use, so a
// large repetition costs nothing until text reaches it. Not thread-safe.
#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/languages/work_meter.h"

namespace ingot {

using ByteSet = std::bitset<256>;
using CharRange = std::pair<char32_t, char32_t>;  // both ends included

class RegularLanguages {
 public:
  using Id = uint32_t;
  static constexpr Id kNothing = 0;   // no text
  static constexpr Id kEmpty = 1;     // only the empty text
  static constexpr Id kAnything = 2;  // every sequence of bytes
  static constexpr int kNoLimit = -1;

  // Throws Error if there are more than `max_nodes` expressions.
  explicit RegularLanguages(size_t max_nodes = 1 << 18);

  static constexpr size_t kMaxArgs = size_t{1} << 22;  // of all expressions
  // Counts the work of the functions below, which throw TooMuchWork at its limit.
  const SharedMeter& meter() const { return meter_; }
  void use_meter(const SharedMeter& meter) { meter_.share(meter); }
  void spend(size_t n_parts) { meter_->spend(n_parts); }
  size_t n_bytes() const;

  Id bytes(const ByteSet& set);
  Id literal(std::string_view text);
  Id literals(std::span<const std::string_view> texts);
  Id characters(std::span<const CharRange> ranges);  // one code point of these ranges, in UTF-8
  Id concat(Id first, Id second);
  Id any_of(std::vector<Id> parts);
  Id all_of(std::vector<Id> parts);
  Id complement(Id part);
  Id repeat(Id part, int min, int max);  // max may be kNoLimit
  // Decimal digits, with or without a fraction, whose value times 10^n_decimals is a multiple of `divisor`.
  Id multiples(uint64_t divisor, int n_decimals);

  Id any_char() const { return any_char_; }  // one code point, except surrogates
  Id any_text() const { return any_text_; }  // any_char()*

  bool has_empty(Id id) const { return nodes_[id].has_empty; }
  Id derive(Id id, uint8_t byte);
  std::optional<std::string> example(Id id);  // a short text of the language, if the search finds one
  bool is_live(Id id);  // whether some text belongs to the language; true if the search grows too large
  // [byte]: the language that may follow each byte; kNothing if no text of the language continues with that byte. The
  // reference is valid until the next call.
  const std::array<Id, 256>& row(Id id);

  // Whether every text is the beginning of a text of the language. False if unknown.
  bool allows_any_text(Id id) const;

  // If the language is any_char() repeated: the bounds of the repetition. first < 0: another language.
  std::pair<int, int> char_counts(Id id) const;
  size_t size() const { return nodes_.size(); }

 private:
  enum class Kind : uint8_t { kNothing, kEmpty, kBytes, kConcat, kAnyOf, kAllOf, kComplement, kRepeat, kMultiples };
  struct Node {
    Kind kind;
    bool has_empty;
    bool is_text;           // every text of the language is UTF-8; false if unknown
    bool is_plain;          // no intersection, complement or arithmetic inside, so live unless kNothing
    uint32_t classes;       // bytes of one class have the same derivative
    uint32_t depth;         // depth of the recursion that finds a derivative
    uint32_t first, count;  // range in args_: children or numbers
  };
  using Classes = std::array<uint8_t, 256>;
  enum class Life : uint8_t { kUnknown, kLive, kDead };

  std::span<const uint32_t> args(const Node& node) const { return {args_.data() + node.first, node.count}; }
  Id intern(Kind kind, std::span<const uint32_t> args);
  Node describe(Kind kind, std::span<const uint32_t> args);
  uint32_t classes_of(const Classes& classes);
  uint32_t refine(uint32_t a, uint32_t b);
  Id derive_now(Id id, uint8_t byte);
  Id derive_multiples(std::span<const uint32_t> numbers, uint8_t byte);
  void flatten(Kind kind, const std::vector<Id>& parts, std::vector<Id>& out) const;
  bool has_complements(const std::vector<Id>& sorted) const;
  Life known_life(Id id) const;
  bool search_life(Id id);

  size_t max_nodes_;
  SharedMeter meter_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> args_;
  std::vector<ByteSet> byte_sets_;
  std::unordered_multimap<uint64_t, Id> index_;
  std::vector<Classes> classes_;
  std::vector<std::vector<uint8_t>> class_bytes_;  // [classes][class]: the first byte of the class
  std::unordered_multimap<uint64_t, uint32_t> class_index_;
  std::unordered_map<uint64_t, uint32_t> refined_;
  std::vector<Id> derived_;              // a derivative for each class, of the nodes that have been derived
  std::vector<uint32_t> first_derived_;  // [node]: index in derived_, or kNone
  std::vector<Life> life_;               // [node]
  std::deque<std::array<Id, 256>> rows_;
  std::vector<uint32_t> row_of_;  // [node]: index in rows_, or kNone
  Id any_char_ = 0, any_text_ = 0;
};

}  // namespace ingot
