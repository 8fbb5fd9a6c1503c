// Draft heads on tiny random models (tools/goldens/make_draft_heads.py). Logits and guesses equal those of the
// families' published code, run with transformers' layers.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <numeric>
#include <optional>

#include "engine/devices.h"
#include "model/golden_models.h"
#include "model/files/checkpoint.h"
#include "model/program/draft_head.h"
#include "model/safetensors_edit.h"

namespace ingot {
namespace {

using testing::HasSubstr;

const fs::path kHeads = fs::path(INGOT_TEST_DATA) / "heads";

struct Case {
  std::string file, device;  // device: also "halves", a GPU with f16 activations
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const bool has_cuda = has_device("cuda");
  for (const auto& entry : fs::directory_iterator(kHeads)) {
    const bool is_model = entry.path().extension() == ".gguf" || fs::exists(entry.path() / "expected.json");
    if (!is_model) continue;
    for (const char* device : {"ref", "cpu"}) all.push_back({entry.path().filename(), device});
    for (const char* device : {"cuda", "halves"})
      if (has_cuda) all.push_back({entry.path().filename(), device});
  }
  std::ranges::sort(all, {}, [](const Case& c) { return c.file + c.device; });
  return all;
}

struct Expected {
  explicit Expected(const std::string& file) {
    const fs::path folder = kHeads / fs::path(file).stem();
    const auto json = nlohmann::json::parse(read_file((folder / "expected.json").string()));
    tokens = json["tokens"].get<std::vector<int32_t>>();
    next = json["next"];
    guesses = json["guesses"].get<std::vector<int32_t>>();
    logits = read_npy(folder / "head.npy");
  }
  std::vector<int32_t> tokens, guesses;
  int32_t next = 0;           // after the tokens
  std::vector<float> logits;  // [tokens less 1, n_vocab of the head]: after each token and the one that follows it
};

RunnerOptions head_options(const std::string& file, const std::string& device) {
  RunnerOptions options{.backend = {.device = device == "halves" ? "cuda" : device,
                                    .n_threads = 2,
                                    .activations = device == "cuda" ? "f32" : "",
                                    .deterministic = device == "cpu"},
                        .max_batch_tokens = 64,
                        .max_seqs = 64,
                        .block_size = 4,
                        .kv_dtype = DType::kF32,
                        .mtp_head = MtpHead::kNeeded};
  if (fs::exists(kHeads / (file + "_head"))) options.eagle_head = open_checkpoint((kHeads / (file + "_head")).string());
  return options;
}

// Runs one sequence through a runner in chunks, and asks the runner's draft head for guesses.
class Text {
 public:
  Text(Ranks& runner, std::span<const int32_t> tokens, int first_block, int n_read = 0, int state = 0)
      : runner_(runner), tokens_(tokens), state_(state), n_read_(n_read) {
    for (int i = 0; i < 40; ++i) blocks_.push_back(first_block + i);
  }
  // Computes the next n tokens. Samples and returns the token after them.
  int32_t read(int n) { return step(n, {}).front(); }
  // Computes the next token and n drafts, of which n_right are right. Returns the token after each of them.
  std::vector<int32_t> verify(int n, int n_right) { return step(1 + n, n_right); }
  DraftRow row(int position, int n) const {
    return {.row = position - (n_read_ - n_last_), .position = position, .blocks = blocks_, .n = n};
  }
  // The head's logits after each token of the last chunk.
  std::vector<float> logits() {
    std::vector<DraftRow> rows;
    for (int position = n_read_ - n_last_; position < n_read_; ++position) rows.push_back(row(position, 1));
    return runner_.draft_head()->logits(rows);
  }
  int n_read() const { return n_read_; }

