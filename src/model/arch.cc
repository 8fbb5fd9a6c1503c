#include "model/arch.h"

#include <string>

#include "base/error.h"

namespace ingot {
namespace {

constexpr Arch kArchs[] = {
    {.gguf_name = "llama", .hf_name = "llama", .gguf_rope = RopeLayout::kInterleaved},
    {.gguf_name = "qwen2", .hf_name = "qwen2"},
    {.gguf_name = "qwen3", .hf_name = "qwen3"},
};

}  // namespace

std::span<const Arch> all_archs() { return kArchs; }

const Arch& find_gguf_arch(std::string_view name) {
  std::string known;
  for (const Arch& arch : kArchs) {
    if (name == arch.gguf_name) return arch;
    known += known.empty() ? arch.gguf_name : std::string(", ") + arch.gguf_name;
  }
  throw Error("architecture '{}' is not supported; supported are {}", printable(name), known);
}

}  // namespace ingot
