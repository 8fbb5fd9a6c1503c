// Searches with beams in the engine: those of Hugging Face transformers (tests/data/beams.json, made by
// tools/goldens/make_beams.py), and the engine's blocks, states and ends with a fake model.
#include "engine/beams.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "drawn_constraint.h"
#include "model/loader.h"
#include "text/grammar/masks/model_grammars.h"
#include "text/grammar/rules/compile.h"
#include "tiny_models.h"

namespace ingot {
namespace {

using Sinks = std::vector<std::shared_ptr<Collector>>;

Sinks search(Engine& engine, Request request, int n_texts) {
  Sinks sinks;
  for (int i = 0; i < n_texts; ++i) sinks.push_back(std::make_shared<Collector>());
  request.sink = sinks[0];
  request.more_sinks.assign(sinks.begin() + 1, sinks.end());
  engine.submit(std::move(request));
  return sinks;
}

Tokens with_end(const Collector& sink) {
  Tokens tokens = sink.tokens;
  if (sink.finish->stop_token >= 0) tokens.push_back(sink.finish->stop_token);
  return tokens;
}

struct BeamCase {
  const char *model, *device;
};
class Beams : public testing::TestWithParam<BeamCase> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam().device)) GTEST_SKIP() << "no " << GetParam().device;
  }
};

EarlyStopping early_of(const nlohmann::json& value) {
  if (value.is_string()) return EarlyStopping::kNever;
  return value.get<bool>() ? EarlyStopping::kYes : EarlyStopping::kNo;
}

Request request_of(const nlohmann::json& golden, const Tokens& prompt, const LoadedModel& model) {
  Request request{.prompt = prompt, .sampling = {.repetition_penalty = golden["repetition_penalty"]}, .max_tokens = 20};
  request.sampling.penalty_window = -1;
  request.stop_tokens = golden["ends"].get<Tokens>();
  request.beams = BeamParams{.n_beams = golden["n_beams"],
                             .length_penalty = golden["length_penalty"],
                             .early_stopping = early_of(golden["early_stopping"])};
  if (golden["letters"].is_null()) return request;
  std::vector<std::string> bytes;
  for (int32_t i = 0; i < model.runner->info().n_vocab; ++i) {
    const std::string_view text = i < model.tokenizer->n_vocab() ? model.tokenizer->token_bytes(i) : "";
    const bool is_end = request.stops_at(i);
    bytes.emplace_back(text.size() == 1 && !is_end ? text : "");  // a text is letter by letter
  }
  const auto encode = [&](std::string_view text) { return model.tokenizer->encode(text, {.add_special = false}); };
  const std::string grammar = "root ::= [a-z]{" + golden["letters"][0].dump() + "," + golden["letters"][1].dump() + "}";
  request.constraint = std::make_shared<Constraint>(
      compile_gbnf(grammar), std::make_shared<GrammarVocabulary>(std::move(bytes), request.stop_tokens, encode));
  return request;
}

// All searches of a model at once, in few blocks, so that beams of different requests share steps.
TEST_P(Beams, AreThoseOfTransformers) {
  const auto goldens = nlohmann::json::parse(read_file(std::string(INGOT_TEST_DATA) + "/beams.json"));
  const LoadedModel model =
      load_model(open_checkpoint(path_of(std::string(GetParam().model) + ".gguf")),
                 {.backend = {.device = GetParam().device, .n_threads = 2},
                  .n_ctx = 128,
                  .max_batch_tokens = 128,
                  .max_seqs = 16,
                  .max_logits = 16,
                  .block_size = std::string_view(GetParam().device) == "cuda" ? 16 : 8,
                  .n_kv_tokens = 2048},
                 nullptr);
  const Tokens prompt = GreedyGolden(GetParam().model).prompt;
  Engine engine(*model.runner);
  std::vector<std::pair<nlohmann::json, Sinks>> all;
  for (const auto& golden : goldens)
    if (golden["model"] == GetParam().model)
      all.emplace_back(golden, search(engine, request_of(golden, prompt, model), golden["n_texts"]));
  ASSERT_EQ(all.size(), 7u);
  run(engine);
  for (const auto& [golden, sinks] : all) {
    SCOPED_TRACE(golden.dump());
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->finish);
      EXPECT_EQ(sinks[i]->finish->error, "");
      const Tokens text = with_end(*sinks[i]);
      EXPECT_EQ(text, golden["texts"][i].get<Tokens>());
    }
  }
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  EXPECT_EQ(engine.gauges().states_used, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Beams,
                         testing::Values(BeamCase{"llama", "ref"}, BeamCase{"llama", "cpu"}, BeamCase{"gemma3", "cpu"},
                                         BeamCase{"mamba2", "cpu"}, BeamCase{"qwen35", "cpu"},
                                         BeamCase{"deepseek2_lite", "cpu"}, BeamCase{"llama", "cuda"},
                                         BeamCase{"gemma3", "cuda"}, BeamCase{"mamba2", "cuda"},
                                         BeamCase{"qwen35", "cuda"}, BeamCase{"deepseek2_lite", "cuda"}),
                         [](const auto& info) { return std::string(info.param.model) + "_" + info.param.device; });

