// A random grammar whose every step costs work, for tests of slow constraints. Each token is one character.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/splitmix.h"
#include "text/grammar/masks/constraint.h"

namespace ingot {

class DrawnMachine final : public Automaton {
 public:
  static constexpr char kFirst = '0';  // the text of token 0
  DrawnMachine(uint64_t seed, int n_vocab, size_t work) : seed_(seed), n_vocab_(n_vocab), work_(work) {}

  size_t n_bytes() const override { return 0; }
  GrammarState start() override { return {1, 0, 0}; }
  GrammarState step(GrammarState state, uint8_t byte) override {
    meter_->spend(work_);
    const int token = byte - kFirst;
    if (state.is_dead() || state.place == kOver || token < 0 || token >= n_vocab_) return {};
    const uint64_t of_place = splitmix(seed_ ^ state.place), of_step = splitmix(of_place + byte);
    const bool is_only = token == static_cast<int>(of_place % static_cast<uint64_t>(n_vocab_));
    const bool has_one = of_place >> 32 & 1;  // only one token may follow
    if (!is_only && (has_one || of_step % 3 == 0)) return {};
    return {of_step % 64 == 0 ? kOver : 2 + static_cast<uint32_t>(of_step >> 32) % 40, 0, 0};
  }
  bool accepts(GrammarState state) override { return state.place == kOver; }

 private:
  static constexpr uint32_t kOver = 100;
  const uint64_t seed_;
  const int n_vocab_;
  const size_t work_;  // of each step
};

// A grammar over n_vocab tokens, at most 64. work: of each step. ends: tokens that end an answer, and are no text.
inline std::shared_ptr<Constraint> drawn_constraint(uint64_t seed, int n_vocab, size_t work,
                                                    std::vector<int32_t> ends = {}) {
  std::vector<std::string> bytes;
  for (int i = 0; i < n_vocab; ++i) bytes.emplace_back(1, static_cast<char>(DrawnMachine::kFirst + i));
  for (const int32_t end : ends) bytes[static_cast<size_t>(end)].clear();
  const auto encode = [](std::string_view text) {
    std::vector<int32_t> tokens;
    for (const char c : text) tokens.push_back(c - DrawnMachine::kFirst);
    return tokens;
  };
  return std::make_shared<Constraint>(
      std::make_unique<DrawnMachine>(seed, n_vocab, work),
      std::make_shared<GrammarVocabulary>(std::move(bytes), std::move(ends), encode));
}

}  // namespace ingot
