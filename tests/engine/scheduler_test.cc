// The scheduler's policy in hand-written cases. engine_property_test.cc tests the invariants under random load.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/batch_builder.h"

namespace ingot {
namespace {

using testing::ElementsAre;

struct Part {
  RequestId id;
  int begin, n_tokens;
  bool samples;
  bool operator==(const Part&) const = default;
};

void PrintTo(const Part& p, std::ostream* out) {
  *out << "{" << p.id << ": " << p.begin << "+" << p.n_tokens << (p.samples ? " samples}" : "}");
}

class SchedulerTest : public testing::Test {
 protected:
  void make(SchedulerLimits limits) { scheduler_ = std::make_unique<Scheduler>(limits); }

  Sequence& add(int n_prompt) {
    auto& s = *sequences_.emplace_back(std::make_unique<Sequence>());
    s.id = sequences_.size();
    s.tokens.assign(n_prompt, 7);
    s.n_prompt = n_prompt;
    scheduler_->add(&s);
    return s;
  }

  void end(Sequence& sequence) {
    scheduler_->remove(&sequence);
    scheduler_->release(&sequence);
  }

  // Plans a step and appends the sampled tokens.
  std::vector<Part> plan() {
    std::vector<Part> parts;
    for (const StepItem& item : scheduler_->plan().items) {
      parts.push_back({item.sequence->id, item.begin, item.n_tokens, item.samples});
      if (item.samples) item.sequence->tokens.push_back(8);
    }
    return parts;
  }

  // Plans a step of one sequence with these drafts. The first n_right drafts equal the sampled tokens.
  StepItem verify(Sequence& sequence, const std::vector<int32_t>& drafts, int n_right) {
    sequence.max_len = 100;
    sequence.proposed = drafts;
    const StepItem item = scheduler_->plan().items.at(0);
    sequence.tokens.resize(static_cast<size_t>(sequence.len() + n_right));
    sequence.n_drafts = 0;
    n_blocks_in_step_ = sequence.pools[0].blocks.size();
    scheduler_->done(item, n_right);
    if (item.samples) sequence.tokens.push_back(8);
    return item;
  }

  size_t n_blocks_in_step_ = 0;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST_F(SchedulerTest, APromptGoesThroughInChunksThenDecodes) {
  make({.max_batch_tokens = 16, .max_seqs = 4, .chunk = 4, .block_size = 4, .pools = {{.n_blocks = 16}}});
  add(10);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 4, false}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 4, 4, false}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 8, 2, true}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 10, 1, true}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 11, 1, true}));
  EXPECT_EQ(scheduler_->pool().n_used(), 3);
}

TEST_F(SchedulerTest, DecodesComeBeforeALongPrompt) {
  make({.max_batch_tokens = 6, .max_seqs = 4, .chunk = 5, .block_size = 4, .pools = {{.n_blocks = 32}}});
  add(2);
  add(2);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 2, true}, Part{2, 0, 2, true}));
  add(20);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 2, 1, true}, Part{2, 2, 1, true}, Part{3, 0, 4, false}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 3, 1, true}, Part{2, 3, 1, true}, Part{3, 4, 4, false}));
}

TEST_F(SchedulerTest, APromptIsNotStarvedByDecodes) {
  make({.max_batch_tokens = 2, .max_seqs = 8, .chunk = 8, .block_size = 4, .pools = {{.n_blocks = 32}}});
  add(1);
  add(9);
  add(1);  // a third running sequence would leave no token for the prompt of the second
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 1, true}, Part{2, 0, 1, false}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 1, 1, true}, Part{2, 1, 1, false}));
  EXPECT_EQ(scheduler_->n_waiting(), 1);
}

TEST_F(SchedulerTest, AShortPromptDoesNotWaitForLongOnes) {
  make({.max_batch_tokens = 8, .max_seqs = 8, .chunk = 8, .block_size = 4, .pools = {{.n_blocks = 64}}});
  add(40);
  add(30);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 8, false}));
  // Half of the budget is reserved for an admitted sequence. After admission, the shorter prompt goes first, but half
  // of the budget stays with the senior prompt.
  EXPECT_THAT(plan(), ElementsAre(Part{1, 8, 4, false}, Part{2, 0, 4, false}));
  add(3);
  EXPECT_THAT(plan(), ElementsAre(Part{2, 4, 3, false}, Part{1, 12, 2, false}, Part{3, 0, 3, true}));
  EXPECT_THAT(plan(), ElementsAre(Part{3, 3, 1, true}, Part{2, 7, 4, false}, Part{1, 14, 3, false}));
}

