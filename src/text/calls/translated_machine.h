// TranslatedMachine: a base class for machines that read arguments in a syntax other than JSON. The machine translates
// each byte to JSON as AnswerParser does, and passes the JSON to a second machine, which enforces the schema. So the
// schema holds for the JSON that clients get. Derived classes: TaggedMachine, ValueMachine.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/calls/marker_spelling.h"
#include "text/grammar/languages/automaton.h"

namespace ingot {

class TranslatedMachine : public Automaton {
 public:
  void use_meter(const SharedMeter& meter) final;
  size_t n_bytes() const final;
  GrammarState start() final;
  GrammarState step(GrammarState state, uint8_t byte) final;
  bool accepts(GrammarState state) final;
  GrammarState fresh(GrammarState state) final;

 protected:
  // The position in the text. Each syntax defines its phases and flags.
  struct Place {
    GrammarState json;  // state of the machine that reads the JSON
    uint8_t phase = 0, flags = 0, quote = 0;
    uint16_t at = 0;          // position in a fixed text, or a count
    std::string text;         // open brackets, a name, or the rest of a fixed text
    TerminatorSearch search;  // search for the end of a text
    std::string key() const;
  };

  explicit TranslatedMachine(std::unique_ptr<Automaton> json) : json_(std::move(json)) { json_->use_meter(meter_); }

  virtual Place begin() = 0;
  // Reads a byte. Returns false if no text continues with this byte; the place is invalid then.
  virtual bool read(Place& place, char c) = 0;
  virtual bool may_end(const Place& place) = 0;

  // put() passes JSON to the machine; can_put() returns whether the machine would accept the JSON.
  bool put(Place& place, std::string_view json);
  bool can_put(const Place& place, std::string_view json);
  bool can_close(const Place& place);  // whether a last brace would complete the JSON
  bool can_go_on(const Place& place);  // whether a fresh text may have more bytes
  void spend(size_t n_steps);

  std::unique_ptr<Automaton> json_;

 private:
  static constexpr uint32_t kFirst = 3;  // places below are dead or reserved
  GrammarState state_of(const Place& place);

  std::unordered_map<std::string, uint32_t> index_;
  std::vector<Place> places_;
  size_t n_text_bytes_ = 0;                                           // of the texts in index_ and places_
  std::vector<std::unique_ptr<std::array<GrammarState, 256>>> rows_;  // rows of the steps taken so far
  std::vector<uint32_t> with_rows_;
};

}  // namespace ingot
