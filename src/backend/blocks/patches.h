// The embedding of a vision tower: the residual stream begins as products of the pixels of patches, with the vectors of
// the patches' places.
#pragma once
#include "backend/block.h"

namespace ingot {

struct PatchesBlock {
  Tensor x;           // out: [max_tokens, dim]
  Weight w;           // [dim, patch_dim]
  Tensor bias;        // [1, dim] or empty
  Tensor positions;   // [max_tokens, dim] or empty: added to the patches, by their positions in the batch
  bool adds = false;  // each patch of the batch has a vector that is added
  // The batch's embeddings are the pixels of all patches, [n_tokens, patch_dim], then what is added, [n_tokens, dim].
  Tensor pixels;  // scratch: [max_tokens, patch_dim]
  Tensor added;   // scratch: [max_tokens, dim]
  void lay_out(Buffers& buffers);
};
void run_block(const PatchesBlock& b, Backend& backend);

}  // namespace ingot