TEST_F(SchedulerTest, AdmissionIsInOrderAndByBlocks) {
  make({.max_batch_tokens = 64, .max_seqs = 8, .chunk = 64, .block_size = 4, .pools = {{.n_blocks = 10}}});
  Sequence& first = add(16);  // 4 blocks
  add(24);                    // 6 blocks, and one for each running sequence: does not fit now
  add(1);                     // would fit, but comes later
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 16, true}));
  EXPECT_EQ(scheduler_->n_waiting(), 2);
  end(first);
  EXPECT_THAT(plan(), ElementsAre(Part{2, 0, 24, true}, Part{3, 0, 1, true}));
}

TEST_F(SchedulerTest, AdmissionLeavesTheBlocksOfRunningPrompts) {
  make({.max_batch_tokens = 64, .max_seqs = 8, .chunk = 4, .block_size = 4, .pools = {{.n_blocks = 10}}});
  add(32);  // 8 blocks; the sequence has claimed 1
  add(8);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 4, false}));
  EXPECT_EQ(scheduler_->n_waiting(), 1);
}

TEST_F(SchedulerTest, TheYoungestIsPreemptedAndComputedAnew) {
  make({.max_batch_tokens = 16, .max_seqs = 4, .chunk = 16, .block_size = 2, .pools = {{.n_blocks = 5}}});
  Sequence& old = add(2);
  Sequence& young = add(2);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 0, 2, true}, Part{2, 0, 2, true}));    // a block each
  EXPECT_THAT(plan(), ElementsAre(Part{1, 2, 1, true}, Part{2, 2, 1, true}));    // 2 each
  EXPECT_THAT(plan(), ElementsAre(Part{1, 3, 1, true}, Part{2, 3, 1, true}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 4, 1, true}));  // the fifth block; then no block is left
  EXPECT_EQ(young.n_preempted, 1);
  EXPECT_TRUE(young.pools[0].blocks.empty());
  EXPECT_EQ(young.tokens.size(), 5u);  // its sampled tokens stay
  EXPECT_EQ(old.n_preempted, 0);
  end(old);
  EXPECT_THAT(plan(), ElementsAre(Part{2, 0, 5, true}));
  EXPECT_EQ(scheduler_->pool().n_used(), 3);
}

TEST_F(SchedulerTest, APreemptedSequenceGoesBeforeLaterOnes) {
  make({.max_batch_tokens = 16, .max_seqs = 2, .chunk = 16, .block_size = 1, .pools = {{.n_blocks = 8}}});
  Sequence& first = add(3);
  add(3);
  add(1);
  EXPECT_EQ(plan().size(), 2u);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 3, 1, true}, Part{2, 3, 1, true}));
  EXPECT_THAT(plan(), ElementsAre(Part{1, 4, 1, true}));
  end(first);
  EXPECT_THAT(plan(), ElementsAre(Part{2, 0, 5, true}, Part{3, 0, 1, true}));
}

TEST_F(SchedulerTest, RemovalReturnsEveryBlock) {
  make({.max_batch_tokens = 16, .max_seqs = 4, .chunk = 8, .block_size = 2, .pools = {{.n_blocks = 32}}});
  Sequence& running = add(10);
  plan();
  Sequence& waiting = add(3);
  end(waiting);
  end(running);
  EXPECT_EQ(scheduler_->pool().n_used(), 0);
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_TRUE(plan().empty());
}

// The plan asks three times whether the head of the queue fits, but looks it up in the prefix cache only once.
TEST_F(SchedulerTest, APlanLooksUpTheHeadOfTheQueueOnce) {
  make({.max_batch_tokens = 8, .max_seqs = 4, .chunk = 8, .block_size = 4, .pools = {{.n_blocks = 64}}});
  Sequence& running = add(40);
  plan();
  for (const bool fits : {false, true}) {
    Sequence& head = add(fits ? 20 : 250);
    head.request.priority = 1;
    head.rank = -1;
    running.request.priority = fits ? 0 : 1;  // a head that does not fit would preempt the running sequence
    const int64_t before = scheduler_->n_cache_walks();
    plan();
    EXPECT_EQ(scheduler_->n_cache_walks(), before + 1);
    EXPECT_EQ(scheduler_->n_running(), fits ? 2 : 1);
    end(head);
  }
}

