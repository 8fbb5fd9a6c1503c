#include "text/grammar/languages/regular.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/splitmix.h"

namespace ingot {

namespace {

constexpr uint32_t kNotYet = UINT32_MAX;

constexpr uint32_t kMaxExpressionDepth = 500;  // bounds stack and time for hostile patterns
constexpr size_t kMaxRows = 1 << 13;           // cached rows, 1 KiB each
constexpr size_t kMaxSearched = 20000;         // states that is_live() visits before it returns true

uint64_t hash_of(std::span<const uint32_t> words, uint64_t seed) {
  for (uint32_t word : words) seed = splitmix(seed ^ word);
  return seed;
}

// Writes the UTF-8 bytes of `c`. Returns their number.
int encode(char32_t c, uint8_t out[4]) {
  if (c < 0x80) return out[0] = static_cast<uint8_t>(c), 1;
  const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = n - 1; i > 0; --i, c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 0x3f));
  out[0] = static_cast<uint8_t>((0xf00 >> n) | c);
  return n;
}

ByteSet byte_range(int first, int last) {
  ByteSet set;
  for (int i = first; i <= last; ++i) set.set(static_cast<size_t>(i));
  return set;
}

}  // namespace

RegularLanguages::RegularLanguages(size_t max_nodes) : max_nodes_(max_nodes) {
  classes_of(Classes{});
  intern(Kind::kNothing, {});
  intern(Kind::kEmpty, {});
  const uint32_t nothing = kNothing;
  intern(Kind::kComplement, {&nothing, 1});
  const CharRange all[] = {{0, 0xd7ff}, {0xe000, 0x10ffff}};
  any_char_ = characters(all);
  any_text_ = repeat(any_char_, 0, kNoLimit);
}

RegularLanguages::Id RegularLanguages::intern(Kind kind, std::span<const uint32_t> args) {
  const uint64_t hash = hash_of(args, static_cast<uint64_t>(kind) + 1);
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Node& node = nodes_[it->second];
    if (node.kind == kind && std::ranges::equal(this->args(node), args)) return it->second;
  }
  if (nodes_.size() >= max_nodes_) throw Error("the grammar is too large: it needs more than {} states", max_nodes_);
  if (args_.size() + args.size() > kMaxArgs)
    throw Error("the grammar is too large: its states have more than {} parts", kMaxArgs);
  Node node = describe(kind, args);
  if (node.depth > kMaxExpressionDepth)
    throw Error("a regular expression has more than {} nested parts or optional parts in a row", kMaxExpressionDepth);
  node.first = static_cast<uint32_t>(args_.size());
  node.count = static_cast<uint32_t>(args.size());
  args_.insert(args_.end(), args.begin(), args.end());
  nodes_.push_back(node);
  first_derived_.push_back(kNotYet);
  row_of_.push_back(kNotYet);
  life_.push_back(Life::kUnknown);
  const Id id = static_cast<Id>(nodes_.size() - 1);
  index_.emplace(hash, id);
  return id;
}

