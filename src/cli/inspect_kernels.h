// ingot inspect --kernels: which kernel computes each matrix of a model, by number of activation rows, and how long
// this kernel and the others take on this machine.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_model.h"

namespace ingot {

// Loads the model and times its kernels. `prints`: each shape of matrix is printed as soon as it is timed. Throws
// UsageError.
nlohmann::ordered_json time_kernels(BenchSubject& subject, const std::vector<int>& rows, bool prints);

}  // namespace ingot
