// ingot inspect --kernels: which kernel computes each matrix of a model, by number of activation rows, and how long
// this kernel and the others take on this machine.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_model.h"

namespace ingot {

// Loads the model and times its kernels. Throws UsageError.
nlohmann::ordered_json time_kernels(BenchSubject& subject, const std::vector<int>& rows);
void print_kernels(const nlohmann::ordered_json& json);

}  // namespace ingot