 private:
  std::vector<int32_t> step(int n, std::optional<int> n_right) {
    std::vector<int32_t> positions(n);
    std::iota(positions.begin(), positions.end(), n_read_);
    std::vector<int32_t> logit_rows = {n - 1};
    if (n_right) logit_rows.resize(n), std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const std::vector<int32_t> q_start = {0, n}, kv_len = {n_read_ + n}, no_state = {n_read_ > 0 ? state_ : -1},
                               state = {state_};
    const SamplingParams greedy{.temperature = 0};
    Batch batch{.tokens = tokens_.subspan(n_read_, n),
                .positions = positions,
                .q_start = q_start,
                .kv_len = kv_len,
                .block_table = blocks_,
                .max_blocks = static_cast<int>(blocks_.size()),
                .logit_rows = logit_rows};
    if (runner_.info().n_states > 0) batch.state_in = no_state, batch.state_out = state;
    runner_.forward(batch);
    std::vector<SampleRow> rows;
    for (const int32_t at : logit_rows) rows.push_back({.params = &greedy, .position = n_read_ + at + 1});
    runner_.sample(rows);
    n_read_ += n, n_last_ = n;
    std::vector<int32_t> next(tokens_.begin() + n_read_ - n + 1, tokens_.begin() + n_read_);
    next.push_back(n_read_ < static_cast<int>(tokens_.size()) ? tokens_[n_read_] : drawn_token(0));
    for (int i = n_right.value_or(n); i < n; ++i) next[i] = drawn_token(i);
    runner_.follow(next);
    std::vector<int32_t> drawn;
    for (const Sampled& one : runner_.wait()) drawn.push_back(one.token);
    return drawn;
  }

