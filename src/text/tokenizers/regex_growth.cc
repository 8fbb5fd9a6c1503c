#include "text/tokenizers/regex_growth.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot {
namespace {

constexpr int kMaxDepth = 250;          // groups; PCRE2 has the same limit
constexpr size_t kMaxStates = 4096, kMaxEdges = 200'000, kMaxSteps = 100'000;
constexpr size_t kMaxLoopStates = 100;  // states of one loop, whose pairs are checked
constexpr size_t kMaxSymbols = 128;     // symbols whose characters are looked up
constexpr int kNoLimit = -1;

using States = std::vector<int>;

struct Edge {
  int to;
  bool atomic = false;  // within a group that never backtracks: alternatives from a loop around it are never tried
  bool doubled = false;  // two loops create this edge
};

struct Automaton {
  std::vector<std::string> symbols;      // for each state, the expression of its character
  std::vector<std::vector<Edge>> edges;  // for each state, the states that may follow
};

// A part of the expression: the states where it can begin and end.
struct Part {
  bool nullable = true;
  States first, last;
};

void append(States& to, const States& from) { to.insert(to.end(), from.begin(), from.end()); }

class Builder {
 public:
  explicit Builder(std::string_view pattern) : pattern_(pattern) {}

  Automaton build() {
    alternatives(0, false);
    if (at_ < pattern_.size()) fail("one ')' too many");
    return std::move(automaton_);
  }

 private:
  struct Count {
    int low = 1, high = 1;
    bool possessive = false;
  };

  Part alternatives(int depth, bool ignores_case) {
    if (depth > kMaxDepth) fail("groups that nest too deeply");
    Part all{.nullable = false};
    for (;;) {
      Part one = sequence(depth, ignores_case);
      all.nullable |= one.nullable;
      append(all.first, one.first);
      append(all.last, one.last);
      if (!starts_with("|")) return all;
      ++at_;
    }
  }

  Part sequence(int depth, bool& ignores_case) {
    Part all;
    while (at_ < pattern_.size() && pattern_[at_] != '|' && pattern_[at_] != ')')
      append_part(all, repeated(depth, ignores_case));
    return all;
  }

  void append_part(Part& all, const Part& next) {
    connect(all.last, next.first);
    if (all.nullable) append(all.first, next.first);
    if (!next.nullable) all.last.clear();
    append(all.last, next.last);
    all.nullable &= next.nullable;
  }

  // One atom with its count. Copies are made by parsing the atom again.
  Part repeated(int depth, bool& ignores_case) {
    const size_t begin = at_, first_state = automaton_.symbols.size();
    Part copy = atom(depth, ignores_case);
    const size_t count_at = at_;
    const Count count = read_count();
    const size_t end = at_;
    Part all;
    States last;  // of all copies at which the repetition may end
    const int n_copies = std::max({1, count.low, count.high});
    for (int i = 1; i <= n_copies; ++i) {
      if (i > 1) {
        at_ = begin;
        copy = atom(depth, ignores_case);
        at_ = count_at;
      }
      append_part(all, copy);
      if (i >= count.low) append(last, all.last);
    }
    at_ = end;
    if (count.high == kNoLimit) connect(copy.last, copy.first);
    if (count.high == 0) return {};
    if (n_copies > 1) std::sort(last.begin(), last.end());
    last.erase(std::unique(last.begin(), last.end()), last.end());
    if (count.possessive) seal(first_state);
    return {all.nullable || count.low == 0, all.first, last};
  }

  Part atom(int depth, bool& ignores_case) {
    if (++n_steps_ > kMaxSteps) fail("too many parts");
    switch (pattern_[at_]) {
      case '(': return group(depth, ignores_case);
      case '\\': return escape(ignores_case);
      case '[': return state(class_end() - at_, ignores_case);
      case '^':
      case '$': ++at_; return {};
      case '.': ++at_; return add_state("(?s:.)");
      default: return state(std::max<size_t>(1, utf8_length(pattern_.substr(at_))), ignores_case);
    }
  }

  Part group(int depth, bool& ignores_case) {
    const size_t first_state = automaton_.symbols.size();
    bool inner_case = ignores_case, looks = false, atomic = false;
    ++at_;
    if (starts_with("*")) fail("a verb");
    if (starts_with("?")) {
      ++at_;
      constexpr std::string_view kLooks[] = {"=", "!", "<=", "<!"};
      const auto look =
          std::find_if(std::begin(kLooks), std::end(kLooks), [&](auto text) { return starts_with(text); });
      if (look != std::end(kLooks)) {
        looks = true;
        at_ += look->size();
      } else if (starts_with(">")) {
        atomic = true;
        ++at_;
      } else if (read_flags(inner_case)) {
        ignores_case = inner_case;  // (?i) holds for the rest of its group
        return {};
      }
    }
    Part inside = alternatives(depth + 1, inner_case);
    if (!starts_with(")")) fail("a group without ')'");
    ++at_;
    if (atomic) seal(first_state);
    return looks ? Part{} : inside;
  }

