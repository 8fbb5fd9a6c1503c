// RefBackend: the plain bodies of the base class, and norms after the sums of ranks. It is the oracle of the other
// backends, and the smallest possible backend. It uses one thread.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ingot {

std::unique_ptr<Backend> create_ref_backend();

// Upload and download for backends whose memory is host memory. They copy between a view of any stride and contiguous
// rows.
void copy_rows_in(const Tensor& to, const void* from);
void copy_rows_out(void* to, const Tensor& from);

}  // namespace ingot
