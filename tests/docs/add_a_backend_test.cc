// Builds the backend class shown in docs/add-a-backend.md (cmake/tests.cmake extracts it) and runs the models of
// tests/data on it. The host cannot access this backend's memory. Results must equal ref's, except for the rounding of
// f16 activations.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/blocks/pool.h"
#include "backend/ref/ref_backend.h"
#include "backend/trace.h"
#include "base/error.h"
#include "docs/toy_device.h"
#include "model/files/checkpoint.h"
#include "model/golden_models.h"
#include "model/program/decoder_program.h"
#include "model/program/kv_caches.h"

namespace ingot {
namespace {

#include "add_a_backend.h"

constexpr int kBlockSize = 16;

// The batches of one sequence. Its blocks are not consecutive, and its state slot is not the first.
class Sequence {
 public:
  explicit Sequence(int n_blocks) : blocks_(static_cast<size_t>(n_blocks)) {
    std::iota(blocks_.rbegin(), blocks_.rend(), 0);
  }

  // The next tokens, each with logits.
  Batch next(std::span<const int32_t> tokens) {
    const int n = static_cast<int>(tokens.size());
    state_in_ = length_ == 0 ? -1 : 1;
    positions_.resize(tokens.size());
    rows_.resize(tokens.size());
    std::iota(positions_.begin(), positions_.end(), length_);
    std::iota(rows_.begin(), rows_.end(), 0);
    length_ += n;
    q_start_[1] = n;
    return {.tokens = tokens,
            .positions = positions_,
            .q_start = q_start_,
            .kv_len = {&length_, 1},
            .block_table = blocks_,
            .max_blocks = static_cast<int>(blocks_.size()),
            .logit_rows = rows_,
            .state_in = {&state_in_, 1},
            .state_out = {&state_out_, 1}};
  }

 private:
  std::vector<int32_t> blocks_, positions_, rows_;
  int32_t q_start_[2] = {0, 0};
  int32_t length_ = 0, state_in_ = -1, state_out_ = 1;
};

StepLimits limits_of(int n_tokens, int n_vocab) {
  return {.max_tokens = n_tokens, .max_seqs = 1, .max_logits = n_tokens, .max_kv_len = n_tokens, .n_vocab = n_vocab};
}

std::vector<float> downloaded(Backend& backend, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
  backend.download(values.data(), t);
  return values;
}

// The logits of all tokens, in steps of at most `chunk`.
std::vector<float> decoder_logits(Backend& backend, const Golden& golden, int chunk) {
  const auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (golden.name + ".gguf")).string()));
  const Config config = config_from_gguf(*file);
  const std::unique_ptr<WeightSource> source = gguf_source(file);
  const Weights weights = load_weights(*source, config, backend, nullptr);
  const int n = static_cast<int>(golden.tokens.size()), n_blocks = (n + kBlockSize - 1) / kBlockSize;
  std::vector<std::unique_ptr<KvCache>> kv;
  DecoderCaches caches;
  for (KvShape cache : kv_shapes(config, {}, kBlockSize, DType::kF32)) {
    cache.table = 0;  // all caches have the same blocks
    cache.n_blocks = n_blocks;
    caches.kv.push_back(kv.emplace_back(backend.make_kv(cache)).get());
  }
  const StateShape shape = state_shape(config, 2);
  const auto states = shape ? backend.make_states(shape) : nullptr;
  const int n_ctx = n_ctx_of(golden.name) > 0 ? n_ctx_of(golden.name) : config.n_ctx_train;
  caches.states = states.get();
  Program program = decoder_layers(config, weights, caches, &backend, n_ctx);
  program.blocks.emplace_back(head_block(config, weights));
  program.allocate(backend, limits_of(n, config.n_vocab));

  Sequence sequence(n_blocks);
  std::vector<float> all;
  for (int begin = 0; begin < n; begin += chunk) {
    const Batch batch = sequence.next(std::span(golden.tokens).subspan(begin, std::min(chunk, n - begin)));
    backend.run(program, batch);
    const Tensor logits = program.output(batch.n_tokens(), batch.n_seqs(), batch.n_logits());
    const std::vector<float> step = downloaded(backend, logits);
    all.insert(all.end(), step.begin(), step.end());

    const SamplingParams greedy{.temperature = 0};
    const std::vector<SampleRow> rows(batch.tokens.size(), {&greedy, 0});
    backend.sample(logits, rows);
    const std::vector<Sampled> drawn = backend.wait();
    EXPECT_EQ(drawn.size(), rows.size());
    const float* last = step.data() + step.size() - logits.cols;
    EXPECT_EQ(drawn.back().token, std::max_element(last, last + logits.cols) - last);
  }
  return all;
}

// The mean of a text's last hidden states.
std::vector<float> encoder_vector(Backend& backend, const std::string& name, int n) {
  const auto checkpoint = open_checkpoint((fs::path(INGOT_TEST_DATA) / "encoders" / (name + ".gguf")).string());
  const Config config = checkpoint->config();
  const auto source = checkpoint->weights();
  const Weights weights = load_weights(*source, config, backend, nullptr);
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((5 + 37 * i) % config.n_vocab);
  const int n_blocks = (n + kBlockSize - 1) / kBlockSize;
  const auto kv = backend.make_kv({.n_layers = 1,
                                   .n_kv_heads = config.n_heads,
                                   .head_dim = config.head_dim,
                                   .block_size = kBlockSize,
                                   .n_blocks = n_blocks,
                                   .dtype = DType::kF32});
  Program program = decoder_layers(config, weights, {.kv = {kv.get()}}, &backend, n);
  program.blocks.emplace_back(PoolBlock{.norm = final_norm(config, weights)});
  program.allocate(backend, limits_of(n, 0));
  Sequence sequence(n_blocks);
  const Batch batch = sequence.next(tokens);
  backend.run(program, batch);
  return downloaded(backend, program.output(batch.n_tokens(), batch.n_seqs(), batch.n_logits()));
}

