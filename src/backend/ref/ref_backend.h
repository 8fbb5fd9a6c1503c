// RefBackend: every primitive in plain C++, sums in double, nothing fused: the oracle of the other backends. One thread.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ingot {

std::unique_ptr<Backend> create_ref_backend();

}  // namespace ingot
