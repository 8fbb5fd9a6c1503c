// The demo model, models/demo.gguf, as it is built into the program (cmake/demo_model.cmake): a whole GGUF file that
// the verbs use when no model is named. Page-aligned and read-only; lives as long as the program.
#pragma once
#include <cstdint>
#include <span>

extern "C" {
extern const uint8_t ingot_demo_model_begin[];
extern const uint8_t ingot_demo_model_end[];
}

namespace ingot {

inline std::span<const uint8_t> demo_model_bytes() { return {ingot_demo_model_begin, ingot_demo_model_end}; }

}  // namespace ingot
