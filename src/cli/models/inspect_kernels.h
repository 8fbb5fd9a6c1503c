// ingot inspect --kernels: the kernel that computes each matrix of a model, by number of activation rows, and the time
// of this and the other kernels on this machine.
#pragma once
#include <vector>

#include "base/json.h"
#include "cli/bench/model.h"

namespace ingot {

// Loads the model and times its kernels. `prints`: prints each matrix shape as soon as it has been timed. Throws
// UsageError.
nlohmann::ordered_json time_kernels(BenchSubject& subject, const std::vector<int>& rows, bool prints);

}  // namespace ingot
