// PartKind: one kind of layer part, such as attention or experts. Everything that the model's code needs to know about
// a kind is in its row of this table: the kind's block (backend/blocks/) without weights, the tensors that fill the
// block's members, the keys of both dialects, and how ranks divide the kind. kinds.cc lists the kinds;
// docs/add-a-layer.md shows how to add one.
#pragma once
#include <span>
#include <vector>

#include "backend/block.h"
#include "model/config/tensors.h"

namespace ingot {

struct Deal;
struct HfConfig;
class GgufKeys;
class GgufKeyWriter;
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
  // The layer whose weights the layer shares, which is no later one or the layer itself, and what takes them from its
  // block. Files may hold copies. Null: layers share nothing.
  int (*holder)(const Config& config, int layer) = nullptr;
  void (*share)(Block& to, const Block& from) = nullptr;
  // The kind's sizes, read from the keys of each dialect and written as keys of GGUF. They throw Error naming the key.
  // Layers have the parts of the architecture, which read_gguf may change. Null: the kind has no keys.
  void (*read_gguf)(const GgufKeys& keys, Config& config) = nullptr;
  void (*read_hf)(const HfConfig& file, Config& config) = nullptr;
  void (*write_gguf)(const Config& config, const GgufKeyWriter& keys) = nullptr;
  const char* hf_layer_type = "";  // names in config.json's layer_types, '|' between; "": full_attention and others
  // What each layer stores for a sequence: keys and values, states.
  bool keeps_kv = false;
  bool values_are_keys = false;  // KvShape
  bool reads_source = false;     // the keys and values are those of the source
  // The buffers of the states of one layer, in the order of the block's. Null: none.
  std::vector<StateBuffer> (*states)(const Config& config) = nullptr;
  // Whether this checkpoint stores the norms of the layer whole, though files of the architecture store them less 1.
  bool (*has_whole_norms)(WeightSource& source, const Config& config, int layer) = nullptr;
  // Sets the sizes of a rank in its config, which begins as a copy of the model's. Null: every rank has all.
  void (*divide)(const Deal& deal, Config& rank) = nullptr;
};

// The kinds of a layer in order, with the number of the part in the layer (split.h).
struct PlacedKind {
  const PartKind* kind;
  int part = 0;
  bool beside = false;  // LayerPart
  bool operator==(const PlacedKind&) const = default;
};
std::vector<PlacedKind> placed_parts(const Config& config, int layer);
std::vector<const PartKind*> parts_of(const Config& config, int layer);  // the kinds alone
std::vector<Block> make_layer(const Config& config, int layer);          // a block for each kind
std::span<const PartKind* const> all_kinds();
bool uses(const Config& config, const PartKind& kind);  // in any layer
// Whether a part of the layer's kind writes keys and values of its own (LayerConfig::kv_layer).
bool writes_kv(const Config& config, int layer, const PartKind& kind);
bool keeps_states(const Config& config, int layer);
bool values_are_keys(const Config& config);  // of the KV cache

// The parts of a layer by Arch::layers. Throws Error if the column has an unknown name.
std::vector<LayerPart> arch_parts(const Arch& arch, int layer, bool has_experts);
bool arch_has(const Arch& arch, const PartKind& kind);  // in any layer
int arch_period(const Arch& arch);  // layers in Arch::layers
// The first kind in Arch::layers that mixes tokens and keeps keys, or states. Null: there is none.
const PartKind* kv_mixer(const Arch& arch);
const PartKind* state_mixer(const Arch& arch);
void set_mixer(LayerConfig& layer, const PartKind& kind);  // in place of the layer's first mixer
void set_experts(LayerConfig& layer, const Arch& arch);    // in place of the layer's feed-forward
bool has_experts(const LayerConfig& layer);

// Calls f(row, layer) for the rows of a part that apply.
template <class F>
void for_rows_of(const PartKind& kind, const Config& config, int layer, F&& f) {
  const TensorRows rows = kind.rows();
  for (const MatrixRow& row : rows.matrices)
    if (applies(row, config, layer)) f(row, layer);
  for (const VectorRow& row : rows.vectors)
    if (applies(row, config, layer)) f(row, layer);
}

// The kinds that other code names. Every architecture has attention and feed-forwards, unless it says otherwise.
extern const PartKind kAttentionPart, kFeedForwardPart, kExpertsPart, kDenseExpertsPart;

}  // namespace ingot
