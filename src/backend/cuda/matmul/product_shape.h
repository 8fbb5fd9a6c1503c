// The constants of a product that are the same in every step. A kernel that is compiled for the product (specialised.h)
// has them at compile time.
#pragma once

namespace ingot::cuda {

struct ProductShape {
  int n_in = 0, n_steps = 0;    // columns, and steps of them
  int n_jobs = 0, n_tiles = 0;  // weights; tiles of 16 rows in all weights, or with a gate in one of the two
  int first_tile[3] = {};       // of each job
  int n_out[3] = {};            // rows of each job
  int zero = 0;                 // of the codes
  int act = -1;                 // of a gate; -1: none
  int split = 0;                // warps or blocks that share a tile
  int n_warps = 0;              // of a block
  int weight_tiles = 0;         // of a warp (tile_matmul.cuh)
  int n_stages = 0;             // of a block's ring in shared memory (tile_matmul.cuh)
  int n_tokens = 0;             // rows of activations if the kernel is compiled for their number; 0: any number
  int n_terms = 0, n_sums = 0, n_inputs = 0;  // for products with experts (experts/codes.cuh)
  bool has_norm = false, has_bias = false, y_f32 = false, accumulate = false;
  bool ends_qkv = false;  // the product also does the rest of qkv() (qkv_end.h)
  bool partial = false;   // some rows may have no expert
  bool staged = false;    // the block first copies all activations to shared memory; false: x is already arranged
  bool warms_instruction_cache = false;  // the kernel makes a warm-up pass (device.cuh)

  bool operator==(const ProductShape&) const = default;
};

}  // namespace ingot::cuda
