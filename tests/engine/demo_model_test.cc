// The demo model end to end. Tokenizer, template, logits and greedy answers must equal those of
// tools/demo_model/verify.py, which computes them in NumPy from the bytes of the file, with Hugging Face tokenizers and
// jinja2 (tests/data/demo/expected.json).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory_error.h"
#include "collector.h"
#include "engine/engine.h"
#include "engine/speculate/drafting.h"
#include "model/loader.h"
#include "model/devices/score.h"
#include "text/chat_encode.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

LoadedModel load_demo(const char* device) {
  const auto checkpoint = open_checkpoint(std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf");
  return load_model(checkpoint, {.backend = {.device = device}, .n_ctx = 512, .max_batch_tokens = 128}, nullptr);
}

const Json& expected() {
  static const Json json = Json::parse(read_file(std::string(INGOT_TEST_DATA) + "/demo/expected.json"));
  return json;
}

// The model's answer with its stop token.
std::vector<int32_t> greedy(Engine& engine, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt, int n) {
  auto sink = std::make_shared<Collector>();
  engine.submit({.prompt = prompt,
                 .sampling = {.temperature = 0},
                 .max_tokens = n,
                 .stop_tokens = tokenizer.end_tokens(),
                 .sink = sink});
  while (engine.step()) {
  }
  std::vector<int32_t> ids = sink->tokens;
  if (sink->finish->reason == FinishReason::kStop) ids.push_back(sink->finish->stop_token);
  return ids;
}

class DemoModel : public testing::TestWithParam<const char*> {};

TEST_P(DemoModel, TokenizesAsHuggingFace) {
  const LoadedModel model = load_demo(GetParam());
  for (const Json& one : expected()["tokenize"])
    EXPECT_EQ(model.tokenizer->encode(one["text"].get<std::string>(), {.add_special = false, .parse_special = true}),
              one["ids"].get<std::vector<int32_t>>()) << one["text"];
}

TEST_P(DemoModel, LogitsAreThoseOfTheFile) {
  LoadedModel model = load_demo(GetParam());
  const Json& golden = expected()["logits"];
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  const double bound = std::string_view(GetParam()) == "ref" ? 2e-3 : 0.15;  // the cpu's activations are int8
  for_each_logits(*model.runner, ids, 128, static_cast<int>(ids.size()) - 1, [&](int, std::span<const float> logits) {
    for (size_t i = 0; i < golden["top_ids"].size(); ++i)
      EXPECT_NEAR(logits[golden["top_ids"][i].get<int>()], golden["top_logits"][i].get<double>(), bound);
  });
}

TEST_P(DemoModel, AnswersAsTheReference) {
  LoadedModel model = load_demo(GetParam());
  Engine engine(*model.runner, {});
  for (const Json& chat : expected()["chat"]) {
    SCOPED_TRACE(chat["name"]);
    EXPECT_EQ(model.chat->render(chat["messages"], chat["tools"], true, nullptr), chat["prompt"].get<std::string>());
    const auto prompt = encode_chat(*model.tokenizer, *model.chat, chat["messages"], chat["tools"], nullptr);
    EXPECT_EQ(prompt, chat["prompt_ids"].get<std::vector<int32_t>>());
    const auto ids = chat["ids"].get<std::vector<int32_t>>();
    std::vector<int32_t> said = greedy(engine, *model.tokenizer, prompt, static_cast<int>(ids.size()));
    EXPECT_EQ(said, ids);
    EXPECT_EQ(model.tokenizer->is_end(said.back()), chat["finished"].get<bool>());
  }
  for (const Json& raw : expected()["raw"]) {
    SCOPED_TRACE(raw["name"]);
    const auto ids = raw["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(greedy(engine, *model.tokenizer, raw["prompt_ids"], static_cast<int>(ids.size())), ids);
  }
}

// 200 prompts: drafts give the same tokens and the same log-probabilities, bit for bit, in fewer steps. Greedy and with
// random sampling, among other requests. The guesses come from the model's head, from n-grams, or from the answer
// without drafts, with mistakes.
TEST(SpeculationOnTheDemoModel, ChangesNoBit) {
  constexpr int kMaxRows = 60;  // from 64 rows on, a matrix unit may round otherwise
  const auto checkpoint = open_checkpoint(std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf");
  LoadedModel model = load_model(checkpoint,
                                 {.backend = {.device = "cpu"},
                                  .n_ctx = 512,
                                  .max_batch_tokens = kMaxRows,
                                  .max_seqs = 4,
                                  .max_logits = 4 + 60,
                                  .mtp_head = MtpHead::kNeeded},
                                 nullptr);
  const std::vector<std::string> heroes = {"fox", "bear", "girl", "boat", "frog"},
                                 places = {"sea", "wood", "town", "snow"};
  int64_t n_steps[2] = {};
  std::vector<std::shared_ptr<Collector>> sinks[2];
  for (const bool speculates : {false, true}) {
    Engine engine(*model.runner, {.on_step = [&](const StepStats&) { ++n_steps[speculates]; }});
    for (int i = 0; i < 200; ++i) {
      const std::string said = fmt::format("The {} went to the {} and saw a {}.", heroes[i % 5], places[i % 4],
                                           heroes[(i / 5) % 5]);
      const std::string text = i % 4 >= 2 ? said + " " + said + " The" : fmt::format("Story {} of a {}:", i, said);
      Request request{.prompt = model.tokenizer->encode(text), .max_tokens = 24 + i % 9, .ignore_eos = true};
      request.sampling.temperature = i % 3 == 0 ? 0.9f : 0;
      request.sampling.repetition_penalty = i % 4 == 0 ? 1.1f : 1;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.sampling.n_logprobs = 0;
      if (speculates && i % 4 == 0) request.proposer = std::make_shared<DraftHeadProposer>(1 + i % 7);
      if (speculates && i % 4 == 1)
        request.proposer = std::make_shared<OracleProposer>(sinks[0][i]->tokens, request.prompt.size(),
                                                            model.runner->info().n_vocab, 0.8, i, 1 + i % 7);
      if (speculates && i % 4 >= 2)
        request.proposer = fixed([ngram = std::make_shared<NgramProposer>()](std::span<const int32_t> history) {
          return ngram->propose(history, 6).tokens;
        });
      sinks[speculates].push_back(std::make_shared<Collector>());
      request.sink = sinks[speculates].back();
      engine.submit(std::move(request));
    }
    while (engine.step()) {}
    EXPECT_EQ(engine.gauges().n_accepted_tokens > 1000, speculates) << engine.gauges().n_accepted_tokens;
  }
  for (size_t i = 0; i < sinks[0].size(); ++i) {
    EXPECT_EQ(sinks[1][i]->tokens, sinks[0][i]->tokens) << i;
    EXPECT_EQ(sinks[1][i]->logprobs, sinks[0][i]->logprobs) << i;
  }
  EXPECT_LT(n_steps[1], n_steps[0]);
}

// The two proposers that tools/demo_model trains: the model's layer for multi-token prediction, and the draft model.
TEST(SpeculationOnTheDemoModel, TheTrainedPairGuessesWell) {
  const std::string models = std::string(INGOT_TEST_DATA) + "/../../models/";
  const RunnerOptions options{.backend = {.device = "cpu"}, .n_ctx = 512, .max_batch_tokens = 128, .max_logits = 8,
                              .mtp_head = MtpHead::kNeeded};
  LoadedModel model = load_model(open_checkpoint(models + "demo.gguf"), options, nullptr);
  const auto file = open_checkpoint(models + "demo-draft.gguf");
  check_draft(*file, Speculate::kDraft, *model.tokenizer);
  const std::shared_ptr<DraftModel> draft = load_draft(file, options);
  const auto share_right = [&](const std::shared_ptr<Proposer>& proposer) {
    Engine engine(*model.runner);
    for (const char* what : {"a fox", "a lost kite", "a baker", "an old boat", "two friends", "the sea"}) {
      const Json messages = {{{"role", "user"}, {"content", fmt::format("Tell me a story about {}.", what)}}};
      Request request{.prompt = encode_chat(*model.tokenizer, *model.chat, messages, Json::array(), nullptr),
                      .sampling = {.temperature = 0},
                      .max_tokens = 100,
                      .stop_tokens = model.tokenizer->end_tokens(),
                      .sink = std::make_shared<Collector>(),
                      .proposer = proposer};
      engine.submit(std::move(request));
    }
    while (engine.step()) {}
    EXPECT_GT(engine.gauges().n_draft_tokens, 200);
    return static_cast<double>(engine.gauges().n_accepted_tokens) / static_cast<double>(engine.gauges().n_draft_tokens);
  };
  const double of_head = share_right(std::make_shared<DraftHeadProposer>(1)),
               of_draft = share_right(
                   fixed([&](std::span<const int32_t> history) { return draft->write(history, 1).tokens; }));
  fmt::print("right: {:.3f} of the head's guesses, {:.3f} of the draft model's\n", of_head, of_draft);
  EXPECT_GT(of_head, 0.84);
  EXPECT_GT(of_draft, 0.82);
}

TEST(SpeculationOnTheDemoModel, AHeadWithoutMemoryIsLeftOut) {
  const auto file = open_checkpoint(std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf");
  RunnerOptions options{.backend = {.device = "cpu"}, .n_ctx = 512, .max_batch_tokens = 128, .n_kv_tokens = 512};
  const size_t without = load_model(file, options, nullptr).runner->memory().total_bytes();
  options.mtp_head = MtpHead::kIfPresent;
  EXPECT_EQ(load_model(file, options, nullptr).runner->info().draft_head, DraftHeadKind::kMtp);
  options.memory_bytes = without + (640 << 10);  // the head and its cache have 1.2 MB
  EXPECT_EQ(load_model(file, options, nullptr).runner->info().draft_head, DraftHeadKind::kNone);
  options.mtp_head = MtpHead::kNeeded;
  EXPECT_THROW(load_model(file, options, nullptr), MemoryError);
}

INSTANTIATE_TEST_SUITE_P(Devices, DemoModel, testing::Values("ref", "cpu"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ingot