RegularLanguages::Node RegularLanguages::describe(Kind kind, std::span<const uint32_t> args) {
  Node node{kind, false, false, true, 0, 0, 0, 0};
  const auto is_text = [&](Id part) { return nodes_[part].is_text; };
  const auto each = [&](std::span<const uint32_t> parts) {
    for (Id part : parts) {
      node.depth = std::max(node.depth, nodes_[part].depth + 1);
      node.classes = refine(node.classes, nodes_[part].classes);
      node.is_plain &= nodes_[part].is_plain;
    }
  };
  switch (kind) {
    case Kind::kNothing: node.is_text = true; break;
    case Kind::kEmpty: node.has_empty = node.is_text = true; break;
    case Kind::kBytes: {
      Classes classes{};
      for (size_t i = 0; i < 256; ++i) classes[i] = byte_sets_[args[0]][i];
      node.classes = classes_of(classes);
      node.is_text = (byte_sets_[args[0]] >> 128).none();
      break;
    }
    case Kind::kConcat:  // if the first part cannot be empty, only that part reads the byte
      each(nodes_[args[0]].has_empty ? args : args.first(1));
      node.is_text = is_text(args[0]) && is_text(args[1]);
      node.is_plain = nodes_[args[0]].is_plain && nodes_[args[1]].is_plain;
      node.has_empty = nodes_[args[0]].has_empty && nodes_[args[1]].has_empty;
      break;
    case Kind::kAnyOf:
      each(args);
      node.is_text = std::ranges::all_of(args, is_text);
      node.has_empty = std::ranges::any_of(args, [&](Id part) { return nodes_[part].has_empty; });
      break;
    case Kind::kAllOf:
      each(args);
      node.is_text = std::ranges::any_of(args, is_text);
      node.has_empty = std::ranges::all_of(args, [&](Id part) { return nodes_[part].has_empty; });
      node.is_plain = false;
      break;
    case Kind::kComplement:
      each(args);
      node.has_empty = !nodes_[args[0]].has_empty;
      node.is_plain = args[0] == kNothing;
      break;
    case Kind::kRepeat:
      each(args.first(1));
      node.is_text = is_text(args[0]);
      node.has_empty = args[1] == 0 || nodes_[args[0]].has_empty;
      break;
    case Kind::kMultiples: {
      Classes classes{};
      for (int i = 0; i < 10; ++i) classes['0' + i] = static_cast<uint8_t>(1 + i);
      classes['.'] = 11;
      node.classes = classes_of(classes);
      unsigned __int128 rest = args[1];
      for (uint32_t i = 0; i < args[2]; ++i) rest = rest * 10 % args[0];
      node.has_empty = rest == 0;
      node.is_text = true;
      node.is_plain = false;
      break;
    }
  }
  return node;
}

uint32_t RegularLanguages::classes_of(const Classes& classes) {
  Classes renamed{};  // class numbers in the order of their first bytes
  std::array<int, 256> names;
  names.fill(-1);
  int n = 0;
  for (size_t i = 0; i < 256; ++i) {
    if (names[classes[i]] < 0) names[classes[i]] = n++;
    renamed[i] = static_cast<uint8_t>(names[classes[i]]);
  }
  std::array<uint64_t, sizeof(Classes) / 8> words;
  std::memcpy(words.data(), renamed.data(), sizeof(Classes));
  uint64_t hash = 0;
  for (uint64_t word : words) hash = splitmix(hash ^ word);
  const auto [begin, end] = class_index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (classes_[it->second] == renamed) return it->second;
  }
  classes_.push_back(renamed);
  std::vector<uint8_t>& first = class_bytes_.emplace_back();
  for (size_t i = 0; i < 256; ++i) {
    if (renamed[i] == first.size()) first.push_back(static_cast<uint8_t>(i));
  }
  class_index_.emplace(hash, static_cast<uint32_t>(classes_.size() - 1));
  return static_cast<uint32_t>(classes_.size() - 1);
}

uint32_t RegularLanguages::refine(uint32_t a, uint32_t b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  const auto [it, is_new] = refined_.try_emplace(uint64_t{std::min(a, b)} << 32 | std::max(a, b), 0);
  if (!is_new) return it->second;
  Classes both{};
  const size_t n = *std::ranges::max_element(classes_[b]) + size_t{1};
  std::vector<int> names((*std::ranges::max_element(classes_[a]) + size_t{1}) * n, -1);
  int n_names = 0;
  for (size_t i = 0; i < 256; ++i) {
    int& name = names[classes_[a][i] * n + classes_[b][i]];
    if (name < 0) name = n_names++;
    both[i] = static_cast<uint8_t>(name);
  }
  const uint32_t id = classes_of(both);
  refined_[uint64_t{std::min(a, b)} << 32 | std::max(a, b)] = id;
  return id;
}

