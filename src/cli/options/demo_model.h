// The demo model, models/demo.gguf, built into the program (cmake/demo_model.cmake): a whole GGUF file. Commands use
// the demo model if no model is named. The bytes are page-aligned and read-only, and live as long as the program.
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
