// The fake must detect the mistakes of a broken scheduler. These tests give it wrong input.
#include "engine/fake_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace ingot {
namespace {

struct Arrays {
  std::vector<int32_t> tokens, positions, q_start, kv_len, block_table, logit_rows;
  int max_blocks = 1;
  Batch batch() const { return {tokens, positions, q_start, kv_len, block_table, max_blocks, logit_rows}; }
};

FakeOptions small() {
  FakeOptions options;
  options.info = {
      .n_vocab = 100, .n_ctx = 16, .block_size = 2, .pools = {{.n_blocks = 8}}, .max_batch_tokens = 8, .max_seqs = 4};
  return options;
}

// Sequence 5 6 7 in blocks 3 and 1.
Arrays prompt() { return {{5, 6, 7}, {0, 1, 2}, {0, 3}, {3}, {3, 1}, {2}, 2}; }
// The next token, 9.
Arrays decode() { return {{9}, {3}, {0, 1}, {4}, {3, 1}, {0}, 2}; }

void expect_violation(FakeRunner& fake, const Arrays& arrays, const std::string& what) {
  const size_t before = fake.violations().size();
  EXPECT_THROW(fake.forward(arrays.batch()), std::logic_error);
  ASSERT_EQ(fake.violations().size(), before + 1);
  EXPECT_THAT(fake.violations().back(), testing::HasSubstr(what));
}

TEST(FakeRunner, DrawsThePureFunction) {
  FakeRunner fake(small());
  SamplingParams params;
  params.seed = 3;
  std::vector<int32_t> history{5, 6, 7};
  const Arrays first = prompt(), second = decode();
  fake.forward(first.batch());
  fake.sample(std::vector<SampleRow>{{&params, 3, history, nullptr}});
  EXPECT_EQ(fake.wait()[0].token, FakeRunner::next_token(history, 3, 100));
  history.push_back(9);
  fake.forward(second.batch());
  fake.sample(std::vector<SampleRow>{{&params, 4, history, nullptr}});
  EXPECT_EQ(fake.wait()[0].token, FakeRunner::next_token(history, 3, 100));
  EXPECT_TRUE(fake.violations().empty());
}

TEST(FakeRunner, NoticesWrongArrays) {
  FakeRunner fake(small());
  Arrays a = prompt();
  a.positions[1] = 2;
  expect_violation(fake, a, "has position");
  a = prompt();
  a.tokens[0] = 100;
  expect_violation(fake, a, "token 0 is 100");
  a = prompt();
  a.block_table[1] = 8;
  expect_violation(fake, a, "names block 8");
  a = prompt();
  a.kv_len[0] = 5;
  expect_violation(fake, a, "kv_len");
  a = prompt();
  a.logit_rows = {3};
  expect_violation(fake, a, "logit row");
}

TEST(FakeRunner, NoticesAnotherHistoryInTheCache) {
  FakeRunner fake(small());
  const Arrays first = prompt();
  fake.forward(first.batch());
  Arrays wrong = decode();
  wrong.block_table = {2, 1};  // block 2 was never written
  expect_violation(fake, wrong, "another history");
  wrong = decode();
  wrong.block_table = {1, 3};  // swapped blocks
  expect_violation(fake, wrong, "another history");
  const Arrays thief = {{8}, {0}, {0, 1}, {1}, {3}, {0}, 1};  // another sequence writes block 3
  fake.forward(thief.batch());
  expect_violation(fake, decode(), "another history");
}

TEST(FakeRunner, NoticesSharedWrites) {
  FakeRunner fake(small());
  const Arrays both = {{1, 2}, {0, 0}, {0, 1, 2}, {1, 1}, {4, 4}, {}, 1};
  expect_violation(fake, both, "is written by sequences 0 and 1");
  const Arrays first = prompt();
  fake.forward(first.batch());
  const Arrays read_and_write = {{9, 2}, {3, 0}, {0, 1, 2}, {4, 1}, {3, 1, 3, 0}, {}, 2};
  expect_violation(fake, read_and_write, "is read by sequence 0 and written by 1");
}

TEST(FakeRunner, NoticesWrongStates) {
  FakeOptions options = small();
  options.info.n_states = 2;
  FakeRunner fake(options);
  const auto expect = [&](const Arrays& a, std::vector<int32_t> in, std::vector<int32_t> out, const char* what) {
    Batch batch = a.batch();
    batch.state_in = in;
    batch.state_out = out;
    if (*what == '\0') return fake.forward(batch);
    EXPECT_THROW(fake.forward(batch), std::logic_error);
    ASSERT_FALSE(fake.violations().empty());
    EXPECT_THAT(fake.violations().back(), testing::HasSubstr(what));
  };
  expect(prompt(), {}, {}, "0 and 0 states for 1 sequences");
  expect(prompt(), {0}, {0}, "begins with state 0");
  expect(prompt(), {-1}, {2}, "writes state 2");
  expect(prompt(), {-1}, {1}, "");
  expect(decode(), {-1}, {1}, "begins with state -1");
  expect(decode(), {0}, {1}, "goes on from the state of position -1");
  expect(decode(), {1}, {0}, "");  // writes another slot
  expect(decode(), {0}, {0}, "goes on from the state of position 3");
  const Arrays both = {{5, 6}, {0, 0}, {0, 1, 2}, {1, 1}, {0, 2}, {0, 1}, 1};
  expect(both, {-1, -1}, {1, 1}, "writes state 1");
}

TEST(FakeRunner, DrawsAfterVectorsAndNoticesWrongOnes) {
  FakeOptions options = small();
  options.info.takes_embeddings = true;
  options.info.embedding_dim = 2;
  FakeRunner fake(options);
  const std::vector<int32_t> history{5, 6, 7};
  const PromptEmbedding vectors{1, 2, {1, 1}, SharedFloats(std::vector<float>{1, 2, 3, 4})};
  const Arrays arrays = prompt();
  Batch batch = arrays.batch();
  const std::vector<float> floats{3, 4, 1, 2};
  std::vector<int32_t> rows{-1, 1, 0};
  batch.embeddings = floats;
  batch.embedding_rows = rows;
  fake.forward(batch);
  SamplingParams params;
  fake.sample(std::vector<SampleRow>{{&params, 3, history, nullptr}});
  const int32_t token = fake.wait()[0].token;
  EXPECT_EQ(token, FakeRunner::next_token(history, 0, 100, {&vectors, 1}));
  EXPECT_NE(token, FakeRunner::next_token(history, 0, 100));
  EXPECT_TRUE(fake.violations().empty());
  rows[2] = 2;
  EXPECT_THROW(fake.forward(batch), std::logic_error);
  rows.pop_back();
  batch.embedding_rows = rows;
  EXPECT_THROW(fake.forward(batch), std::logic_error);
  FakeRunner tokens_only(small());
  rows = {-1, 1, 0};
  batch.embedding_rows = rows;
  EXPECT_THROW(tokens_only.forward(batch), std::logic_error);
}

TEST(FakeRunner, NoticesWrongSampleRows) {
  FakeRunner fake(small());
  const Arrays first = prompt();
  fake.forward(first.batch());
  SamplingParams params;
  const std::vector<int32_t> history{5, 6, 7}, other{5, 6, 8};
  EXPECT_THROW(fake.sample({}), std::logic_error);
  EXPECT_THROW(fake.sample(std::vector<SampleRow>{{&params, 2, history, nullptr}}), std::logic_error);
  EXPECT_THROW(fake.sample(std::vector<SampleRow>{{&params, 3, other, nullptr}}), std::logic_error);
  EXPECT_EQ(fake.violations().size(), 3u);
}

}  // namespace
}  // namespace ingot
