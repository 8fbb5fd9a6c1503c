// ingot inspect --kernels: which kernel each matrix of a model goes to, by rows of activations, and how long it and the
// others take here.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_model.h"

namespace ingot {

// Loads the model, and times it. Throws UsageError.
nlohmann::ordered_json time_kernels(BenchSubject& subject, const std::vector<int>& rows);
void print_kernels(const nlohmann::ordered_json& json);

}  // namespace ingot
