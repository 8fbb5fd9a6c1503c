// The formats in which a speech model's matrices are kept. F32 matrices whose numbers are all of F16, as in published
// checkpoints, become F16 without loss. On request, dense matrices are quantized.
#pragma once
#include <memory>
#include <string>

#include "model/files/weights.h"

namespace ingot {

// format: such as "Q8_0"; empty: matrices are only narrowed. Throws UsageError for a format that cannot be written.
std::unique_ptr<WeightSource> reformatted_speech(std::unique_ptr<WeightSource> source, const std::string& format);

}  // namespace ingot
