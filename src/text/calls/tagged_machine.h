// Parameters in tags (CallSyntax::kTagged): param_begin KEY key_end VALUE param_end, one after another. The parameter's
// kind decides whether a value is a plain string or JSON.
#pragma once
#include "text/calls/parameter_types.h"
#include "text/calls/translated_machine.h"

namespace ingot {

class TaggedMachine final : public TranslatedMachine {
 public:
  TaggedMachine(const CallFormat& format, const MarkerSpelling& spelling, ParameterKinds kinds,
                std::unique_ptr<Automaton> json);

 private:
  Place begin() override;
  bool read(Place& place, char c) override;
  bool may_end(const Place& place) override;

  // Each function reads a byte in one phase.
  bool on_begin(Place& place, char c);
  bool on_key(Place& place, char c);
  bool on_fixed(Place& place, char c);
  bool on_choice(Place& place, char c);
  bool on_value(Place& place, char c);
  bool on_text(Place& place, char c);
  bool on_json(Place& place, char c);

  void add_to_key(Place& place, char c);
  bool begins_known(const std::string& text) const;  // whether some parameter's name begins with `text`
  bool end_key(Place& place);
  bool begin_value(Place& place, ParameterKind kind);
  bool text_byte(Place& place, char c);
  bool end_text(Place& place);
  bool is_text_alive(const Place& place);
  bool json_byte(Place& place, char c);
  bool is_value_whole(const Place& place);
  void fixed(Place& place, std::string text, uint8_t next);

  const CallFormat& format_;
  const ParameterKinds kinds_;
  const Terminator key_end_, param_end_;
  const std::string param_begin_, value_begin_, string_begin_;  // in the form that the grammar uses
};

}  // namespace ingot