// The search of a request for the fake model, without an engine.
std::vector<BeamSearch::Text> expected_texts(const Request& request, const RunnerInfo& info) {
  const size_t n_ends = request.stop_tokens.size();
  const auto is_end = [&](int32_t token) { return request.stops_at(token); };
  BeamSearch search(*request.beams, n_ends, request.max_tokens, is_end);
  for (bool goes_on = true; goes_on;) {
    std::vector<std::vector<TokenLogprob>> candidates;
    for (const BeamSearch::Text& beam : search.running())
      candidates.push_back(FakeRunner::candidates(joined(request.prompt, beam.tokens), request.sampling.seed,
                                                  info.n_vocab, beam_candidates(request.beams->n_beams, n_ends)));
    goes_on = !search.step(candidates).empty();
  }
  return search.finished();
}

class BeamWorlds : public testing::TestWithParam<int> {};

RunnerInfo beam_world(int which) {
  RunnerInfo info{.n_vocab = 50, .n_ctx = 64, .block_size = 4, .pools = {{.n_blocks = 64}}, .max_batch_tokens = 40,
                  .max_seqs = 8, .max_logits = 12};
  if (which == 1) info.pools = {{.n_blocks = 18}};  // too few for the beams of one request
  if (which == 2) info.pools = {{.n_blocks = 40}, {.n_blocks = 40, .window = 6}};
  if (which == 3) info.n_states = 20;
  if (which == 4) info.n_states = 8;  // no slot to spare, so forks compute again
  if (which == 5) info.overlaps = true;
  if (which == 6) info.overlaps = true, info.n_stages = 3, info.max_seqs = 6;
  return info;
}

// Requests with and without beams, some cancelled, in small caches.
TEST_P(BeamWorlds, FindTheTextsOfASearchWithoutAnEngine) {
  Random random;
  SCOPED_TRACE(random.seed());
  FakeRunner runner({.info = beam_world(GetParam())});
  const RunnerInfo& info = runner.info();
  for (int round = 0; round < 30; ++round) {
    Engine engine(runner, {.chunk = random.integer(1, 16), .prefix_cache = random.chance(0.8)});
    std::vector<std::pair<Request, Sinks>> searches;
    std::vector<std::pair<Request, std::shared_ptr<Collector>>> plain;
    for (int i = random.integer(1, 5); i > 0; --i) {
      Request request{.prompt = random_tokens(random, random.integer(1, 20), info.n_vocab), .sampling = {}};
      request.max_tokens = random.integer(1, 30);
      request.stop_tokens = random_tokens(random, random.integer(0, 3), info.n_vocab);
      request.sampling.seed = static_cast<uint64_t>(random.integer(0, 3));
      if (random.chance(0.3)) {
        plain.emplace_back(request, submit(engine, request));
        continue;
      }
      request.beams = BeamParams{.n_beams = random.integer(1, 5),
                                 .length_penalty = static_cast<float>(random.integer(-1, 2)),
                                 .early_stopping = static_cast<EarlyStopping>(random.integer(0, 2))};
      searches.emplace_back(request, search(engine, request, random.integer(1, request.beams->n_beams)));
      for (int n = random.integer(0, 5); n > 0; --n) engine.step();
    }
    const bool cancels = random.chance(0.2);
    if (cancels) engine.cancel(1);
    run(engine);
    for (const auto& [request, sink] : plain) {
      if (sink->finish->reason == FinishReason::kCancelled) continue;
      EXPECT_EQ(sink->tokens, expected_output(request, info).tokens);
    }
    for (const auto& [request, sinks] : searches) {
      const auto expected = expected_texts(request, info);
      for (size_t i = 0; i < sinks.size(); ++i) {
        ASSERT_TRUE(sinks[i]->finish);
        if (sinks[i]->finish->reason == FinishReason::kCancelled) continue;
        ASSERT_LT(i, expected.size());
        EXPECT_EQ(with_end(*sinks[i]), expected[i].tokens) << "text " << i;
        EXPECT_EQ(sinks[i]->finish->reason, expected[i].has_ended ? FinishReason::kStop : FinishReason::kLength);
      }
    }
    EXPECT_EQ(engine.gauges().blocks_used, 0);
    EXPECT_EQ(engine.gauges().states_used, 0);
    EXPECT_EQ(engine.gauges().n_running + engine.gauges().n_waiting + engine.gauges().n_paused, 0);
  }
  EXPECT_TRUE(runner.violations().empty()) << runner.violations().front();
}
INSTANTIATE_TEST_SUITE_P(Fake, BeamWorlds, testing::Range(0, 7));

