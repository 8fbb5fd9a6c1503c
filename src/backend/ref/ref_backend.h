// RefBackend: the plain bodies of the base class and nothing else. The oracle of the other backends, and the smallest
// backend that there can be. One thread.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ingot {

std::unique_ptr<Backend> create_ref_backend();

// Upload and download of backends whose memory is the host's: a view of any stride, and contiguous rows.
void copy_rows_in(const Tensor& to, const void* from);
void copy_rows_out(void* to, const Tensor& from);

}  // namespace ingot
