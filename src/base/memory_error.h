// MemoryError: there is too little memory for what was to be loaded; with more of it free it may work. Thrown by the
// plan of memory, and understood by the server's pool of models, which then unloads one that is idle.
#pragma once
#include "base/error.h"

namespace ingot {

class MemoryError : public Error {
 public:
  using Error::Error;
};

}  // namespace ingot