  // Reads i-m: or :, up to the colon; or i) with the bracket, and then returns true.
  bool read_flags(bool& ignores_case) {
    bool on = true;
    for (; at_ < pattern_.size(); ++at_) {
      const char c = pattern_[at_];
      if (c == ':' || c == ')') return pattern_[at_++] == ')';
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        ignores_case = on;
      } else if (c != 's' && c != 'm') {
        break;
      }
    }
    fail("a group of an unsupported kind");
  }

  Part escape(bool ignores_case) {
    constexpr std::string_view kNoWidth = "bBAzZG", kBeyond = "123456789gkKRXQEC";
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\\';
    if (kBeyond.find(c) != kBeyond.npos) fail("'\\" + std::string(1, c) + "'");
    if (kNoWidth.find(c) != kNoWidth.npos) {
      at_ += 2;
      return {};
    }
    size_t size = 1 + std::max<size_t>(1, utf8_length(pattern_.substr(at_ + 1)));
    const std::string_view rest = pattern_.substr(at_);
    if ((c == 'p' || c == 'P' || c == 'x') && rest.substr(2).starts_with('{')) {
      size = rest.find('}') + 1;
    } else if (c == 'p' || c == 'P') {
      size = 3;
    } else if (c == 'x') {
      size = 2 + std::min<size_t>(2, std::min(rest.size(), rest.find_first_not_of("0123456789abcdefABCDEF", 2)) - 2);
    }
    return state(size, ignores_case);
  }

  // The position after the bracket that closes the class.
  size_t class_end() const {
    size_t i = at_ + 1;
    if (i < pattern_.size() && pattern_[i] == '^') ++i;
    for (const size_t first = i; i < pattern_.size(); ++i) {
      if (pattern_[i] == '\\') {
        ++i;
      } else if (pattern_.substr(i).starts_with("[:") && pattern_.find(":]", i) != pattern_.npos) {
        i = pattern_.find(":]", i) + 1;
      } else if (pattern_[i] == ']' && i > first) {
        return i + 1;
      }
    }
    fail("a class without ']'");
  }

  Count read_count() {
    Count count;
    if (starts_with("*") || starts_with("+")) {
      count = {pattern_[at_] == '+', kNoLimit};
      ++at_;
    } else if (starts_with("?")) {
      count = {0, 1};
      ++at_;
    } else if (!read_braces(count)) {
      return count;
    }
    count.possessive = starts_with("+");
    if (count.possessive || starts_with("?")) ++at_;
    return count;
  }

  // Reads {3}, {3,} or {3,5}; any other text is literal.
  bool read_braces(Count& count) {
    if (!starts_with("{")) return false;
    size_t i = at_ + 1;
    auto number = [&](int& value) {
      const size_t begin = i;
      for (value = 0; i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9'; ++i)
        value = std::min(value * 10 + pattern_[i] - '0', 1 << 20);
      return i > begin;
    };
    if (!number(count.low)) return false;
    count.high = count.low;
    if (i < pattern_.size() && pattern_[i] == ',') {
      ++i;
      if (!number(count.high)) count.high = kNoLimit;
    }
    if (i >= pattern_.size() || pattern_[i] != '}') {
      count = {};
      return false;
    }
    at_ = i + 1;
    return true;
  }

  Part state(size_t size, bool ignores_case) {
    const std::string_view text = pattern_.substr(at_, size);
    at_ += text.size();
    return add_state(ignores_case ? "(?i:" + std::string(text) + ")" : std::string(text));
  }

  Part add_state(std::string symbol) {
    if (automaton_.symbols.size() >= kMaxStates) fail("too many repetitions");
    const int id = static_cast<int>(automaton_.symbols.size());
    automaton_.symbols.push_back(std::move(symbol));
    automaton_.edges.emplace_back();
    return {false, {id}, {id}};
  }

  void connect(const States& from, const States& to) {
    n_edges_ += from.size() * to.size();
    if (n_edges_ > kMaxEdges) fail("too many paths through it");
    for (const int state : from) {
      std::vector<Edge>& edges = automaton_.edges[state];
      for (const int next : to) {
        const auto known = std::find_if(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.to == next; });
        if (known == edges.end()) {
          edges.push_back({next});
        } else if (!known->atomic) {
          known->doubled = true;
        }
      }
    }
  }

  void seal(size_t first_state) {
    for (size_t i = first_state; i < automaton_.edges.size(); ++i)
      for (Edge& edge : automaton_.edges[i]) edge.atomic = true;
  }

  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("the expression '{}' has {} (at {}), so ingot cannot bound its running time: not supported",
                printable(pattern_, 128), printable(what), at_);
  }

  std::string_view pattern_;
  size_t at_ = 0, n_steps_ = 0, n_edges_ = 0;
  Automaton automaton_;
};

