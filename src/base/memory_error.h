// MemoryError: too little memory is free to load a model. The memory plan throws MemoryError; the server's model pool
// catches MemoryError and unloads an idle model.
#pragma once
#include "base/error.h"

namespace ingot {

class MemoryError : public Error {
 public:
  using Error::Error;
};

}  // namespace ingot
