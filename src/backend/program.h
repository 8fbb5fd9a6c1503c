// Program: the blocks that one device runs, in order, with their buffers. model/program/decoder_program.h builds
// programs, and Backend::run runs them.
//
// All blocks read and write one residual stream x, [n_tokens, dim]. Only the block itself reads its scratch, so all
// blocks share one scratch buffer.
#pragma once
#include <vector>

#include "backend/block.h"
#include "backend/buffers.h"

namespace ingot {

// Cosines and sines for the positions of the batch. Blocks with the same rope share a table, and refer to it by index.
struct RopeTable {
  int rot_dim = 0;
  std::vector<float> frequencies;  // [rot_dim / 2]; empty until the weights are loaded
  Tensor inv_freq;                 // [1, rot_dim / 2]: the same on the device
  std::vector<int32_t> axes;       // [rot_dim / 2]: the axis of each frequency (Batch::rope_positions); empty: one axis
  Tensor axis_of;                  // [1, rot_dim / 2] or empty: the same on the device
  Tensor angles;                   // out: [max_tokens, rot_dim]
  float magnitude = 1;
};

// Blocks [first, end) of a program.
struct BlockRange {
  int first = 0, end = 0;
};

struct Program {
  Program();
  const int id;  // unique in this process: recorded steps are stored under it
  std::vector<Block> blocks;
  std::vector<RopeTable> ropes;  // their angles are computed before the first block runs
  int dim = 0;
  int n_head_ids = 0;           // heads of blocks that read head_ids; 0: no block does
  Tensor head_ids;              // [max_tokens, n_head_ids]: 0, 1, ... in each row
  int n_kept = 0;               // number of KeepBlocks
  Tensor kept;                  // [max_tokens, n_kept * dim] f32: the streams that KeepBlocks copy
  bool has_fork = false;        // has ForkBlocks
  Tensor fork;                  // [max_tokens, dim] f32: the stream that the last ForkBlock copied
  int source_dim = 0;           // of the rows of sources; 0: no block reads a source
  Tensor source;                // [max_source_rows, source_dim] f32: the rows of the batch's sources
  int layer_input_dim = 0;      // of all layers' own inputs (LayerInputsBlock); 0: layers have none
  Tensor layer_inputs;          // [max_tokens, layer_input_dim] f32
  int streams_dim = 0;          // of what layers pass on besides x (AltUpStartBlock, Rwkv7Block, KeepEmbeddingBlock)
  Tensor streams;               // [max_tokens, streams_dim] f32
  bool has_pair = false;        // begins with a DraftInputBlock
  Tensor pair;                  // [max_tokens, 2 * dim]: the output of that block
  Tensor x;                     // [max_tokens, dim] f32: the residual stream
  std::vector<const KvCache*> kv;  // the caches that its blocks use
  const StateCache* states = nullptr;

  BlockRange all() const { return {0, static_cast<int>(blocks.size())}; }
  bool has_logits() const;  // it ends with a HeadBlock
  int least_kv_heads() const;  // of its caches; 0: it has none

  // Gives all blocks their buffers. Call it to measure, then Buffers::allocate, then call it again to set addresses.
  void lay_out(Buffers& buffers);
  // Measures, allocates and places the buffers. Returns the limits, including those that the blocks set.
  StepLimits place(Backend& backend, const StepLimits& limits);
  // place(), then the backend's reserve and prepare_program.
  void allocate(Backend& backend, const StepLimits& limits);
  // Calls f with each block. For a block that has blocks inside, calls f with these.
  template <class F>
  void for_each(F&& f);

  // The output of the last step: logits [n_logits, n_vocab], or vectors [n_seqs or n_tokens, dim].
  Tensor output(int n_tokens, int n_seqs, int n_logits) const;
};

template <class F>
void Program::for_each(F&& f) {
  for (Block& block : blocks) {
    const std::span<Block> inside = block.inside();
    if (inside.empty()) f(block);
    for (Block& one : inside) f(one);
  }
}

}  // namespace ingot
