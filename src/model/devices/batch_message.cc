#include "model/devices/batch_message.h"

#include <algorithm>

#include "backend/table_mirror.h"
#include "base/check.h"
#include "model/devices/message.h"

namespace ingot {

std::vector<uint8_t> message_of(const Batch& b, int block_size) {
  CHECK(b.second_rows.empty());
  MessageWriter message;
  message.add(b.tokens);
  message.add(b.positions);
  message.add(b.rope_positions);
  message.add(b.seen_len);
  message.add(b.q_start);
  message.add(b.kv_len);
  std::vector<int32_t> blocks;
  for (int table = 0; table < b.n_tables(); ++table)
    for (int seq = 0; seq < b.n_seqs(); ++seq)
      blocks.insert(blocks.end(), b.blocks(seq, table), b.blocks(seq, table) + used_blocks(b, seq, block_size, table));
  message.add(std::span<const int32_t>(blocks));
  message.add_one(b.max_blocks);
  message.add_one(b.n_tables());
  message.add(b.logit_rows);
  message.add(b.state_in);
  message.add(b.state_out);
  message.add(b.embeddings);
  message.add(b.embedding_rows);
  message.add(b.sources);
  message.add(b.source_start);
  message.add(b.source_len);
  return std::move(message.bytes);
}

ReceivedBatch::ReceivedBatch(std::span<const uint8_t> message, int block_size) {
  MessageReader parts(message);
  for (std::vector<int32_t>* list : {&tokens_, &positions_, &rope_positions_, &seen_len_, &q_start_, &kv_len_})
    *list = parts.next<int32_t>();
  const std::vector<int32_t> blocks = parts.next<int32_t>();
  batch.max_blocks = parts.next_one<int>();
  const auto n_tables = parts.next_one<int>();
  for (std::vector<int32_t>* list : {&logit_rows_, &state_in_, &state_out_}) *list = parts.next<int32_t>();
  embeddings_ = parts.next<float>();
  embedding_rows_ = parts.next<int32_t>();
  sources_ = parts.next<float>();
  for (std::vector<int32_t>* list : {&source_start_, &source_len_}) *list = parts.next<int32_t>();
  batch.tokens = tokens_, batch.positions = positions_, batch.rope_positions = rope_positions_,
  batch.seen_len = seen_len_;
  batch.q_start = q_start_, batch.kv_len = kv_len_;
  batch.logit_rows = logit_rows_, batch.state_in = state_in_, batch.state_out = state_out_;
  batch.embeddings = embeddings_, batch.embedding_rows = embedding_rows_;
  batch.sources = sources_, batch.source_start = source_start_, batch.source_len = source_len_;
  CHECK(n_tables >= 0 && n_tables <= kMaxTables);
  block_table_.resize(static_cast<size_t>(n_tables) * kv_len_.size() * static_cast<size_t>(batch.max_blocks));
  batch.block_table = block_table_;
  auto from = blocks.begin();
  for (int row = 0; row < n_tables * batch.n_seqs(); ++row) {
    const int n = used_blocks(batch, row % batch.n_seqs(), block_size, row / batch.n_seqs());
    CHECK_LE(n, blocks.end() - from);
    std::copy(from, from + n, block_table_.begin() + int64_t{row} * batch.max_blocks);
    from += n;
  }
}

}  // namespace ingot
