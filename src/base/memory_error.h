// MemoryError: there is too little memory to load a model; loading may work when more memory is free. The memory plan
// throws it; the server's model pool catches it and unloads an idle model.
#pragma once
#include "base/error.h"

namespace ingot {

class MemoryError : public Error {
 public:
  using Error::Error;
};

}  // namespace ingot
