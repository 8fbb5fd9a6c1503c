// What --device says: a kind of device, and of GPUs which one. Host code, so that a build or machine without a GPU
// checks it too.
#pragma once
#include <string_view>

namespace ingot {

bool is_cuda(std::string_view device);  // "cuda", or "cuda:" and whatever follows it

// 0 of "cuda", N of "cuda:N". Throws UsageError for what is no number of a GPU: "cuda:", "cuda:x", "cuda:-1".
int cuda_index(std::string_view device);

// Throws UsageError, which says how many there are, unless the machine has a GPU of that number.
void check_cuda_index(int index, int n_devices);

}  // namespace ingot