  Ranks& runner_;
  const std::span<const int32_t> tokens_;
  std::vector<int32_t> blocks_;
  const int state_;
  int n_read_, n_last_ = 0;
};

Ranks load_head(const std::string& file, const RunnerOptions& options) {
  const auto checkpoint = open_checkpoint((kHeads / file).string());
  return Ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
}

// The tokens of all rows, one row after another.
std::vector<int32_t> guesses_of(Ranks& runner, std::span<const DraftRow> rows, const HeadGoesOn& goes_on = {}) {
  std::vector<int32_t> tokens;
  for (const auto& row : runner.draft(rows, goes_on))
    for (const HeadGuess& guess : row) {
      EXPECT_GT(guess.probability, 0);
      EXPECT_LE(guess.probability, 1);
      tokens.push_back(guess.token);
    }
  return tokens;
}

// The guesses after a text that is read at once.
std::vector<int32_t> guesses_after(Ranks& runner, std::span<const int32_t> tokens, int n_guesses) {
  const int n = static_cast<int>(tokens.size());
  Text text(runner, tokens, 0);
  text.read(n);
  const DraftRow row = text.row(n - 1, n_guesses);
  return guesses_of(runner, std::span(&row, 1));
}

class DraftHeads : public testing::TestWithParam<Case> {};

TEST_P(DraftHeads, EqualThePublishedCode) {
  const Expected expected(GetParam().file);
  Ranks runner = load_head(GetParam().file, head_options(GetParam().file, GetParam().device));
  for (const int chunk : {64, 7, 1}) {  // whole, in parts and token by token, each time in other blocks
    Text text(runner, expected.tokens, chunk);
    std::vector<float> logits;
    int32_t next = -1;
    const int n = static_cast<int>(expected.tokens.size());
    while (text.n_read() < n) {
      next = text.read(std::min(chunk, n - text.n_read()));
      const std::vector<float> part = text.logits();
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_EQ(next, expected.next);
    logits.resize(expected.logits.size());
    const double error = largest_difference(logits, expected.logits);
    EXPECT_LT(error, GetParam().device == "halves" ? 0.05 : GetParam().device == "cuda" ? 0.02 : 1e-4) << chunk;
    RecordProperty(fmt::format("error_{}", chunk), fmt::format("{:.1e}", error));
    const DraftRow last = text.row(n - 1, 4);
    EXPECT_EQ(guesses_of(runner, std::span(&last, 1)), expected.guesses) << chunk;
  }
}

// The guesses do not depend on when the head computed its cache entries: late, together with those of another text or
// without them, or as replacements for those of wrong drafts. With steps of at most 8 tokens, 16 tokens may wait.
TEST_P(DraftHeads, LateEntriesGiveTheSameGuesses) {
  const Expected expected(GetParam().file);
  RunnerOptions options = head_options(GetParam().file, GetParam().device);
  const std::span<const int32_t> tokens = expected.tokens;
  const int n = static_cast<int>(tokens.size());
  const std::vector<int32_t> reversed(tokens.rbegin(), tokens.rend());
  Ranks other_runner = load_head(GetParam().file, options);
  const std::vector<int32_t> of_reversed = guesses_after(other_runner, reversed, 4);
  for (const auto& [chunk, most_tokens] : {std::pair{1, 64}, {3, 64}, {1, 8}, {3, 8}}) {
    SCOPED_TRACE(fmt::format("{} of at most {}", chunk, most_tokens));
    options.max_batch_tokens = most_tokens, options.max_seqs = std::min(most_tokens, 16);
    Ranks runner = load_head(GetParam().file, options);
    Text text(runner, tokens, 1), other(runner, reversed, 60, 0, 1);
    while (text.n_read() < n) {
      if (runner.info().n_states == 0 && text.n_read() % 8 == 6)  // drafts that the next chunk overwrites
        Text(runner, reversed, 1, text.n_read()).read(std::min(3, n - text.n_read()));
      if (other.n_read() < n - 1) other.read(std::min(chunk, n - 1 - other.n_read()));
      text.read(std::min(chunk, n - text.n_read()));
    }
    const DraftRow last = text.row(n - 1, 4);
    EXPECT_EQ(guesses_of(runner, std::span(&last, 1)), expected.guesses);
    other.read(1);
    const DraftRow last_of_other = other.row(n - 1, 4);
    if (GetParam().device != "halves") {
      EXPECT_EQ(guesses_of(runner, std::span(&last_of_other, 1)), of_reversed);
    }
  }
}

// The head guesses after a step that verifies drafts, of which the last ones are wrong. A GPU begins such a guess
// before the host asks for it.
TEST_P(DraftHeads, GuessAfterWrongDrafts) {
  const Expected expected(GetParam().file);
  Ranks runner = load_head(GetParam().file, head_options(GetParam().file, GetParam().device));
  const int n = static_cast<int>(expected.tokens.size()), n_vocab = runner.info().n_vocab;
  for (const int n_wrong : {0, 1, 3}) {
    std::vector<int32_t> tokens = expected.tokens;
    for (int i = 0; i < n_wrong; ++i) tokens.push_back((expected.next + 1 + i) % n_vocab);
    Text text(runner, tokens, 0);
    text.read(n - 3);  // plain steps, whose entries are still missing
    text.read(1);
    EXPECT_EQ(text.verify(1 + n_wrong, 1)[1], expected.next) << n_wrong;
    const DraftRow last = text.row(n - 1, 4);
    EXPECT_EQ(guesses_of(runner, std::span(&last, 1)), expected.guesses) << n_wrong;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DraftHeads, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.file + "_" + test.param.device;
  std::ranges::replace(name, '.', '_');
  return name;
});

// Two sequences in one call give the same guesses as each sequence alone.
TEST(DraftHead, GuessesForSeveralSequences) {
  const Expected expected("llama_nextn");
  Ranks runner = load_head("llama_nextn", head_options("llama_nextn", "cpu"));
  const std::span<const int32_t> tokens = expected.tokens;
  std::vector<int32_t> alone = guesses_after(runner, tokens.first(20), 4);
  const std::vector<int32_t> other = guesses_after(runner, tokens.first(12), 4);
  alone.insert(alone.end(), other.begin(), other.begin() + 2);

  std::vector<int32_t> all(tokens.begin(), tokens.begin() + 20), positions(32), blocks(2 * 10), next;
  all.insert(all.end(), tokens.begin(), tokens.begin() + 12);
  for (int i = 0; i < 32; ++i) positions[i] = i < 20 ? i : i - 20;
  std::iota(blocks.begin(), blocks.end(), 50);
  const std::vector<int32_t> q_start = {0, 20, 32}, kv_len = {20, 12}, logit_rows = {19, 31};
  runner.forward({.tokens = all,
                  .positions = positions,
                  .q_start = q_start,
                  .kv_len = kv_len,
                  .block_table = blocks,
                  .max_blocks = 10,
                  .logit_rows = logit_rows});
  const SamplingParams greedy{.temperature = 0};
  const SampleRow rows[] = {{.params = &greedy, .position = 20}, {.params = &greedy, .position = 12}};
  runner.sample(rows);
  next.assign(all.begin() + 1, all.end());
  next.push_back(drawn_token(1));
  next[19] = drawn_token(0);
  runner.follow(next);
  runner.wait();
  const DraftRow wanted[] = {{.row = 19, .position = 19, .blocks = std::span(blocks).first(10), .n = 4},
                             {.row = 31, .position = 11, .blocks = std::span(blocks).last(10), .n = 2}};
  EXPECT_EQ(guesses_of(runner, wanted), alone);

  // The first row stops after two guesses, while the second goes on; then both stop.
  int calls_of_first = 0;
  const auto stopping = [&](size_t row, float) { return row == 1 || calls_of_first++ == 0; };
  const std::vector<int32_t> fewer = {alone[0], alone[1], alone[4], alone[5]};
  EXPECT_EQ(guesses_of(runner, wanted, stopping), fewer);
}

// Two sequences whose drafts one step verifies: the first draft of one is right, and none of the other. The head
// guesses as for each sequence alone.
TEST(DraftHead, GuessesAfterDraftsOfSeveralSequences) {
  const Expected expected("llama_nextn");
  for (const char* device : {"cpu", "cuda"}) {
    if (!has_device(device)) continue;
    Ranks runner = load_head("llama_nextn", head_options("llama_nextn", device));
    const std::span<const int32_t> tokens = expected.tokens;
    std::vector<int32_t> alone = guesses_after(runner, tokens.first(20), 3);
    const std::vector<int32_t> other = guesses_after(runner, tokens.first(12), 3);
    alone.insert(alone.end(), other.begin(), other.end());
    Text(runner, tokens, 50).read(18);
    Text(runner, tokens, 60).read(11);
    std::vector<int32_t> blocks(2 * 10);
    std::iota(blocks.begin(), blocks.end(), 50);
    const int32_t wrong = 0;
    const std::vector<int32_t> drafted = {tokens[18], tokens[19], wrong, tokens[11], wrong, wrong},
                               positions = {18, 19, 20, 11, 12, 13}, q_start = {0, 3, 6}, kv_len = {21, 14},
                               logit_rows = {0, 1, 2, 3, 4, 5};
    runner.forward({.tokens = drafted,
                    .positions = positions,
                    .q_start = q_start,
                    .kv_len = kv_len,
                    .block_table = blocks,
                    .max_blocks = 10,
                    .logit_rows = logit_rows});
    const SamplingParams greedy{.temperature = 0};
    std::vector<SampleRow> rows;
    for (const int32_t position : positions) rows.push_back({.params = &greedy, .position = position + 1});
    runner.sample(rows);
    std::vector<int32_t> next = {tokens[19]};
    for (int i = 1; i < 6; ++i) next.push_back(drawn_token(i));
    runner.follow(next);
    runner.wait();
    const DraftRow wanted[] = {{.row = 1, .position = 19, .blocks = std::span(blocks).first(10), .n = 3},
                               {.row = 3, .position = 11, .blocks = std::span(blocks).last(10), .n = 3}};
    EXPECT_EQ(guesses_of(runner, wanted), alone) << device;
  }
}

// The NaN check also covers each op of the head.
TEST(DraftHead, RunsInsideADecorator) {
  const Expected expected("qwen35");
  RunnerOptions options = head_options("qwen35", "cpu");
  options.check_nan = true;
  Ranks runner = load_head("qwen35", options);
  Text text(runner, expected.tokens, 0);
  EXPECT_EQ(text.read(static_cast<int>(expected.tokens.size())), expected.next);
  const DraftRow last = text.row(static_cast<int>(expected.tokens.size()) - 1, 4);
  EXPECT_EQ(guesses_of(runner, std::span(&last, 1)), expected.guesses);
}

// If no guesses are requested, the head computes the entries of many tokens together.
TEST(DraftHead, RunsSeldomWhenNobodyAsks) {
  const fs::path path = fs::path(testing::TempDir()) / "draft_head_trace.json";
  const Expected expected("llama_nextn");
  const int n = static_cast<int>(expected.tokens.size());
  {
    RunnerOptions options = head_options("llama_nextn", "cpu");
    options.trace = std::make_shared<TraceFile>(path.string());
    Ranks runner = load_head("llama_nextn", options);
    for (int i = 0; i < 4; ++i) {
      Text text(runner, expected.tokens, 40 * i);
      while (text.n_read() < n) text.read(1);
    }
  }
  int n_embeds = 0;
  for (const auto& line : nlohmann::json::parse(read_file(path.string()))) n_embeds += line["name"] == "embed";
  fs::remove(path);
  EXPECT_EQ(n_embeds - 4 * n, (4 * n - 1) / 64 - 1);  // 128 tokens wait at most, and a run computes 64
}

// The memory planned before loading equals the memory that the model and its head use.
TEST(DraftHead, ThePlanCountsIt) {
  for (const char* file : {"glm4_moe", "deepseek3.gguf", "qwen35", "eagle3"}) {
    RunnerOptions options = head_options(file, "cpu");
    const size_t with = load_head(file, options).memory().allocated_bytes();
    EXPECT_EQ(load_head(file, options).allocated_bytes(), with) << file;
    options.mtp_head = MtpHead::kNone, options.eagle_head = nullptr;
    EXPECT_LT(load_head(file, options).allocated_bytes(), with) << file;
  }
}

std::string fault_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no fault";
}

// A copy of a folder of heads/ with changed tensors.
class HeadCopy {
 public:
  explicit HeadCopy(const std::string& name, const std::function<void(RawTensors&)>& change)
      : path_(fs::path(testing::TempDir()) / fmt::format("head_{}_{}", name, ++n_copies_)) {
    fs::remove_all(path_);
    fs::copy(kHeads / name, path_);
    RawTensors tensors = take_safetensors(path_);
    change(tensors);
    std::ofstream(path_ / "model.safetensors", std::ios::binary) << safetensors_of(tensors);
  }
  ~HeadCopy() { fs::remove_all(path_); }
  HeadCopy(const HeadCopy&) = delete;
  HeadCopy& operator=(const HeadCopy&) = delete;
  // Changes keys of config.json.
  void set(const nlohmann::json& keys) const {
    auto json = nlohmann::json::parse(read_file((path_ / "config.json").string()));
    json.update(keys);
    std::ofstream(path_ / "config.json") << json.dump();
  }
  const fs::path& path() const { return path_; }