RegularLanguages::Id RegularLanguages::bytes(const ByteSet& set) {
  if (set.none()) return kNothing;
  const auto it = std::ranges::find(byte_sets_, set);
  const uint32_t index = static_cast<uint32_t>(it - byte_sets_.begin());
  if (it == byte_sets_.end()) byte_sets_.push_back(set);
  return intern(Kind::kBytes, {&index, 1});
}

RegularLanguages::Id RegularLanguages::literal(std::string_view text) {
  Id id = kEmpty;
  for (size_t i = text.size(); i-- > 0;) id = concat(bytes(byte_range(uint8_t(text[i]), uint8_t(text[i]))), id);
  return id;
}

// Builds a prefix tree: texts share common prefixes, so a derivative keeps only the texts that continue with the byte.
RegularLanguages::Id RegularLanguages::literals(std::span<const std::string_view> texts) {
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  std::ranges::sort(sorted);
  const auto make = [&](auto& self, std::span<const std::string_view> group, size_t depth) -> Id {
    const std::string_view first = group.front(), last = group.back();  // their common prefix is shared by all
    if (group.size() == 1) return literal(first.substr(depth));
    const size_t shared = static_cast<size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
    if (shared > depth) {
      Id id = self(self, group, shared);
      for (size_t i = shared; i-- > depth;) id = concat(bytes(byte_range(uint8_t(first[i]), uint8_t(first[i]))), id);
      return id;
    }
    std::vector<Id> parts;
    for (size_t begin = 0, end; begin < group.size(); begin = end) {
      end = begin + 1;
      if (group[begin].size() == depth) {
        parts.push_back(kEmpty);
        continue;
      }
      const uint8_t byte = static_cast<uint8_t>(group[begin][depth]);
      while (end < group.size() && uint8_t(group[end][depth]) == byte) ++end;
      parts.push_back(concat(bytes(byte_range(byte, byte)), self(self, group.subspan(begin, end - begin), depth + 1)));
    }
    return any_of(std::move(parts));
  };
  return sorted.empty() ? kNothing : make(make, sorted, 0);
}

// Splits a range where the number of UTF-8 bytes changes, then at the borders of blocks of 64, 4,096, ... code points.
// Each piece is then a sequence of byte ranges.
RegularLanguages::Id RegularLanguages::characters(std::span<const CharRange> ranges) {
  std::vector<Id> parts;
  const auto add = [&](auto& self, char32_t low, char32_t high) -> void {
    if (low > high) return;
    for (char32_t limit : {0x7fu, 0x7ffu, 0xffffu}) {
      if (low <= limit && high > limit) return self(self, low, limit), self(self, limit + 1, high);
    }
    uint8_t from[4], to[4];
    const int n = encode(low, from);
    encode(high, to);
    for (int i = 1; i < n; ++i) {
      const char32_t block = (char32_t{1} << (6 * i)) - 1;
      if ((low & ~block) == (high & ~block)) continue;
      if ((low & block) != 0) return self(self, low, low | block), self(self, (low | block) + 1, high);
      if ((high & block) != block) return self(self, low, (high & ~block) - 1), self(self, high & ~block, high);
    }
    Id id = kEmpty;
    for (int i = n - 1; i >= 0; --i) id = concat(bytes(byte_range(from[i], to[i])), id);
    nodes_[id].is_text = true;
    parts.push_back(id);
  };
  for (auto [low, high] : ranges) add(add, low, std::min<char32_t>(high, 0x10ffff));
  return any_of(std::move(parts));
}

RegularLanguages::Id RegularLanguages::concat(Id first, Id second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  std::vector<Id> heads;
  for (; nodes_[first].kind == Kind::kConcat; first = args(nodes_[first])[1]) heads.push_back(args(nodes_[first])[0]);
  if (!heads.empty()) {
    second = concat(first, second);
    for (size_t i = heads.size(); i-- > 0;) second = concat(heads[i], second);
    return second;
  }
  if (first == kAnything && second == kAnything) return kAnything;
  const uint32_t both[] = {first, second};
  return intern(Kind::kConcat, both);
}