class AddABackend : public testing::TestWithParam<std::string> {};

class ToyOfFloats final : public ToyBackend {
 public:
  DType act_dtype() const override { return DType::kF32; }
};

TEST_P(AddABackend, NothingIsLostOnTheWay) {
  const Golden golden = read_golden(GetParam());
  const auto ref = create_ref_backend();
  ToyOfFloats toy;
  const std::vector<float> want = decoder_logits(*ref, golden, 7);
  EXPECT_EQ(largest_difference(decoder_logits(toy, golden, 7), want), 0);
  EXPECT_LT(largest_difference(want, golden.logits), 1e-4);
}

// f16 activations have 11 bits; the logits of these models reach 8 to 11. If two experts score nearly equally for a
// token, the error may decide which one is chosen. Models with experts may therefore differ at one position.
TEST_P(AddABackend, F16LogitsAreNear) {
  const Golden golden = read_golden(GetParam());
  ToyBackend toy;
  for (const int chunk : {1 << 20, 7}) {
    const std::vector<float> got = decoder_logits(toy, golden, chunk);
    EXPECT_GT(largest_difference(got, golden.logits), 1e-4) << "activations were not rounded";
    const size_t n_vocab = got.size() / golden.tokens.size();
    size_t n_far = 0;
    for (size_t at = 0; at < got.size(); at += n_vocab) {
      const auto row = [&](const std::vector<float>& all) { return std::vector<float>(&all[at], &all[at] + n_vocab); };
      n_far += !(largest_difference(row(got), row(golden.logits)) < 0.08);
    }
    const bool has_experts = config_from_gguf(Gguf::open((kModels / (golden.name + ".gguf")).string())).experts.n > 0;
    EXPECT_LE(n_far, has_experts ? 1 : 0) << chunk;
  }
}

// --check-nan reads rows of f16 on the device, also those of strided views.
TEST_P(AddABackend, ACheckForNanChangesNothing) {
  const Golden golden = read_golden(GetParam());
  ToyBackend toy;
  const auto checked = nan_check_backend(std::make_unique<ToyBackend>());
  EXPECT_EQ(decoder_logits(*checked, golden, 7), decoder_logits(toy, golden, 7));
}

INSTANTIATE_TEST_SUITE_P(Models, AddABackend, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

TEST(AddABackendEncoders, RunOnIt) {
  for (const char* name : {"bert", "modern_bert"}) {
    const auto ref = create_ref_backend();
    ToyBackend toy;
    const std::vector<float> got = encoder_vector(toy, name, 19), want = encoder_vector(*ref, name, 19);
    const double dot = std::inner_product(got.begin(), got.end(), want.begin(), 0.0);
    const double lengths = std::sqrt(std::inner_product(got.begin(), got.end(), got.begin(), 0.0) *
                                     std::inner_product(want.begin(), want.end(), want.begin(), 0.0));
    EXPECT_GT(dot / lengths, 0.99999) << name;
    EXPECT_GT(largest_difference(got, want), 0) << name;
  }
}

// The page's rules for slices and for views of any stride.
TEST(ToyBackend, CopiesViewsOfAnyStride) {
  ToyBackend toy;
  const Tensor t = toy.alloc(DType::kF32, 4, 6);
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  toy.upload(t, values.data());
  EXPECT_EQ(downloaded(toy, t.slice_rows(1, 2).slice_cols(4, 2)), (std::vector<float>{10, 11, 16, 17}));
  const std::vector<float> column = {-1, -2, -3, -4};
  toy.upload(t.slice_cols(3, 1), column.data());
  EXPECT_EQ(downloaded(toy, t.slice_rows(3, 1)), (std::vector<float>{18, 19, 20, -4, 22, 23}));
  EXPECT_EQ(toy.allocated_bytes(), 96u);
}

TEST(ToyBackend, ANanIsFoundInAViewOfHalves) {
  const auto checked = nan_check_backend(std::make_unique<ToyBackend>());
  constexpr uint16_t kNan = 0x7E00;
  // Columns 0 and 1 do not belong to the view.
  const std::vector<uint16_t> halves = {kNan, kNan, 0, 0, 0, 0, kNan, kNan, 0, 0, kNan, 0};
  const Tensor t = checked->alloc(DType::kF16, 2, 6), view = t.slice_cols(2, 4);
  checked->upload(t, halves.data());
  EXPECT_NO_THROW(checked->act(view.slice_rows(0, 1), Activation::kSilu));
  try {
    checked->act(view, Activation::kSilu);
    FAIL() << "the NaN was not found";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "act (op 2 of the run) wrote NaN at row 1, column 2 of [2, 4]");
  }
}

TEST(ToyBackendDeathTest, ItsMemoryIsNotTheHosts) {
  ToyBackend toy;
  const Tensor t = toy.alloc(DType::kF32, 1, 1);
  EXPECT_FALSE(toy.is_host());
  EXPECT_DEATH({ *static_cast<volatile float*>(t.data) = 1; }, "");
}

}  // namespace
}  // namespace ingot
