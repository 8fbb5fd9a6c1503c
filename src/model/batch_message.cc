#include "model/batch_message.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ingot {
namespace {

class Writer {
 public:
  template <class T>
  void add(std::span<const T> values) {
    const auto n = static_cast<int64_t>(values.size());
    add_bytes(&n, sizeof(n));
    add_bytes(values.data(), values.size_bytes());
  }
  std::vector<uint8_t> bytes;

 private:
  void add_bytes(const void* data, size_t n) {
    const auto* first = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), first, first + n);
  }
};

class Parts {
 public:
  explicit Parts(std::span<const uint8_t> message) : rest_(message) {}
  template <class T>
  std::vector<T> next() {
    int64_t n = 0;
    take(&n, sizeof(n));
    CHECK_LE(static_cast<size_t>(n) * sizeof(T), rest_.size());
    std::vector<T> values(static_cast<size_t>(n));
    take(values.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  void take(void* to, size_t n) {
    CHECK_LE(n, rest_.size());
    if (n > 0) std::memcpy(to, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }
  std::span<const uint8_t> rest_;
};

// The number of the sequence's blocks that have tokens.
int used_blocks(const Batch& batch, int seq, int block_size) {
  return std::min(batch.max_blocks, (batch.kv_len[static_cast<size_t>(seq)] + block_size - 1) / block_size);
}

}  // namespace

std::vector<uint8_t> message_of(const Batch& b, int block_size) {
  CHECK(b.second_rows.empty());
  Writer message;
  message.add(b.tokens);
  message.add(b.positions);
  message.add(b.q_start);
  message.add(b.kv_len);
  std::vector<int32_t> blocks;
  for (int seq = 0; seq < b.n_seqs(); ++seq)
    blocks.insert(blocks.end(), b.blocks(seq), b.blocks(seq) + used_blocks(b, seq, block_size));
  message.add(std::span<const int32_t>(blocks));
  message.add(std::span<const int32_t>(&b.max_blocks, 1));
  message.add(b.logit_rows);
  message.add(b.state_in);
  message.add(b.state_out);
  message.add(b.embeddings);
  message.add(b.embedding_rows);
  return std::move(message.bytes);
}

ReceivedBatch::ReceivedBatch(std::span<const uint8_t> message, int block_size) {
  Parts parts(message);
  for (std::vector<int32_t>* list : {&tokens_, &positions_, &q_start_, &kv_len_}) *list = parts.next<int32_t>();
  const std::vector<int32_t> blocks = parts.next<int32_t>();
  batch.max_blocks = parts.next<int32_t>().at(0);
  for (std::vector<int32_t>* list : {&logit_rows_, &state_in_, &state_out_}) *list = parts.next<int32_t>();
  embeddings_ = parts.next<float>();
  embedding_rows_ = parts.next<int32_t>();
  batch.tokens = tokens_, batch.positions = positions_, batch.q_start = q_start_, batch.kv_len = kv_len_;
  batch.logit_rows = logit_rows_, batch.state_in = state_in_, batch.state_out = state_out_;
  batch.embeddings = embeddings_, batch.embedding_rows = embedding_rows_;
  block_table_.resize(kv_len_.size() * static_cast<size_t>(batch.max_blocks));
  auto from = blocks.begin();
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int n = used_blocks(batch, seq, block_size);
    CHECK_LE(n, blocks.end() - from);
    std::copy(from, from + n, block_table_.begin() + int64_t{seq} * batch.max_blocks);
    from += n;
  }
  batch.block_table = block_table_;
}

}  // namespace ingot
