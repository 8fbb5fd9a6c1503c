// PlannedGpu: a stand-in for a GPU of which only the memory size is known. Its sizes for memory plans (backend.h) are
// close to those of CudaBackend. It cannot run ops. For `ingot inspect --fit --gpu-memory 16GiB`.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ingot {

// has_copies: it keeps copies of quantized weights until save_memory() (BackendOptions::copies).
std::unique_ptr<Backend> planned_gpu(size_t memory_bytes, bool has_copies = false);

}  // namespace ingot
