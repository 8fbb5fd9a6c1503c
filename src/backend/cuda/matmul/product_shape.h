// What is the same each time that a step asks for a product: a kernel that is compiled for it (specialised.h) has these
// numbers as constants.
#pragma once

namespace ingot::cuda {

struct ProductShape {
  int n_in = 0, n_steps = 0;    // columns, and steps of them
  int n_jobs = 0, n_tiles = 0;  // weights; tiles of 16 rows of them all, or with a gate of one of the two
  int first_tile[3] = {};       // of a job
  int n_out[3] = {};            // rows of a job
  int zero = 0;                 // of the codes
  int act = -1;                 // of a gate; -1: none
  int split = 0;                // warps or blocks that share a tile
  int n_warps = 0;              // of a block
  int n_tokens = 0;             // rows of activations, of a kernel that is compiled for their number; 0: any
  int n_terms = 0, n_sums = 0, n_inputs = 0;  // of products with experts (experts/codes.cuh)
  bool has_norm = false, has_bias = false, y_f32 = false, accumulate = false;
  bool staged = false;     // the block copies all activations to shared memory first; else x is arranged already
  bool rehearses = false;  // device.cuh

  bool operator==(const ProductShape&) const = default;
};

}  // namespace ingot::cuda