// States that reach each other have the same loop number; -1 for states in no loop (Kosaraju's algorithm).
class Loops {
 public:
  explicit Loops(const Automaton& automaton) : n_(automaton.edges.size()), next_(n_), before_(n_), loop_of_(n_, -1) {
    for (size_t i = 0; i < n_; ++i)
      for (const Edge& edge : automaton.edges[i]) {
        next_[i].push_back(edge.to);
        before_[edge.to].push_back(static_cast<int>(i));
      }
    std::vector<bool> seen(n_);
    States order;
    for (size_t i = 0; i < n_; ++i) visit(next_, static_cast<int>(i), seen, order);
    seen.assign(n_, false);
    for (size_t i = n_; i-- > 0;) {
      States members;
      visit(before_, order[i], seen, members);
      const bool is_loop =
          members.size() > 1 || (members.size() == 1 && std::ranges::count(next_[members[0]], members[0]) > 0);
      if (!is_loop) continue;
      for (const int state : members) loop_of_[state] = static_cast<int>(loops_.size());
      loops_.push_back(std::move(members));
    }
  }
  const std::vector<States>& all() const { return loops_; }
  bool together(int a, int b) const { return loop_of_[a] == loop_of_[b]; }

 private:
  // Visits all reachable states that are not seen yet; each comes after the states to which it leads.
  static void visit(const std::vector<States>& next, int from, std::vector<bool>& seen, States& order) {
    if (seen[from]) return;
    seen[from] = true;
    std::vector<std::pair<int, size_t>> path{{from, 0}};
    while (!path.empty()) {
      auto& [state, i] = path.back();
      if (i == next[state].size()) {
        order.push_back(state);
        path.pop_back();
        continue;
      }
      const int other = next[state][i++];
      if (seen[other]) continue;
      seen[other] = true;
      path.emplace_back(other, 0);
    }
  }

  size_t n_;
  std::vector<States> next_, before_, loops_;
  States loop_of_;
};

class LoopCheck {
 public:
  LoopCheck(std::string_view pattern, const Automaton& automaton, const CharactersOf& characters_of)
      : pattern_(pattern), automaton_(automaton), loops_(automaton), characters_of_(characters_of) {}

  void check() {
    for (const States& loop : loops_.all()) {
      if (loop.size() > kMaxLoopStates)
        throw Error("the expression '{}' repeats {} characters and classes at once: at most {} are supported",
                    printable(pattern_, 128), loop.size(), kMaxLoopStates);
      check(loop);
    }
  }

 private:
  void check(const States& loop) {
    std::vector<std::pair<int, int>> open;
    std::set<std::pair<int, int>> seen;
    // Extends both paths by one character: they meet, or form a pair to follow.
    auto step = [&](int a, int b) {
      for (const Edge& left : automaton_.edges[a])
        for (const Edge& right : automaton_.edges[b]) {
          if (!loops_.together(a, left.to) || !loops_.together(b, right.to)) continue;
          if (left.to == right.to) {
            if (a != b || left.doubled) refuse(left.to);
          } else if (overlap(left.to, right.to) && seen.emplace(left.to, right.to).second) {
            open.emplace_back(left.to, right.to);
          }
        }
    };
    for (const int state : loop) step(state, state);
    while (!open.empty()) {
      const auto [a, b] = open.back();
      open.pop_back();
      step(a, b);
    }
  }

  bool overlap(int a, int b) {
    const std::string &one = automaton_.symbols[a], &other = automaton_.symbols[b];
    if (one == other) return true;
    const std::vector<uint64_t>&left = characters(one), &right = characters(other);
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if ((left[i] & right[i]) != 0) return true;
    return false;
  }

  const std::vector<uint64_t>& characters(const std::string& symbol) {
    const auto [known, is_new] = known_.try_emplace(symbol);
    if (known_.size() > kMaxSymbols)
      throw Error("the expression '{}' repeats more than {} different classes: not supported", printable(pattern_, 128),
                  kMaxSymbols);
    if (is_new) known->second = characters_of_(symbol);
    return known->second;
  }

  [[noreturn]] void refuse(int state) const {
    throw Error("the expression '{}' may take exponential time: there are exponentially many ways to repeat '{}' in it",
                printable(pattern_, 128), printable(automaton_.symbols[state], 64));
  }

  std::string_view pattern_;
  const Automaton& automaton_;
  const Loops loops_;
  const CharactersOf& characters_of_;
  std::map<std::string, std::vector<uint64_t>> known_;
};

}  // namespace

void refuse_exponential(std::string_view pattern, const CharactersOf& characters_of) {
  const Automaton automaton = Builder(pattern).build();
  LoopCheck(pattern, automaton, characters_of).check();
}

}  // namespace ingot
