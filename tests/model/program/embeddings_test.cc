// Embeddings instead of tokens: the rows of the model's own table give the same logits as their tokens.
#include <numeric>

#include "backend/cpu/packed_weight.h"
#include "model/golden_models.h"

namespace ingot {
namespace {

constexpr int32_t kPlaceholder = 1;

// The model's input rows for these tokens: rows of its table, scaled, because a step scales only rows of tokens.
std::vector<float> rows_of(Ranks& runner, std::span<const int32_t> tokens) {
  const Weight& table = runner.weights().model.embedding;
  std::vector<float> rows(tokens.size() * static_cast<size_t>(table.n_in));
  for (size_t i = 0; i < tokens.size(); ++i) {
    float* row = &rows[i * static_cast<size_t>(table.n_in)];
    if (table.codes != nullptr) {
      decode_row(table.format, table.row(tokens[i]), row, table.n_in);
    } else {  // of a tied matrix in panels
      cpu::read_packed_row(*static_cast<const cpu::PackedWeight*>(table.packed), table.format, tokens[i], row);
    }
    for (int64_t j = 0; j < table.n_in; ++j) row[j] *= runner.config().embedding_scale;
  }
  return rows;
}

// The logits of every token, in one step. In each run of `period` tokens, the first is given as a token, the others as
// vectors.
std::vector<float> logits_of(Ranks& runner, std::span<const int32_t> tokens, int period) {
  const int n = static_cast<int>(tokens.size());
  std::vector<int32_t> ids, rows(tokens.size(), -1), of_rows, positions(tokens.size());
  for (int i = 0; i < n; ++i) {
    const bool is_token = period > 0 && i % period == 0;
    ids.push_back(is_token ? tokens[i] : kPlaceholder);
    if (is_token) continue;
    rows[i] = static_cast<int32_t>(of_rows.size());
    of_rows.push_back(tokens[i]);
  }
  std::iota(positions.begin(), positions.end(), 0);
  const int n_blocks = (n + runner.info().block_size - 1) / runner.info().block_size;
  std::vector<int32_t> blocks;
  for (size_t pool = 0; pool < runner.info().pools.size(); ++pool)
    for (int i = 0; i < n_blocks; ++i) blocks.push_back(i);
  const std::vector<float> embeddings = rows_of(runner, of_rows);
  const int32_t q_start[] = {0, n}, kv_len[] = {n}, state_in[] = {-1}, state_out[] = {0};
  const std::span<const int32_t> none;
  const bool has_states = runner.info().n_states > 0;
  runner.forward({.tokens = ids,
                  .positions = positions,
                  .q_start = q_start,
                  .kv_len = kv_len,
                  .block_table = blocks,
                  .max_blocks = n_blocks,
                  .logit_rows = positions,
                  .state_in = has_states ? std::span<const int32_t>(state_in) : none,
                  .state_out = has_states ? std::span<const int32_t>(state_out) : none,
                  .embeddings = embeddings,
                  .embedding_rows = rows});
  return runner.logits();
}

class Embeddings : public testing::TestWithParam<std::string> {};

TEST_P(Embeddings, GiveTheLogitsOfTheirTokens) {
  const Golden golden = read_golden(GetParam());
  for (const char* device : {"cpu", "ref"}) {
    Ranks runner = load_golden(golden.name, {.device = device, .n_threads = 1});
    if (!runner.info().takes_embeddings) GTEST_SKIP() << "the inputs of layers need tokens";
    ASSERT_EQ(runner.info().embedding_dim, runner.config().dim);
    const std::vector<float> expected = all_logits(runner, golden.tokens, 512);
    for (const int period : {0, 3})
      EXPECT_EQ(logits_of(runner, golden.tokens, period), expected) << device << " " << period;
    EXPECT_EQ(all_logits(runner, golden.tokens, 512), expected) << "a step without embeddings, after one with";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Embeddings, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
