// PartKind: one kind of layer part, such as attention or experts. Everything that the model's code needs to know about a
// kind is in its row of this table: the kind's block (backend/blocks/) without weights, the tensors that fill the
// block's members, and how ranks divide it. kinds.cc lists the kinds; docs/add-a-layer.md shows how to add one.
#pragma once
#include <span>
#include <vector>

#include "backend/block.h"
#include "model/tensors.h"

namespace ingot {

struct Deal;
class WeightSource;

enum : int { kMainRope, kLocalRope };  // indices in Program::ropes

struct PartKind {
  const char* name;        // "attention"
  bool is_mixer = true;    // tokens exchange data; otherwise each token is computed on its own, as in a feed-forward
  bool is_plain = false;   // layers of plain kinds may be one block (PlainLayersBlock)
  // The block of a layer, with all sizes and without weights, caches and buffers.
  Block (*make)(const Config& config, int layer);
  TensorRows (*rows)();
  // Throws Error if the optional tensors that were found do not suffice. Null: nothing to check.
  void (*check)(Block& block, const Config& config, int layer, const WeightSource& source) = nullptr;
  // Sets the sizes of a rank in its config, which begins as a copy of the model's. Null: every rank has all.
  void (*divide)(const Deal& deal, Config& rank) = nullptr;
};

// The parts of a layer, in order.
std::vector<const PartKind*> parts_of(const Config& config, int layer);
std::vector<Block> make_layer(const Config& config, int layer);  // a block for each part
std::span<const PartKind* const> all_kinds();
bool uses(const Config& config, const PartKind& kind);  // in any layer

// Calls f(row, layer) for the rows of a part that apply.
template <class F>
void for_rows_of(const PartKind& kind, const Config& config, int layer, F&& f) {
  const TensorRows rows = kind.rows();
  for (const MatrixRow& row : rows.matrices)
    if (applies(row, config, layer)) f(row, layer);
  for (const VectorRow& row : rows.vectors)
    if (applies(row, config, layer)) f(row, layer);
}

extern const PartKind kAttentionPart, kLatentAttentionPart, kDeltaNetPart, kFeedForwardPart, kExpertsPart;

}  // namespace ingot
