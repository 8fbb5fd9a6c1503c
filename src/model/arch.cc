#include "model/arch.h"

#include <string>

#include "base/error.h"

namespace ingot {
namespace {

constexpr Arch kArchs[] = {
    {.gguf_name = "llama", .hf_name = "llama", .gguf_rope = RopeLayout::kInterleaved},
    {.gguf_name = "llama", .hf_name = "mistral", .gguf_rope = RopeLayout::kInterleaved},
    {.gguf_name = "qwen2", .hf_name = "qwen2", .hf_window_opt_in = true},
    {.gguf_name = "qwen3", .hf_name = "qwen3", .hf_window_opt_in = true},
};

const Arch& find(std::string_view name, const char* Arch::*dialect) {
  std::string known, last;
  for (const Arch& arch : kArchs) {
    if (name == arch.*dialect) return arch;
    if (last == arch.*dialect) continue;
    last = arch.*dialect;
    known += (known.empty() ? "" : ", ") + last;
  }
  throw Error("architecture '{}' is not supported; supported are {}", printable(name), known);
}

}  // namespace

std::span<const Arch> all_archs() { return kArchs; }

const Arch& find_gguf_arch(std::string_view name) { return find(name, &Arch::gguf_name); }
const Arch& find_hf_arch(std::string_view name) { return find(name, &Arch::hf_name); }

}  // namespace ingot
