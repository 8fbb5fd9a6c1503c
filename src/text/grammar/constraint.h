// Constraint: a compiled grammar over a model's tokens, shared by all requests that use it. Matcher: the progress of
// one answer through a Constraint.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/vocabulary.h"
#include "text/grammar/word_masks.h"

namespace ingot {

class Constraint {
 public:
  Constraint(std::unique_ptr<Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary);

  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  size_t n_bytes() const { return n_bytes_; }  // current size of the masks and the machine
  // Whether the machine has become so large that new answers should begin with a new one. A machine keeps every state
  // that it has met.
  bool has_grown() const { return has_grown_; }

 private:
  friend class Matcher;

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
  std::atomic<bool> has_grown_{false};
  std::atomic<size_t> n_bytes_{0};  // atomic, so that readers need not wait while a mask is built
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  // The tokens that may come next. Includes the end tokens if the answer may end here.
  std::shared_ptr<const TokenMask> mask();
  // Advances by one token. If the mask does not allow the token, returns false and changes nothing.
  bool accept(int32_t token);
  // Undoes the last n tokens.
  void roll_back(int n);
  bool can_end() const { return can_end_; }  // the answer may end here
  bool is_over();                            // the answer must end here
  // The bytes with which every allowed continuation begins; at most kMaxForced.
  static constexpr size_t kMaxForced = 256;
  std::string forced();
  int n_tokens() const { return static_cast<int>(states_.size()) - 1; }

 private:
  std::shared_ptr<Constraint> constraint_;
  std::vector<GrammarState> states_;  // before each token, and the current state
  bool can_end_ = false;
};

}  // namespace ingot
