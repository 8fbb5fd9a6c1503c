// Several residual streams (AltUp, arXiv:2301.13310, as in Gemma 3n). Stream 0 is the program's x, which the layers
// change; `streams` holds the others. A layer begins with a prediction of all streams from all streams, and ends with a
// correction of all streams by the change of stream 0. Both depend on the token, through a router.
#pragma once
#include "backend/block.h"

namespace ingot {

// Behind the embedding: the other streams are projections of x, scaled to its size.
struct AltUpStartBlock {
  Tensor x;              // [max_tokens, dim]
  Tensor streams;        // out: [max_tokens, n_ids * dim], the program's
  Tensor head_ids;       // [max_tokens, n_ids], the program's
  int n_ids = 0;         // streams besides x
  Weight project;        // n_ids matrices [dim, dim]
  Tensor in, rows;       // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const AltUpStartBlock& b, Backend& backend);

// Behind the last layer: x becomes the mean of x and of projections of the other streams, scaled to the size of x.
struct AltUpEndBlock {
  Tensor x;              // in, out: [max_tokens, dim]
  Tensor streams;        // [max_tokens, n_ids * dim], the program's; overwritten
  Tensor head_ids;       // as above
  int n_ids = 0;
  Weight project;        // n_ids matrices [dim, dim]
  Tensor rows, out;      // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const AltUpEndBlock& b, Backend& backend);

// The router of a token: tanh(norm(x) w^T / dim).
struct AltUpRouter {
  NormArgs norm;         // weight [1, dim]
  Weight w;              // [n_streams, dim]
};

struct AltUpPredictBlock {
  Tensor x;              // in, out: [max_tokens, dim]
  Tensor streams;        // in, out: [max_tokens, (n_streams - 1) * dim], the program's
  int n_streams = 0;
  AltUpRouter router;
  Weight w_coefs;        // [n_streams^2, n_streams]
  Tensor in, route, coefs;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const AltUpPredictBlock& b, Backend& backend);

// The correction, then the layer's own input for each token joins all streams but x.
struct AltUpCorrectBlock {
  Tensor x;              // in, out: [max_tokens, dim]
  Tensor fork;           // [max_tokens, dim]: x as it was predicted, the program's
  Tensor streams;        // in, out: [max_tokens, (n_streams - 1) * dim], the program's
  int n_streams = 0;
  AltUpRouter router;
  Weight w_coefs;        // [n_streams, n_streams]
  Tensor layer_inputs;   // [max_tokens, n_layers * width], the program's
  int width = 0, layer = 0;
  Tensor x_scale;        // [1, dim] or empty: of the columns of x that w_gate reads
  Weight w_gate;         // [width, dim]
  Weight w_out;          // [dim, width]
  NormArgs post_norm;    // weight [1, dim]
  Activation act = Activation::kGeluTanh;
  Tensor in, route, coefs, gate, branch;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const AltUpCorrectBlock& b, Backend& backend);

}  // namespace ingot
