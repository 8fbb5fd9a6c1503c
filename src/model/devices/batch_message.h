// A batch as bytes, for the other ranks of a model. Only the used entries of the block table are in the message.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch.h"

namespace ingot {

std::vector<uint8_t> message_of(const Batch& batch, int block_size);

// The batch of a message. Holds the arrays, so a copy of `batch` is valid as long as this object.
class ReceivedBatch {
 public:
  ReceivedBatch(std::span<const uint8_t> message, int block_size);
  ReceivedBatch(const ReceivedBatch&) = delete;
  ReceivedBatch& operator=(const ReceivedBatch&) = delete;
  Batch batch;

 private:
  std::vector<int32_t> tokens_, positions_, rope_positions_, seen_len_, q_start_, kv_len_, block_table_, logit_rows_,
      state_in_, state_out_, embedding_rows_, source_start_, source_len_;
  std::vector<float> embeddings_, sources_;
};

}  // namespace ingot
