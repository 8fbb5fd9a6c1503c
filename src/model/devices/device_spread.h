// Which device each rank of each stage of a pipeline gets, if the ranks are threads of this process.
#pragma once
#include <string>
#include <vector>

namespace ingot {

struct RunnerOptions;

// The names of a list with commas.
std::vector<std::string> device_list(const std::string& devices);

// Gives n_ranks ranks, whose layers are n_stages stages of a pipeline, their devices. devices: one device, from which
// GPUs are counted, or a list with commas: the ranks of the first stage, then those of the second. Throws Error.
void spread_over_devices(const std::string& devices, int n_ranks, int n_stages, RunnerOptions& options);

}  // namespace ingot
