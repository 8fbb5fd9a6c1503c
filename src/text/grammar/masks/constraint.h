// Constraint: a compiled grammar over a model's tokens, shared by all requests that use it. Matcher: the progress of
// one answer through a Constraint. A call may be too slow for a thread that others wait for. Such a thread makes quick
// calls, and another thread repeats a call that was not quick.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/masks/vocabulary.h"
#include "text/grammar/masks/word_masks.h"

namespace ingot {

// What a call may do. A full call waits for other threads that use the same grammar. A quick call throws NotQuick and
// changes nothing if it needs more than max_work or if another thread uses the grammar.
struct Effort {
  size_t max_work = WorkMeter::kMaxWork;
  bool is_quick = false;
};
inline constexpr Effort kFullEffort{}, kQuickEffort{size_t{1} << 14, true};  // about 0.1 s, 3 ms

class NotQuick : public std::exception {
 public:
  const char* what() const noexcept override { return "the constraint needs more work than a quick call may do"; }
};

class Constraint {
 public:
  Constraint(std::unique_ptr<Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary);

  // Makes the mask of an answer's first token. Throws the errors of Matcher::mask.
  void prepare();

  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  size_t n_bytes() const { return n_bytes_; }  // current size of the masks and the machine
  // Whether new answers should begin with a new machine: this one has become too large, because a machine keeps every
  // state that it has met, or an allocation failed in a call and left this one's tables half changed.
  bool is_worn() const { return is_worn_; }
  // Whether one of the last calls was not quick.
  bool is_slow() const { return n_calls_slow_ > 0; }

 private:
  friend class Matcher;

  template <class F>
  auto metered(const Effort& effort, GrammarState state, size_t& work_left, F call);
  void note_work(size_t work);
  std::shared_ptr<const TokenMask> mask(GrammarState state);
  const std::string& forced(GrammarState state);
  std::shared_ptr<const TokenMask> make_mask(GrammarState state);
  void count_bytes();
  bool add_new_word(GrammarState state, TokenMask& mask);
  void add_all_tokens(GrammarState state, TokenMask& mask);
  void add_word(GrammarState state, TokenMask& mask);
  void add_free_word(GrammarState fresh, GrammarState state, TokenMask& mask);
  void add_known_end(const std::string& text, GrammarState state, TokenMask& mask);
  void add_closers(const CloserSet& closers, GrammarState over, TokenMask& mask);
  const CloserSet& closers_before(GrammarState over);
  GrammarState read(GrammarState state, std::string_view text);
  void set_allowed(int32_t token, GrammarState after, TokenMask& mask);
  void add_if_allowed(int32_t token, GrammarState state, TokenMask& mask);
  void add_tokens(const TokenTrie& trie, GrammarState state, uint32_t first, uint32_t last, TokenMask& mask);

  std::mutex mutex_;  // guards all members below
  std::unique_ptr<Automaton> automaton_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::unordered_map<GrammarState, std::shared_ptr<const TokenMask>> masks_;
  WordMasks words_;
  std::unordered_map<GrammarState, CloserSet> closers_before_;
  CloserSet closers_now_;  // for a state that is not cached
  std::unordered_map<GrammarState, std::string> forced_;
  size_t n_mask_bytes_ = 0;
  size_t n_first_bytes_ = 0;  // of the machine, before the first step
  GrammarState start_;
  bool may_be_empty_ = false;  // the answer may end before its first token
  bool is_broken_ = false;     // an allocation failed in a call
  std::atomic<bool> is_worn_{false};
  std::atomic<int> n_calls_slow_{0};  // calls for which is_slow() stays true
  std::atomic<size_t> n_bytes_{0};  // atomic, so that readers need not wait while a mask is built
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  // The functions with an effort throw Error if the grammar's work or memory exceeds its limits. The limit of work is
  // one of a call and one of the answer, which grows with the number of its tokens. They throw std::bad_alloc if an
  // allocation fails, and from then on in all answers that share the constraint.

  // The tokens that may come next. Includes the end tokens if the answer may end here.
  std::shared_ptr<const TokenMask> mask(const Effort& effort = kFullEffort);
  // Advances by one token. If the mask does not allow the token, returns false and changes nothing.
  bool accept(int32_t token, const Effort& effort = kFullEffort);
  // Undoes the last n tokens.
  void roll_back(int n);
  bool can_end() const { return places_.back().can_end; }  // the answer may end here
  bool is_over(const Effort& effort = kFullEffort);        // the answer must end here
  // The bytes with which every allowed continuation begins; at most kMaxForced.
  static constexpr size_t kMaxForced = 256;
  std::string forced(const Effort& effort = kFullEffort);
  int n_tokens() const { return static_cast<int>(places_.size()) - 1; }

  // For an answer of n tokens: all calls together may do this work. A model's step takes some ms for a token, too.
  static constexpr size_t kAnswerWork = 16 * WorkMeter::kMaxWork, kTokenWork = WorkMeter::kMaxWork / 8;

 private:
  struct Place {
    GrammarState state;
    bool can_end;
  };
  template <class F>
  auto metered(const Effort& effort, F call);

  std::shared_ptr<Constraint> constraint_;
  std::vector<Place> places_;  // before each token, and the current one
  size_t work_left_ = kAnswerWork;
};

}  // namespace ingot