// The prompt is computed once, and a beam computes one token in a step: blocks are shared or copied.
TEST(BeamsTest, ComputeNoTokenTwice) {
  FakeRunner runner({.info = {.n_vocab = 50, .n_ctx = 128, .block_size = 16, .pools = {{.n_blocks = 64}},
                              .max_batch_tokens = 64, .max_seqs = 8}});
  Engine engine(runner);
  Request request{.prompt = Tokens(40, 3), .sampling = {}, .max_tokens = 30};
  request.beams = BeamParams{.n_beams = 4};
  const Sinks sinks = search(engine, request, 4);
  run(engine);
  EXPECT_EQ(runner.n_tokens(), 40 + 29 * 4);
  EXPECT_EQ(sinks[3]->finish->usage.prompt_tokens, 40);
  EXPECT_EQ(sinks[3]->finish->usage.output_tokens, 30);
}

// A grammar's masks are made for each beam, by workers too.
TEST(BeamsTest, FollowSlowGrammars) {
  for (const size_t work : {size_t{1}, size_t{1} << 13}) {
    FakeRunner runner({.info = {.n_vocab = 40, .n_ctx = 64, .block_size = 4, .pools = {{.n_blocks = 64}},
                                .max_batch_tokens = 64, .max_seqs = 8}});
    Engine engine(runner);
    const auto constraint = drawn_constraint(7, 40, work, {39});
    Request request{.prompt = {1, 2, 3}, .sampling = {}, .max_tokens = 20, .stop_tokens = {39}};
    request.constraint = constraint;
    request.beams = BeamParams{.n_beams = 3};
    const Sinks sinks = search(engine, request, 2);
    run(engine);
    for (const auto& sink : sinks) {
      ASSERT_TRUE(sink->finish);
      EXPECT_EQ(sink->finish->error, "");
      Matcher matcher(constraint);
      for (const int32_t token : sink->tokens) EXPECT_TRUE(matcher.accept(token)) << token;
    }
  }
}

TEST(BeamsTest, AFailedStepEndsTheSearch) {
  FakeOptions options;
  options.before_forward = [](int64_t step) {
    if (step == 3) throw std::runtime_error("broken");
  };
  FakeRunner runner(options);
  Engine engine(runner);
  Request request{.prompt = {1, 2, 3}, .sampling = {}, .max_tokens = 20};
  request.beams = BeamParams{.n_beams = 3};
  const Sinks sinks = search(engine, request, 3);
  run(engine);
  for (const auto& sink : sinks) EXPECT_EQ(sink->finish->error, "broken");
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

TEST(BeamsTest, ALateSearchEnds) {
  FakeRunner runner;
  Engine engine(runner);
  Request request{.prompt = {1, 2, 3}, .sampling = {}, .max_tokens = 200};
  request.beams = BeamParams{.n_beams = 3};
  request.deadline = Clock::now() + std::chrono::milliseconds(1);
  const Sinks sinks = search(engine, request, 2);
  while (engine.step()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const auto& sink : sinks) EXPECT_EQ(sink->finish->reason, FinishReason::kDeadline);
}

TEST(BeamsTest, BadRequestsAreRefused) {
  FakeRunner runner;
  Engine engine(runner);
  Request request{.prompt = {1}, .sampling = {}, .max_tokens = 5};
  request.sink = std::make_shared<Collector>();
  request.beams = BeamParams{.n_beams = 17};
  EXPECT_THROW(engine.submit(request), Error);  // 16 sequences in a step
  request.beams->n_beams = 1;
  request.more_sinks = {request.sink};
  EXPECT_THROW(engine.submit(request), Error);
  request.more_sinks.clear();
  request.proposer = fixed([](auto) { return Tokens(); });
  EXPECT_THROW(engine.submit(request), Error);
  request.proposer.reset();
  request.constraint = drawn_constraint(1, 64, 1);
  EXPECT_THROW(engine.submit(request), Error);  // no token ends the text
}

}  // namespace
}  // namespace ingot
