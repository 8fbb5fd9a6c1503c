// NumPy's .npy format, version 1.0: float32 matrices.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

// Writes values of shape [rows, cols], row by row. Throws Error.
void write_npy(const std::string& path, std::span<const float> values, int64_t rows, int64_t cols);

}  // namespace ingot