// The head of the queue fits when the plan begins. Then a decode takes the cached block that the head would share.
TEST_F(SchedulerTest, APlanLooksAgainWhenABlockOfTheMatchIsGivenAway) {
  make({.max_batch_tokens = 16, .max_seqs = 4, .chunk = 16, .block_size = 2, .pools = {{.n_blocks = 8}}});
  for (const int n_prompt : {2, 6}) {  // 1 block and 3 blocks stay in the cache; the first block is the oldest
    Sequence& cached = add(n_prompt);
    cached.tokens.assign(n_prompt, n_prompt);
    for (const StepItem& item : scheduler_->plan().items) scheduler_->done(item);
    end(cached);
  }
  Sequence& running = add(1);
  for (int i = 0; i < 8; ++i) plan();
  EXPECT_EQ(running.pools[0].blocks.size(), 4u);
  Sequence& head = add(3);
  head.tokens = {2, 2, 9};
  head.request.priority = 1;  // so the plan also looks before the decodes
  head.rank = -1;
  const int64_t before = scheduler_->n_cache_walks();
  EXPECT_THAT(plan(), ElementsAre(Part{3, 8, 1, true}, Part{4, 0, 3, true}));
  EXPECT_EQ(scheduler_->n_cache_walks(), before + 2);
}

// Admission reserves all memory that a sequence may need later, so steps do not allocate.
TEST_F(SchedulerTest, AdmissionReservesForTheWholeOutput) {
  make({.max_batch_tokens = 8, .max_seqs = 1, .chunk = 8, .block_size = 4, .pools = {{.n_blocks = 64}}});
  Sequence& admitted = add(4);
  Sequence& waits = add(4);
  admitted.max_len = waits.max_len = 200;
  plan();
  EXPECT_GE(admitted.tokens.capacity(), 200u);
  EXPECT_GE(admitted.pools[0].blocks.capacity(), 50u);
  EXPECT_LT(waits.tokens.capacity(), 50u);
  EXPECT_EQ(waits.pools[0].blocks.capacity(), 0u);
}

TEST_F(SchedulerTest, WrongDraftsAreCutBackAndNeverCached) {
  make({.max_batch_tokens = 16,
        .max_seqs = 2,
        .chunk = 16,
        .block_size = 2,
        .pools = {{.n_blocks = 16}},
        .spare_rows = 6});
  Sequence& sequence = add(3);
  verify(sequence, {}, 0);
  const StepItem item = verify(sequence, {1, 2, 3, 4}, 1);
  EXPECT_EQ(item.begin, 3);
  EXPECT_EQ(item.n_tokens, 5);
  EXPECT_EQ(item.n_drafts, 4);
  EXPECT_EQ(item.n_rows(), 5);
  EXPECT_EQ(n_blocks_in_step_, 4u);
  EXPECT_EQ(sequence.pools[0].blocks.size(), 3u);  // for tokens 7 7 7 8 1
  EXPECT_EQ(sequence.n_computed, 5);
  EXPECT_EQ(scheduler_->pool().n_used(), 3);
  Sequence& other = add(9);
  other.tokens = {7, 7, 7, 8, 1, 2, 3, 4, 5};  // with the wrong drafts
  EXPECT_THAT(plan(), ElementsAre(Part{1, 5, 1, true}, Part{2, 4, 5, true}));
  end(other);
  end(sequence);
  Sequence& last = add(8);
  last.tokens = {7, 7, 7, 8, 1, 2, 3, 4};
  EXPECT_THAT(plan(), ElementsAre(Part{3, 5, 3, true}));
}

// A state that includes wrong drafts is useless. So the next step reads the old state and recomputes the right tokens.
TEST_F(SchedulerTest, AStateIsNotCutBackButReadAgain) {
  make({.max_batch_tokens = 16,
        .max_seqs = 2,
        .chunk = 16,
        .block_size = 2,
        .pools = {{.n_blocks = 16}},
        .n_states = 4,
        .spare_rows = 6});
  Sequence& sequence = add(3);
  verify(sequence, {}, 0);
  verify(sequence, {}, 0);  // the prompt's second chunk, after a snapshot
  const StepItem wrong = verify(sequence, {1, 2, 3}, 2);
  EXPECT_NE(wrong.state_in, wrong.state_out);
  EXPECT_EQ(wrong.begin, 3);
  EXPECT_EQ(sequence.n_computed, 3);
  EXPECT_EQ(sequence.pools[0].blocks.size(), 2u);
  const StepItem again = verify(sequence, {}, 0);
  EXPECT_EQ(again.begin, 3);
  EXPECT_EQ(again.n_tokens, 4);  // 8 1 2 8
  EXPECT_EQ(again.state_in, wrong.state_in);
  EXPECT_EQ(again.state_out, wrong.state_out);
  EXPECT_TRUE(again.samples);
  const StepItem right = verify(sequence, {5, 6}, 2);
  EXPECT_EQ(right.state_in, again.state_out);
  EXPECT_NE(right.state_out, right.state_in);
  EXPECT_EQ(sequence.state_in, right.state_out);
  EXPECT_EQ(scheduler_->states().n_used(), 1);
}

