// PlannedGpu: a GPU of which only the memory is known. It answers what memory plans ask (backend.h, "Sizes for
// memory plans"), nearly as CudaBackend does, and computes nothing. For `ingot inspect --fit --gpu-memory 16GiB`.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ingot {

std::unique_ptr<Backend> planned_gpu(size_t memory_bytes);

}  // namespace ingot