void RegularLanguages::flatten(Kind kind, const std::vector<Id>& parts, std::vector<Id>& out) const {
  for (Id part : parts) {
    if (nodes_[part].kind == kind) {
      const std::span<const uint32_t> inner = args(nodes_[part]);
      out.insert(out.end(), inner.begin(), inner.end());
    } else {
      out.push_back(part);
    }
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

bool RegularLanguages::has_complements(const std::vector<Id>& sorted) const {
  return std::ranges::any_of(sorted, [&](Id id) {
    return nodes_[id].kind == Kind::kComplement && std::ranges::binary_search(sorted, args(nodes_[id])[0]);
  });
}

RegularLanguages::Id RegularLanguages::any_of(std::vector<Id> parts) {
  std::vector<Id> flat;
  flatten(Kind::kAnyOf, parts, flat);
  spend(flat.size());
  std::erase(flat, kNothing);
  if (std::ranges::find(flat, kAnything) != flat.end() || has_complements(flat)) return kAnything;
  ByteSet joined;
  int n_sets = 0;
  for (Id id : flat) {
    if (nodes_[id].kind == Kind::kBytes) joined |= byte_sets_[args(nodes_[id])[0]], ++n_sets;
  }
  if (n_sets > 1) {
    std::erase_if(flat, [&](Id id) { return nodes_[id].kind == Kind::kBytes; });
    flat.push_back(bytes(joined));
    std::ranges::sort(flat);
  }
  if (any_text_ != 0 && std::ranges::binary_search(flat, any_text_)) {
    std::erase_if(flat, [&](Id id) { return id != any_text_ && nodes_[id].is_text; });
  }
  if (flat.size() > 1 && flat[0] == kEmpty &&
      std::any_of(flat.begin() + 1, flat.end(), [&](Id id) { return nodes_[id].has_empty; })) {
    flat.erase(flat.begin());
  }
  if (flat.empty()) return kNothing;
  return flat.size() == 1 ? flat[0] : intern(Kind::kAnyOf, flat);
}

RegularLanguages::Id RegularLanguages::all_of(std::vector<Id> parts) {
  std::vector<Id> flat;
  flatten(Kind::kAllOf, parts, flat);
  spend(flat.size());
  std::erase(flat, kAnything);
  if (flat.empty()) return kAnything;
  if (flat[0] == kNothing || has_complements(flat)) return kNothing;
  if (flat[0] == kEmpty) {
    return std::ranges::all_of(flat, [&](Id id) { return nodes_[id].has_empty; }) ? kEmpty : kNothing;
  }
  if (std::ranges::binary_search(flat, any_text_) &&
      std::ranges::any_of(flat, [&](Id id) { return id != any_text_ && nodes_[id].is_text; })) {
    std::erase(flat, any_text_);
  }
  return flat.size() == 1 ? flat[0] : intern(Kind::kAllOf, flat);
}

RegularLanguages::Id RegularLanguages::complement(Id part) {
  if (nodes_[part].kind == Kind::kComplement) return args(nodes_[part])[0];
  return intern(Kind::kComplement, {&part, 1});
}

RegularLanguages::Id RegularLanguages::repeat(Id part, int min, int max) {
  if (part == kNothing) return min == 0 ? kEmpty : kNothing;
  if (part == kEmpty || max == 0) return kEmpty;
  if (min == 1 && max == 1) return part;
  if (nodes_[part].has_empty) min = 0;
  if (part == kAnything) return kAnything;
  const uint32_t numbers[] = {part, static_cast<uint32_t>(min), static_cast<uint32_t>(max)};
  return intern(Kind::kRepeat, numbers);
}

// Arguments: the divisor, the remainder so far, the number of decimals still to read, and whether the point was read.
RegularLanguages::Id RegularLanguages::multiples(uint64_t divisor, int n_decimals) {
  if (divisor == 0 || divisor > UINT32_MAX)
    throw Error("the divisor {} is out of range (1 to {})", divisor, UINT32_MAX);
  const uint32_t numbers[] = {static_cast<uint32_t>(divisor), 0, static_cast<uint32_t>(n_decimals), 0};
  return intern(Kind::kMultiples, numbers);
}

RegularLanguages::Id RegularLanguages::derive_multiples(std::span<const uint32_t> numbers, uint8_t byte) {
  uint32_t next[] = {numbers[0], numbers[1], numbers[2], numbers[3]};
  if (byte == '.' && next[3] == 0) {
    next[3] = 1;
    return intern(Kind::kMultiples, next);
  }
  if (byte < '0' || byte > '9') return kNothing;
  if (next[3] == 1 && next[2] == 0) return byte == '0' ? intern(Kind::kMultiples, next) : kNothing;
  next[1] = static_cast<uint32_t>((uint64_t{next[1]} * 10 + (byte - '0')) % next[0]);
  next[2] -= next[3];
  return intern(Kind::kMultiples, next);
}

RegularLanguages::Id RegularLanguages::derive(Id id, uint8_t byte) {
  const Node& node = nodes_[id];
  if (node.kind == Kind::kNothing || node.kind == Kind::kEmpty) return kNothing;
  if (node.kind == Kind::kBytes) return byte_sets_[args(node)[0]][byte] ? kEmpty : kNothing;
  if (first_derived_[id] == kNotYet) {
    first_derived_[id] = static_cast<uint32_t>(derived_.size());
    derived_.resize(derived_.size() + class_bytes_[node.classes].size(), kNotYet);
  }
  const size_t at = first_derived_[id] + classes_[node.classes][byte];
  if (derived_[at] == kNotYet) {
    const Id next = derive_now(id, byte);
    derived_[at] = next;
  }
  return derived_[at];
}

size_t RegularLanguages::n_bytes() const {
  constexpr size_t kEntry = 48;  // approximate bytes per entry of index_
  return nodes_.size() * (sizeof(Node) + kEntry + 2 * sizeof(uint32_t)) +
         (args_.size() + derived_.size()) * sizeof(uint32_t) + rows_.size() * sizeof(rows_[0]) +
         classes_.size() * (sizeof(Classes) + kEntry);
}

RegularLanguages::Id RegularLanguages::derive_now(Id id, uint8_t byte) {
  const Node node = nodes_[id];
  spend(1 + node.count);
  const std::vector<uint32_t> parts(args_.begin() + node.first, args_.begin() + node.first + node.count);
  switch (node.kind) {
    case Kind::kConcat: {
      const Id rest = concat(derive(parts[0], byte), parts[1]);
      return nodes_[parts[0]].has_empty ? any_of({rest, derive(parts[1], byte)}) : rest;
    }
    case Kind::kAnyOf: {
      std::vector<Id> next;
      for (Id part : parts) next.push_back(derive(part, byte));
      return any_of(std::move(next));
    }
    case Kind::kAllOf: {
      std::vector<Id> next;
      for (Id part : parts) {
        next.push_back(derive(part, byte));
        if (next.back() == kNothing) return kNothing;
      }
      return all_of(std::move(next));
    }
    case Kind::kComplement: return complement(derive(parts[0], byte));
    case Kind::kRepeat: {
      const Id next = derive(parts[0], byte);
      if (next == kNothing) return kNothing;
      const int min = static_cast<int>(parts[1]), max = static_cast<int>(parts[2]);
      return concat(next, repeat(parts[0], std::max(0, min - 1), max == kNoLimit ? kNoLimit : max - 1));
    }
    case Kind::kMultiples: return derive_multiples(parts, byte);
    default: return kNothing;
  }
}

RegularLanguages::Life RegularLanguages::known_life(Id id) const {
  if (id == kNothing) return Life::kDead;
  return nodes_[id].is_plain || nodes_[id].has_empty ? Life::kLive : life_[id];
}

bool RegularLanguages::is_live(Id id) {
  const Life known = known_life(id);
  return known == Life::kUnknown ? search_life(id) : known == Life::kLive;
}

// Depth-first search for a state that accepts the empty text. If a state is found, all states on the path to that state
// are live. If none is found, all visited states are dead.
bool RegularLanguages::search_life(Id id) {
  struct Step {
    Id at;
    size_t n_tried;  // byte classes
  };
  std::unordered_set<Id> seen{id};
  std::vector<Step> path{{id, 0}};
  while (!path.empty()) {
    Step& last = path.back();
    const std::vector<uint8_t>& bytes = class_bytes_[nodes_[last.at].classes];
    if (last.n_tried == bytes.size()) {
      path.pop_back();
      continue;
    }
    const Id next = derive(last.at, bytes[last.n_tried++]);
    const Life known = known_life(next);
    if (known == Life::kLive || seen.size() > kMaxSearched) {
      for (const Step& step : path) life_[step.at] = Life::kLive;
      return true;
    }
    if (known == Life::kUnknown && seen.insert(next).second) path.push_back({next, 0});
  }
  for (Id dead : seen) life_[dead] = Life::kDead;
  return false;
}

// Breadth-first search.
std::optional<std::string> RegularLanguages::example(Id id) {
  struct Found {
    Id at;
    size_t from;
    uint8_t byte;
  };
  std::vector<Found> found{{id, 0, 0}};
  std::unordered_set<Id> seen{kNothing, id};
  for (size_t i = 0; i < found.size() && seen.size() <= kMaxSearched; ++i) {
    const Id at = found[i].at;
    if (has_empty(at)) {
      std::string text;
      for (size_t k = i; k != 0; k = found[k].from) text += static_cast<char>(found[k].byte);
      std::ranges::reverse(text);
      return text;
    }
    const std::vector<uint8_t> bytes = class_bytes_[nodes_[at].classes];
    for (uint8_t byte : bytes) {
      if (const Id next = derive(at, byte); seen.insert(next).second) found.push_back({next, i, byte});
    }
  }
  return std::nullopt;
}

const std::array<RegularLanguages::Id, 256>& RegularLanguages::row(Id id) {
  if (row_of_[id] != kNotYet) return rows_[row_of_[id]];
  if (rows_.size() >= kMaxRows) {
    rows_.clear();
    std::ranges::fill(row_of_, kNotYet);
  }
  std::array<Id, 256> by_class;
  const uint32_t classes = nodes_[id].classes;
  for (size_t i = 0; i < class_bytes_[classes].size(); ++i) {
    const Id next = derive(id, class_bytes_[classes][i]);
    by_class[i] = is_live(next) ? next : kNothing;
  }
  row_of_[id] = static_cast<uint32_t>(rows_.size());
  std::array<Id, 256>& row = rows_.emplace_back();
  for (size_t byte = 0; byte < 256; ++byte) row[byte] = by_class[classes_[classes][byte]];
  return row;
}

bool RegularLanguages::allows_any_text(Id id) const {
  const Node& node = nodes_[id];
  if (node.kind == Kind::kAnyOf) return std::ranges::any_of(args(node), [&](Id part) { return allows_any_text(part); });
  if (node.kind != Kind::kConcat) return id == any_text_;
  return args(node)[0] == any_text_ && nodes_[args(node)[1]].is_plain;
}

std::pair<int, int> RegularLanguages::char_counts(Id id) const {
  int min = 0, max = 0;
  while (true) {
    const bool is_pair = nodes_[id].kind == Kind::kConcat;  // for example, a repetition after its first character
    const Id head = is_pair ? args(nodes_[id])[0] : id;
    const Node& node = nodes_[head];
    if (head == any_char_) {
      ++min;
      max += max != kNoLimit;
    } else if (node.kind == Kind::kRepeat && args(node)[0] == any_char_) {
      const int last = static_cast<int>(args(node)[2]);
      min += static_cast<int>(args(node)[1]);
      max = max == kNoLimit || last == kNoLimit ? kNoLimit : max + last;
    } else if (head != kEmpty) {
      return {-1, -1};
    }
    if (!is_pair) return {min, max};
    id = args(nodes_[id])[1];
  }
}

}  // namespace ingot