 private:
  static inline int n_copies_ = 0;
  fs::path path_;
};

TEST(DraftHeadFaults, NameWhatIsMissing) {
  const auto no_change = [](RawTensors&) {};
  const HeadCopy none("llama_nextn", [](RawTensors&t) { t.erase("model.layers.2.eh_proj.weight"); }),
      no_norm("llama_nextn", [](RawTensors&t) { t.erase("model.layers.2.hnorm.weight"); }),
      no_layer("qwen35", [](RawTensors&t) { t.erase("mtp.layers.0.mlp.up_proj.weight"); }),
      wide("llama_nextn",
           [](RawTensors&t) {
             t["model.layers.2.eh_proj.weight"].shape = {64, 32};
           }),
      whole("llama_nextn", no_change);
  const auto load_copy = [](const HeadCopy& copy, MtpHead use) {
    const auto checkpoint = open_checkpoint(copy.path().string());
    const Ranks runner(checkpoint->config(), checkpoint->weights(), {.backend = {.device = "cpu"}, .mtp_head = use},
                       nullptr);
    return runner.info().draft_head;
  };
  const std::pair<const HeadCopy*, const char*> cases[] = {
      {&none, "the model has no layer for multi-token prediction (MTP)"},
      {&no_norm, "tensor 'model.layers.2.hnorm.weight' is missing"},
      {&no_layer, "tensor 'mtp.layers.0.mlp.up_proj.weight' is missing"},
      {&wide, "is [64, 32]: expected [32, 64]"}};
  for (const auto& [copy, what] : cases) {
    EXPECT_THAT(fault_of([&, copy = copy] { load_copy(*copy, MtpHead::kNeeded); }), HasSubstr(what));
    EXPECT_EQ(load_copy(*copy, MtpHead::kIfPresent), DraftHeadKind::kNone);
  }
  EXPECT_EQ(load_copy(whole, MtpHead::kIfPresent), DraftHeadKind::kMtp);
  EXPECT_EQ(load_copy(whole, MtpHead::kNone), DraftHeadKind::kNone);
}

TEST(DraftHeadFaults, AnEagleHeadFitsItsModel) {
  const auto no_change = [](RawTensors&) {};
  const auto fault_with = [](const HeadCopy& head, const char* model) {
    RunnerOptions options{.backend = {.device = "cpu"}};
    options.eagle_head = open_checkpoint(head.path().string());
    return fault_of([&] { load_head(model, options); });
  };
  const HeadCopy head("eagle3_head", no_change);
  EXPECT_EQ(fault_with(head, "eagle3"), "no fault");
  EXPECT_THAT(fault_with(head, "eagle3_moe"), HasSubstr("the head is made for 261 tokens, but the model has 263"));
  EXPECT_THAT(fault_with(head, "llama_nextn"),
              HasSubstr("the head reads three inner layers of the model, which has only 2 layers"));
  head.set({{"hidden_size", 48}});
  EXPECT_THAT(fault_with(head, "eagle3"),
              HasSubstr("the head needs hidden states of 48 numbers, but the model's have 32"));
  const HeadCopy two("eagle3_head", no_change);
  two.set({{"num_hidden_layers", 2}});
  EXPECT_THAT(fault_with(two, "eagle3"), HasSubstr("expected one dense layer"));
  const HeadCopy far("eagle3_head", no_change);
  far.set({{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {1, 4, 8}}}}});
  EXPECT_THAT(fault_with(far, "eagle3"), HasSubstr("eagle_aux_hidden_state_layer_ids[2]"));
  const HeadCopy unnamed("eagle3_head", [](RawTensors& t) { t.erase("d2t"); });
  EXPECT_THAT(fault_with(unnamed, "eagle3"),
              HasSubstr("the head has 97 of the model's 261 tokens, but tensor 'd2t'"));
  const HeadCopy outside("eagle3_head", [](RawTensors& t) { t["d2t"].bytes[96 * 8] = char(200); });
  EXPECT_THAT(fault_with(outside, "eagle3"), HasSubstr("names token 96 + "));
  const HeadCopy short_list("eagle3_head", [](RawTensors& t) {
    t["d2t"].shape = {96};
    t["d2t"].bytes.resize(96 * 8);
  });
  EXPECT_THAT(fault_with(short_list, "eagle3"), HasSubstr("'d2t' has 96 elements of I64: expected 97"));
  const HeadCopy no_fc("eagle3_head", [](RawTensors& t) { t.erase("fc.weight"); });
  EXPECT_THAT(fault_with(no_fc, "eagle3"), HasSubstr("tensor 'fc.weight' is missing"));
}

}  // namespace
}  // namespace ingot
