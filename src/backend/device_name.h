// Parses the argument of --device: the kind of device and, for GPUs, the index. This is host code, so builds and
// machines without a GPU also check the name.
#pragma once
#include <string_view>

namespace ingot {

bool is_cuda(std::string_view device);  // "cuda", or "cuda:" followed by anything

// 0 for "cuda", N for "cuda:N". Throws UsageError if the index is not a GPU number: "cuda:", "cuda:x", "cuda:-1".
int cuda_index(std::string_view device);

// Throws UsageError, which names the number of GPUs, unless the machine has a GPU with this index.
void check_cuda_index(int index, int n_devices);

}  // namespace ingot
