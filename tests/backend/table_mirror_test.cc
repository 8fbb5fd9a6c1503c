// TableMirror keeps the device's tables equal to those of the batch by sending only the changes. Decode steps send few
// changes.
#include "backend/table_mirror.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "test_seed.h"

namespace ingot {
namespace {

constexpr int kBlockSize = 16;

struct Running {
  int length;
  std::vector<std::vector<int32_t>> blocks;  // of each table
};

// Sequences as in an engine: they are added, grow, end and free blocks. A batch's rows are as long as its longest
// sequence.
class Sequences {
 public:
  Sequences(uint64_t seed, size_t n_tables) : n_tables_(n_tables), random_(seed) {}

  size_t size() const { return running_.size(); }
  void add(int length) {
    running_.push_back({0, std::vector<std::vector<int32_t>>(n_tables_)});
    grow(running_.back(), length);
  }
  void remove(size_t i) { running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i)); }
  void give_up(size_t i) {  // after a window moved: entries before it become the first remaining block
    std::vector<int32_t>& blocks = running_[i].blocks[random_() % n_tables_];
    const size_t n = random_() % blocks.size();
    std::fill_n(blocks.begin(), n, blocks[n]);
  }
  void grow(size_t i, int n) { grow(running_[i], n); }
  void shuffle() { std::shuffle(running_.begin(), running_.end(), random_); }

  // The entries after a sequence's last block are arbitrary.
  const Batch& batch() {
    size_t longest = 1;
    for (const Running& r : running_) longest = std::max(longest, r.blocks[0].size());
    longest += random_() % 3;
    table_.clear(), kv_len_.clear();
    for (const Running& r : running_) kv_len_.push_back(r.length);
    for (size_t table = 0; table < n_tables_; ++table)
      for (const Running& r : running_) {
        table_.insert(table_.end(), r.blocks[table].begin(), r.blocks[table].end());
        for (size_t i = r.blocks[table].size(); i < longest; ++i)
          table_.push_back(random_() % 2 != 0 ? -1 : static_cast<int32_t>(random_() % 1000));
      }
    batch_ = Batch{.kv_len = kv_len_, .block_table = table_, .max_blocks = static_cast<int>(longest)};
    return batch_;
  }

 private:
  void grow(Running& r, int n) {
    r.length += n;
    for (std::vector<int32_t>& blocks : r.blocks)
      while (static_cast<int>(blocks.size()) * kBlockSize < r.length)
        blocks.push_back(static_cast<int32_t>(random_() % 100000));
  }

  const size_t n_tables_;
  std::mt19937_64 random_;
  std::vector<Running> running_;
  std::vector<int32_t> table_, kv_len_;
  Batch batch_;
};

// The device's side. Returns the number of received entries.
size_t apply(std::span<const TableChange> changes, std::vector<int32_t>& device) {
  std::set<int32_t> written;
  for (const TableChange& change : changes) {
    EXPECT_TRUE(written.insert(change.index).second) << "written twice: " << change.index;
    device.at(static_cast<size_t>(change.index)) = change.value;
  }
  return changes.size();
}

void expect_holds(const std::vector<int32_t>& device, const Batch& batch, int n_rows, int stride) {
  for (int table = 0; table < batch.n_tables(); ++table)
    for (int seq = 0; seq < batch.n_seqs(); ++seq)
      for (int i = 0; i < (batch.kv_len[seq] + kBlockSize - 1) / kBlockSize; ++i)
        ASSERT_EQ(device[static_cast<size_t>((table * n_rows + seq) * stride + i)], batch.blocks(seq, table)[i])
            << "table " << table << ", sequence " << seq << ", block " << i;
}

TEST(TableMirror, HoldsEveryBatchOfARandomSeries) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr int kTables = 3, kRows = 12, kStride = 70, kLongest = 60 * kBlockSize;
  Sequences sequences(seed + 1, 1 + random() % kTables);
  TableMirror mirror;
  mirror.reset(kTables, kRows, kStride);
  std::vector<int32_t> device(kTables * kRows * kStride, 0);
  for (int step = 0; step < 3000; ++step) {
    const auto one = [&] { return random() % sequences.size(); };
    if (sequences.size() == 0 || (sequences.size() < kRows && random() % 8 == 0))
      sequences.add(1 + static_cast<int>(random() % kLongest));
    for (size_t i = 0; i < sequences.size(); ++i) sequences.grow(i, 1);
    if (random() % 10 == 0) sequences.grow(one(), static_cast<int>(random() % 60));
    if (random() % 20 == 0) sequences.give_up(one());
    if (random() % 50 == 0) sequences.shuffle();
    for (size_t i = sequences.size(); i-- > 0;)
      if (sequences.batch().kv_len[i] > kLongest + 5 * kBlockSize || random() % 60 == 0) sequences.remove(i);
    if (random() % 100 == 0) mirror.forget(), std::ranges::fill(device, -7);
    const Batch& batch = sequences.batch();
    apply(mirror.changes_to(batch, kBlockSize), device);
    expect_holds(device, batch, kRows, kStride);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(mirror.changes_to(batch, kBlockSize).empty());
  }
}

// 256 sequences, one of them with 128k tokens: the whole table is 8 MB, and a decode step sends only the new blocks.
TEST(TableMirror, ADecodeStepSendsLittle) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr int kRows = 256, kStride = 8192;
  Sequences sequences(seed + 1, 1);
  sequences.add(kStride * kBlockSize - 200);
  while (sequences.size() < kRows) sequences.add(100 + static_cast<int>(random() % 2000));
  TableMirror mirror;
  mirror.reset(1, kRows, kStride);
  std::vector<int32_t> device(size_t{kRows} * kStride, 0);
  apply(mirror.changes_to(sequences.batch(), kBlockSize), device);
  size_t sent = 0;
  for (int step = 0; step < 64; ++step) {
    for (size_t i = 0; i < kRows; ++i) sequences.grow(i, 1);
    const Batch& batch = sequences.batch();
    const size_t n = apply(mirror.changes_to(batch, kBlockSize), device);
    EXPECT_LE(n * sizeof(TableChange), 4096u);
    expect_holds(device, batch, kRows, kStride);
    if (HasFatalFailure()) return;
    sent += n;
  }
  EXPECT_EQ(sent, kRows * 64 / kBlockSize);  // each sequence started four blocks
}

// Each table has its own block for the sequences that pad a step.
TEST(TableMirror, PaddingNamesABlockInEachTable) {
  TableMirror mirror;
  mirror.reset(2, 3, 4);
  std::vector<int32_t> device(2 * 3 * 4, 0);
  const Padding padding{.n_seqs = 2, .q_len = 2, .blocks = {8, 9}, .n_tables = 2, .n_blocks = 2};
  apply(mirror.changes_to({}, kBlockSize, padding), device);
  EXPECT_EQ(device, (std::vector<int32_t>{8, 8, 0, 0, 8, 8, 0, 0, 0, 0, 0, 0, 9, 9, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0}));
}

TEST(TableMirror, BatchesWithoutATableSendNothing) {
  TableMirror mirror;
  mirror.reset(1, 2, 4);
  const std::vector<int32_t> kv_len{5, 6};
  EXPECT_TRUE(mirror.changes_to(Batch{.kv_len = kv_len}, kBlockSize).empty());
}

}  // namespace
}  // namespace ingot
