#include "backend/cuda/entry.h"

namespace ingot {

const char* const kCudaBuild = "ingot " INGOT_VERSION ", compiler " __VERSION__;

}  // namespace ingot
