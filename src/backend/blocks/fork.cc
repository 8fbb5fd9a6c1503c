#include "backend/blocks/fork.h"

#include "backend/backend.h"

namespace ingot {

void run_block(const ForkBlock& b, Backend& backend) {
  backend.copy(backend.token_rows(b.fork), backend.token_rows(b.x));
}

}  // namespace ingot
