// Draft heads: one layer that guesses the token after the next one, from the model's hidden state and the next token
// (backend/block.h, DraftInputBlock). A head for multi-token prediction (MTP) is a part of the model's checkpoint; an
// EAGLE-3 head is a separate checkpoint. This file finds heads and reads how they compute; draft_tensors.cc has the
// rows of their tensors. If a checkpoint has several MTP layers, each for one token further, the first guesses all
// tokens.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "model/files/weights.h"

namespace ingot {

class Checkpoint;

struct DraftHeadConfig {
  Config layer;                 // a model of one layer; EAGLE-3: its n_vocab is the size of the head's vocabulary
  bool is_eagle = false;        // reads three hidden states of the model; otherwise the last, after the final norm
  bool hidden_first = false;    // DraftInputBlock
  bool keeps_normed = false;    // DraftInputBlock
  bool returns_normed = false;  // its hidden state for the next guess is taken after its own final norm
  std::array<int, 3> kept_layers{};  // EAGLE-3: the layers whose inputs are the hidden states
  std::vector<int32_t> tokens;       // EAGLE-3: the model's token for each token of the head; empty: the same
};

struct DraftHeadWeights {
  Weight embedding;                // [n_vocab, dim] or empty: the model's
  Tensor token_norm, hidden_norm;  // [1, dim]
  Weight project;                  // [dim, 2 * dim]; EAGLE-3: [dim, 3 * dim]
  std::vector<Block> layer;        // its parts
  Tensor final_norm;               // [1, dim] or empty: the model's
  Weight output;                   // [layer.n_vocab, dim] or empty: the model's
  std::shared_ptr<void> kept;      // host memory that a backend reads from
};

TensorRows head_rows(const DraftHeadConfig& head);

// A head and the source of its tensors, whose layer is layer 0.
struct DraftHeadFile {
  std::shared_ptr<const DraftHeadConfig> config;
  std::shared_ptr<WeightSource> source;
  explicit operator bool() const { return config != nullptr; }
};

// The MTP head among the model's tensors; nothing if the model has none. The source must outlive the result's source.
DraftHeadFile find_mtp_head(WeightSource& source, const Config& model);
// Whether the checkpoint is an EAGLE-3 head. open_eagle_head throws Error if the head does not fit the model.
bool is_eagle_head(const Checkpoint& checkpoint);
DraftHeadFile open_eagle_head(const Checkpoint& checkpoint, const Config& model);

// Like weight_bytes and load_weights. Both throw Error naming a tensor that is missing or has the wrong shape or type.
WeightBytes head_bytes(const DraftHeadFile& head, const Backend& backend);
DraftHeadWeights load_head(const DraftHeadFile& head, Backend& backend);

}  // namespace ingot