TEST_F(SchedulerTest, DraftsLeaveATokenOfTheStepToEachOther) {
  make({.max_batch_tokens = 6,
        .max_seqs = 4,
        .chunk = 8,
        .block_size = 4,
        .pools = {{.n_blocks = 32}},
        .spare_rows = 8});
  Sequence& first = add(1);
  add(1);
  plan();
  first.max_len = 100;
  first.proposed = {1, 2, 3, 4, 5, 6, 7};
  add(9);
  EXPECT_THAT(plan(), ElementsAre(Part{1, 1, 4, true}, Part{2, 1, 1, true}, Part{3, 0, 1, false}));
}

TEST_F(SchedulerTest, TheBatchSaysWhatThePlanSays) {
  const SchedulerLimits limits{
      .max_batch_tokens = 8, .max_seqs = 4, .chunk = 8, .block_size = 4, .pools = {{.n_blocks = 32}}};
  make(limits);
  add(3);
  Sequence& second = add(9);
  BatchBuilder builder(limits, 64);
  builder.fill(scheduler_->plan());
  sequences_[0]->tokens.push_back(8);
  const Step& step = scheduler_->plan();  // one sequence decodes, the other has 4 tokens left
  const Batch& batch = builder.fill(step);
  const std::span<const SampleRow> rows = builder.fill_rows(step);
  EXPECT_THAT(batch.tokens, ElementsAre(8, 7, 7, 7, 7));
  EXPECT_THAT(batch.positions, ElementsAre(3, 5, 6, 7, 8));
  EXPECT_THAT(batch.q_start, ElementsAre(0, 1, 5));
  EXPECT_THAT(batch.kv_len, ElementsAre(4, 9));
  EXPECT_THAT(batch.logit_rows, ElementsAre(0, 4));
  EXPECT_EQ(batch.max_blocks, 3);
  EXPECT_THAT(batch.block_table,
              ElementsAre(sequences_[0]->pools[0].blocks[0], 0, 0, second.pools[0].blocks[0],
                          second.pools[0].blocks[1], second.pools[0].blocks[2]));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].position, 9);
  EXPECT_EQ(rows[1].history.data(), second.tokens.data());
}

// An image of 2 rows and 3 columns takes 6 tokens, but only 3 places. The text after the image goes on from there.
TEST_F(SchedulerTest, TheBatchHasPlacesOnEachAxis) {
  SchedulerLimits limits{.max_batch_tokens = 8,
                         .max_seqs = 4,
                         .chunk = 8,
                         .block_size = 4,
                         .pools = {{.n_blocks = 32}},
                         .embedding_dim = 1};
  limits.n_rope_axes = kRopeAxes;
  make(limits);
  Sequence& sequence = add(11);
  PromptEmbedding image{.position = 2, .n_rows = 6, .rows = SharedFloats(std::vector<float>(6)), .n_places = 3};
  for (int32_t i = 0; i < 6; ++i) image.places.push_back({0, i / 3, i % 3});
  sequence.request.embeddings = {image};
  BatchBuilder builder(limits, 64);
  EXPECT_THAT(builder.fill(scheduler_->plan()).rope_positions,
              ElementsAre(0, 1, 2, 2, 2, 2, 2, 2,    // the image has one time,
                          0, 1, 2, 2, 2, 3, 3, 3,    // rows
                          0, 1, 2, 3, 4, 2, 3, 4));  // and columns
  EXPECT_THAT(builder.fill(scheduler_->plan()).rope_positions, ElementsAre(5, 6, 7, 5, 6, 7, 5, 6, 7));
  sequence.tokens.push_back(8);
  EXPECT_THAT(builder.fill(scheduler_->plan()).rope_positions, ElementsAre(8, 8, 8));
  end(sequence);
  add(3);  // text alone needs no places
  EXPECT_TRUE(builder.fill(scheduler_->plan()).rope_positions.empty());
}

TEST_F(SchedulerTest, TheBatchReusesItsStorage) {
  const SchedulerLimits limits{
      .max_batch_tokens = 8, .max_seqs = 8, .chunk = 8, .block_size = 2, .pools = {{.n_blocks = 100}}};
  make(limits);
  BatchBuilder builder(limits, 64);
  const int32_t* tokens = nullptr;
  const int32_t* table = nullptr;
  for (int i = 0; i < 40; ++i) {
    if (i % 5 == 0) add(3);
    const Step& step = scheduler_->plan();
    const Batch& batch = builder.fill(step);
    if (i == 0) tokens = batch.tokens.data(), table = batch.block_table.data();
    ASSERT_EQ(batch.tokens.data(), tokens);
    ASSERT_EQ(batch.block_table.data(), table);
    for (const StepItem& item : step.items) {
      if (item.samples) item.sequence->tokens.push_back(8);
    }
  }
}

}  // namespace
}  // namespace ingot
