// Rows of the table of architectures that are read from files: a JSON object with the columns of Arch (arch.h) by name.
// A row adds no code. Its parts are kinds that ingot has, and its other values are flags, numbers and names of a closed
// list. So a file can describe a new family of known parts, but nothing else.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/json.h"
#include "model/config/arch.h"

namespace ingot {

// The columns by type. A column of an enum has names for its values.
std::span<const std::pair<const char*, bool Arch::*>> arch_flags();
std::span<const std::pair<const char*, int Arch::*>> arch_numbers();
template <class Enum>
std::span<const std::pair<const char*, Enum>> arch_names();  // of RopeLayout, Activation, Scoring, NormKind

// Throws the errors of add_arch, and adds nothing.
void check_arch(const JsonDocument& document);
// Adds the row to the table, in front of rows with the same name. The row stays for the rest of the process. Throws
// Error naming the file and the column, for an unknown column, a value of another type or range, or unknown parts.
const Arch& add_arch(const JsonDocument& document);
const Arch& add_arch_file(const std::string& path);

}  // namespace ingot
