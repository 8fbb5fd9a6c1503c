#include "text/calls/argument_machines.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "text/calls/parameter_types.h"
#include "text/calls/tagged_machine.h"
#include "text/calls/value_machine.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

bool is_word(char c) {
  return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Whether the model can write the parameter's name. Syntaxes other than kPython and kTagged can quote any name.
bool can_write(const CallFormat& format, std::string_view name) {
  constexpr size_t kMaxPlainName = 256;
  if (format.syntax == CallSyntax::kPython)
    return !name.empty() && name.size() <= kMaxPlainName && std::ranges::all_of(name, is_word);
  if (format.syntax != CallSyntax::kTagged) return true;
  return name.size() <= kMaxPlainName && name.find(trim(format.key_end)) == name.npos && trim(name) == name;
}

}  // namespace

std::unique_ptr<Automaton> make_arguments_machine(const CallFormat& format, const MarkerSpelling& spelling,
                                                  const Json& schema, std::unique_ptr<Automaton> json) {
  ParameterKinds kinds = parameter_kinds(schema);
  for (const auto& [name, kind] : kinds.named)
    if (!can_write(format, name))
      throw Error("properties: the calls of this model ({}) cannot name a parameter '{}'", format.name,
                  printable(name, 64));
  if (format.syntax == CallSyntax::kTagged)
    return std::make_unique<TaggedMachine>(format, spelling, std::move(kinds), std::move(json));
  if (format.syntax == CallSyntax::kGemma || format.syntax == CallSyntax::kPython)
    return std::make_unique<ValueMachine>(format, spelling, std::move(json));
  return json;
}

}  // namespace ingot
