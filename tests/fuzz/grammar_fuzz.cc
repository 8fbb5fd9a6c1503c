// Bytes as a constraint of one kind, which the build sets: FUZZ_KIND is gbnf, lark, regex or schema. The first byte
// holds options of a schema. Then follow the text of the constraint up to a NUL, and bytes for the machine to read. A
// constraint is compiled, or refused in one printable line. step_word() must agree with step().
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

constexpr std::string_view kKind = FUZZ_KIND;

std::unique_ptr<Automaton> compile(char options, std::string_view text) {
  if (kKind == "gbnf") return compile_gbnf(text);
  if (kKind == "lark") return compile_lark(text);
  if (kKind == "regex") return compile_regex(text);
  return compile_schema(text, {.is_lenient = (options & 1) != 0},
                        {.any_order = (options & 2) != 0, .is_compact = (options & 4) != 0});
}

// If a word continues, the step succeeds; if a word refuses the byte, the step refuses the byte.
void check_word(Automaton& machine, GrammarState state, uint8_t byte, GrammarState next) {
  if (!machine.is_word(state.place)) return;
  const uint32_t place = machine.step_word(state.place, byte);
  if (place == Automaton::kDead) CHECK(next.is_dead());
  if (place > Automaton::kWordOver) CHECK(!next.is_dead());
}

void run(Automaton& machine, std::string_view bytes) {
  GrammarState state = machine.start();
  for (char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    const GrammarState next = machine.step(state, byte);
    CHECK(next == machine.step(state, byte));
    check_word(machine, state, byte, next);
    if (next.is_dead()) continue;  // a mask would exclude the byte
    machine.accepts(next);
    state = next;
  }
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = input.find('\0');
  try {
    const auto machine = ingot::compile(static_cast<char>(data[0]), input.substr(0, end));
    machine->meter().limit(2 * ingot::WorkMeter::kMaxWork);  // as for an answer, but less
    if (end != input.npos) ingot::run(*machine, input.substr(end + 1));
  } catch (const ingot::Error& error) {
    for (const char* c = error.what(); *c != 0; ++c) CHECK(static_cast<unsigned char>(*c) >= 0x20);
  }
  return 0;
}
