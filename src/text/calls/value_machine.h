// ValueMachine: reads arguments in Gemma's syntax, {key:value}, or in Python's, key=value with commas. The machine
// accepts a subset of the dialects that ValueReader reads. White space between values is not allowed, except for one
// blank after Python's commas and colons.
#pragma once
#include "text/calls/translated_machine.h"

namespace ingot {

class ValueMachine final : public TranslatedMachine {
 public:
  ValueMachine(const CallFormat& format, const MarkerSpelling& spelling, std::unique_ptr<Automaton> json);

 private:
  Place begin() override;
  bool read(Place& place, char c) override;
  bool may_end(const Place& place) override;

  bool on_value(Place& place, char c);
  bool on_key(Place& place, char c);
  bool on_bare_key(Place& place, char c);
  bool add_to_key(Place& place, char c);
  bool can_end_key(const Place& place, int& budget);
  bool on_mark(Place& place, char c);
  bool on_marked(Place& place, char c);
  bool on_quoted(Place& place, char c);
  bool on_escape(Place& place, char c);
  bool on_hex(Place& place, char c);
  bool on_literal(Place& place, char c);
  bool on_after(Place& place, char c);
  bool begin_string(Place& place, char c, bool is_key);
  bool end_string(Place& place);
  bool open(Place& place, char c);

  const bool python_;
  const std::string mark_;  // Gemma's mark around strings, in the form that the grammar uses
  const Terminator mark_end_;
};

}  // namespace ingot
