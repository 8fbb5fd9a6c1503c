// A machine for text that stands for JSON in another syntax. Each byte is translated as AnswerParser translates it, and
// the JSON goes to a machine that knows which JSON is allowed. So the schema is enforced of what clients get, whatever
// the syntax. argument_machines.h has the syntaxes.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/calls/marker_spelling.h"
#include "text/grammar/automaton.h"

namespace ingot {

class TranslatedMachine : public Automaton {
 public:
  GrammarState start() final;
  GrammarState step(GrammarState state, uint8_t byte) final;
  bool accepts(GrammarState state) final;
  bool is_word(uint32_t) const final { return false; }
  uint32_t step_word(uint32_t, uint8_t) final { return kDead; }
  uint32_t word_outcome(uint32_t place) final { return place; }
  GrammarState end_word(GrammarState) final { return {}; }
  std::pair<int, int> free_chars(uint32_t) const final { return {-1, -1}; }

 protected:
  // Where in the text. The syntaxes say what phases and flags mean.
  struct Place {
    GrammarState json;  // of the machine that reads the JSON
    uint8_t phase = 0, flags = 0, quote = 0;
    uint16_t at = 0;          // how far in a fixed text; or a count
    std::string text;         // open brackets, or a name, or what a fixed text still has
    TerminatorSearch search;  // of what ends a text
    std::string key() const;
  };

  explicit TranslatedMachine(std::unique_ptr<Automaton> json) : json_(std::move(json)) {}

  virtual Place begin() = 0;
  // Goes on by a byte. False where no text goes on so: the place is of no use then.
  virtual bool read(Place& place, char c) = 0;
  virtual bool may_end(const Place& place) = 0;

  // Gives JSON to the machine, or asks whether it would take it.
  bool put(Place& place, std::string_view json);
  bool can_put(const Place& place, std::string_view json);
  bool can_close(const Place& place);  // with a last brace the JSON is whole

  std::unique_ptr<Automaton> json_;

 private:
  static constexpr uint32_t kFirst = 3;  // places below are dead or reserved
  GrammarState state_of(const Place& place);

  std::unordered_map<std::string, uint32_t> index_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<std::array<GrammarState, 256>>> rows_;  // of steps that have been taken
  std::vector<uint32_t> with_rows_;
};

}  // namespace ingot
