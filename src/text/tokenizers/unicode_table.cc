#include "text/tokenizers/unicode_table.h"

namespace ingot {
namespace {

constexpr uint32_t kRuns[] = {
#include "text/tokenizers/unicode_table.inc"
};

}  // namespace

std::span<const uint32_t> UnicodeRuns::all() { return kRuns; }

}  // namespace ingot
