#include "backend/blocks/keep.h"

#include "backend/backend.h"

namespace ingot {

void run_block(const KeepBlock& b, Backend& backend) {
  backend.copy(backend.token_rows(b.kept).slice_cols(b.place * b.x.cols, b.x.cols), backend.token_rows(b.x));
}

}  // namespace ingot
