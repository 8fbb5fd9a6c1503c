// Layers of a decoder with plain attention: attention and feed-forward in turn, or attention and experts in turn. They
// are one block so that a backend may run all of them in one kernel.
#pragma once
#include <vector>

#include "backend/blocks/attention.h"
#include "backend/blocks/experts.h"
#include "backend/blocks/feed_forward.h"

namespace ingot {

struct PlainLayersBlock {
  std::vector<Block> blocks;  // [2 * n_layers]: attention, then a feed-forward or experts, the same in all layers

  size_t n_layers() const { return blocks.size() / 2; }
  const AttentionBlock& attention(size_t i) const { return blocks[2 * i].get<AttentionBlock>(); }
  // Calls f with the block after attention i.
  template <class F>
  void with_second(size_t i, F&& f) const {
    const Block& second = blocks[2 * i + 1];
    if (const auto* plain = second.as<FeedForwardBlock>()) return f(*plain);
    f(second.get<ExpertsBlock>());
  }
  void lay_out(Buffers&) {}  // the blocks inside have buffers
};
void run_block(const PlainLayersBlock& b, Backend& backend);

}  // namespace ingot
