// --deterministic: a request's output, and its log-probabilities to the last bit, do not depend on other requests, on
// the chunks of the prompt, on cached tokens, or on preemptions. Uses the demo model with the cpu's kernels (and cuda's
// if there is a GPU), and a tiny model with ref.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>

#include "model/loader.h"
#include "tiny_models.h"

namespace ingot {
namespace {

struct Setup {
  std::string device;
  int n_ctx = 1024;
  int n_kv_tokens = 0;
  int max_seqs = 64;
  int n_threads = 2;
  std::string model = {};  // in tests/data/models; empty: the demo model, or a tiny model on ref, which is slow
};

std::unique_ptr<Ranks> load_deterministic(const Setup& s) {
  const std::string name = s.model.empty() && s.device == "ref" ? "qwen3" : s.model;
  const std::string file =
      std::string(INGOT_TEST_DATA) + (name.empty() ? "/../../models/demo.gguf" : "/models/" + name + ".gguf");
  const auto gguf = std::make_shared<const Gguf>(Gguf::open(file));
  return std::make_unique<Ranks>(
      config_from_gguf(*gguf), gguf_source(gguf),
      RunnerOptions{.backend = {.device = s.device, .n_threads = s.n_threads, .deterministic = true},
                    .n_ctx = s.n_ctx,
                    .max_batch_tokens = 512,
                    .max_seqs = s.max_seqs,
                    .n_kv_tokens = s.n_kv_tokens > 0 ? s.n_kv_tokens : 64 * s.n_ctx,
                    .n_snapshots = -1},
      nullptr);
}

// The output of a request: tokens, and the bits of their log-probabilities.
struct Said {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprobs;
  bool operator==(const Said&) const = default;
};

Said said(const Collector& sink) {
  EXPECT_TRUE(sink.finish && sink.finish->reason == FinishReason::kLength);
  Said result{sink.tokens, {}};
  for (const float logprob : sink.logprobs) result.logprobs.push_back(std::bit_cast<uint32_t>(logprob));
  return result;
}

Request random_request(Random& random, const RunnerInfo& info, int longest_prompt, int longest_output) {
  Request request;
  request.prompt.resize(random.integer(1, longest_prompt));
  for (int32_t& token : request.prompt) token = random.integer(0, info.n_vocab - 1);
  request.max_tokens = random.integer(1, longest_output);
  request.sampling.temperature = random.chance(0.2) ? 0.0f : 1.0f;
  request.sampling.repetition_penalty = random.chance(0.3) ? 1.2f : 1.0f;
  request.sampling.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
  request.sampling.n_logprobs = 0;
  return request;
}

class Deterministic : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam())) GTEST_SKIP() << "no " << GetParam();
    runner_ = load_deterministic({.device = GetParam(), .n_ctx = ref() ? 128 : 1024});
  }
  bool ref() const { return std::string_view(GetParam()) == "ref"; }
  // The request under test. Its prompt is long enough for split attention, but shorter on ref, which is slow.
  Request needle() {
    Request request = random_request(random_, info(), 1, 1);
    request.prompt.resize(ref() ? 70 : 600);
    for (int32_t& token : request.prompt) token = random_.integer(0, info().n_vocab - 1);
    request.max_tokens = ref() ? 12 : 24;
    request.sampling.temperature = 1;
    return request;
  }
  const RunnerInfo& info() const { return runner_->info(); }

  Random random_;
  std::unique_ptr<Ranks> runner_;
};

TEST_P(Deterministic, ChunksAndTheCacheChangeNothing) {
  SCOPED_TRACE(random_.seed());
  const Request request = needle();
  std::optional<Said> first;
  for (const int chunk : {512, 1, 7, 16, 64, 200}) {
    if (chunk == 1 && !ref()) continue;  // 600 steps; the prompt runs without other requests below
    Engine engine(*runner_, {.chunk = chunk});
    const auto miss = submit(engine, request);
    run(engine);
    if (!first) first = said(*miss);
    EXPECT_EQ(said(*miss), *first) << "chunk " << chunk;
    const auto hit = submit(engine, request);
    run(engine);
    EXPECT_GT(hit->finish->usage.cached_tokens, ref() ? 60 : 580);
    EXPECT_EQ(said(*hit), *first) << "chunk " << chunk << ", cached";
  }
  // Uses each output token as the end of a prompt: a prefill must give the same numbers as a decode.
  Engine engine(*runner_, {.chunk = 64, .prefix_cache = false});
  for (size_t n = 1; n < first->tokens.size(); n += 5) {
    Request longer = request;
    longer.prompt.insert(longer.prompt.end(), first->tokens.begin(), first->tokens.begin() + static_cast<ptrdiff_t>(n));
    longer.max_tokens -= static_cast<int>(n);
    const auto sink = submit(engine, longer);
    run(engine);
    EXPECT_EQ(said(*sink).logprobs,
              std::vector(first->logprobs.begin() + static_cast<ptrdiff_t>(n), first->logprobs.end()));
  }
}

TEST_P(Deterministic, NeighboursChangeNothing) {
  SCOPED_TRACE(random_.seed());
  const Request request = needle();
  Engine alone(*runner_, {});
  const auto sink = submit(alone, request);
  run(alone);
  const Said expected = said(*sink);
  const char* rounds = std::getenv("INGOT_TEST_ROUNDS");
  const std::vector<int> sizes = ref() ? std::vector{2, 6} : std::vector{2, 5, 17, 64};
  int n_seen = 0;
  for (int round = 0; round < (rounds != nullptr ? std::atoi(rounds) : 1); ++round) {
    for (const int n : sizes) {
      Engine engine(*runner_, {.chunk = random_.integer(1, 100), .prefix_cache = random_.chance(0.5)});
      std::vector<std::shared_ptr<Collector>> needles;
      for (int i = 0; i < n; ++i) {
        if (i % 8 == (n - 1) % 8) needles.push_back(submit(engine, request));
        else submit(engine, random_request(random_, info(), 60, 30));
        if (random_.chance(0.3)) engine.step();
      }
      run(engine);
      for (const auto& one : needles) EXPECT_EQ(said(*one), expected) << "among " << n;
      n_seen += static_cast<int>(needles.size());
    }
  }
  EXPECT_GE(n_seen, 2);
}

// The prompt's attention and long products are cut for the number of threads.
TEST_P(Deterministic, ThreadsChangeNothing) {
  SCOPED_TRACE(random_.seed());
  const Request request = needle();
  std::optional<Said> first;
  for (const int n_threads : {1, 2, 3, 5}) {
    const auto runner = load_deterministic({.device = GetParam(), .n_ctx = ref() ? 128 : 1024, .n_threads = n_threads});
    Engine engine(*runner, {});
    const auto sink = submit(engine, request);
    run(engine);
    if (!first) first = said(*sink);
    EXPECT_EQ(said(*sink), *first) << n_threads << " threads";
  }
}

TEST_P(Deterministic, PreemptionChangesNothing) {
  SCOPED_TRACE(random_.seed());
  const auto tight = load_deterministic({.device = GetParam(),
                                         .n_ctx = ref() ? 128 : 256,
                                         .n_kv_tokens = ref() ? 160 : 320,
                                         .max_seqs = 6,
                                         .n_threads = 1});
  std::vector<Request> requests;
  std::vector<Said> expected;
  for (int i = 0; i < 8; ++i) {
    Request request = random_request(random_, info(), ref() ? 30 : 100, 1);
    request.max_tokens = ref() ? 40 : 120;  // so that some admitted sequences are preempted
    request.ignore_eos = true;  // otherwise early stop tokens may end all requests before the small cache is full
    requests.push_back(request);
    Engine engine(*runner_, {});
    const auto sink = submit(engine, request);
    run(engine);
    expected.push_back(said(*sink));
  }
  Engine engine(*tight, {.chunk = 33, .prefix_cache = random_.chance(0.5)});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) sinks.push_back(submit(engine, request));
  run(engine);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(said(*sinks[i]), expected[i]) << i;
  EXPECT_GT(engine.gauges().n_preemptions, 0);
}

// One or two steps in flight; the host computes both kinds here. When a stop token ends a sequence, its next step is
// already planned.
TEST_P(Deterministic, OverlappedStepsChangeNothing) {
  SCOPED_TRACE(random_.seed());
  std::vector<Request> requests;
  for (int i = 0; i < (ref() ? 5 : 24); ++i)
    requests.push_back(random_request(random_, info(), ref() ? 20 : 120, ref() ? 12 : 40));
  std::vector<std::shared_ptr<Collector>> first;
  // Without `stops`, requests run to max_tokens. With `stops`, every other request stops at a token in its middle.
  for (const bool stops : {false, true}) {
    for (const bool overlap : {false, true}) {
      Engine engine(*runner_, {.chunk = random_.integer(1, 100), .overlap = overlap});
      std::vector<std::shared_ptr<Collector>> sinks;
      for (const Request& request : requests) {
        sinks.push_back(submit(engine, request));
        if (random_.chance(0.5)) engine.step();
      }
      run(engine);
      EXPECT_EQ(engine.gauges().blocks_used, 0);
      if (!overlap) first = sinks;
      for (size_t i = 0; i < sinks.size(); ++i) {
        const Collector &a = *sinks[i], &b = *first[i];
        EXPECT_EQ(a.tokens, b.tokens) << i;
        EXPECT_EQ(a.logprobs, b.logprobs) << i;
        EXPECT_EQ(a.finish->reason, stops && i % 2 == 0 ? FinishReason::kStop : FinishReason::kLength) << i;
      }
    }
    for (size_t i = 0; !stops && i < requests.size(); i += 2)
      requests[i].stop_tokens = {first[i]->tokens[first[i]->tokens.size() / 2]};
  }
}

// 16 conversations of 20 turns at once. A turn computes only its new tokens, and the output is the same as without a
// cache. All conversations begin differently, because a conversation that is a prefix of another may continue from the
// other's end.
TEST(DeterministicLoad, ConversationsComputeWhatIsNew) {
  Random random;
  SCOPED_TRACE(random.seed());
  const auto runner = load_deterministic({.device = "cpu", .n_ctx = 256});
  struct Turn {
    Request request;
    Said answer;
  };
  std::vector<Turn> turns;
  std::vector<std::vector<int32_t>> histories(16);
  Engine engine(*runner, {.chunk = 40});
  int64_t n_new = 0;
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (std::vector<int32_t>& history : histories) {
      Request request = random_request(random, runner->info(), 6, 5);
      const int n_known = std::max(0, static_cast<int>(history.size()) - 1);  // all tokens but the last sampled one
      history.insert(history.end(), request.prompt.begin(), request.prompt.end());
      history.front() = static_cast<int32_t>(&history - histories.data());
      request.prompt = history;
      n_new += static_cast<int>(history.size()) - n_known + request.max_tokens - 1;
      sinks.push_back(submit(engine, request));
      turns.push_back({request, {}});
    }
    run(engine);
    for (size_t i = 0; i < sinks.size(); ++i) {
      Turn& one = turns[turns.size() - sinks.size() + i];
      one.answer = said(*sinks[i]);
      histories[i].insert(histories[i].end(), one.answer.tokens.begin(), one.answer.tokens.end());
    }
  }
  EXPECT_EQ(engine.gauges().n_computed_tokens, n_new);
  Engine uncached(*runner, {.prefix_cache = false});
  std::vector<std::shared_ptr<Collector>> sinks;
  // Some turns of each conversation.
  for (size_t i = 0; i < turns.size(); i += 3) sinks.push_back(submit(uncached, turns[i].request));
  run(uncached);
  for (size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(said(*sinks[i]), turns[3 * i].answer) << i;
}

// One request is submitted repeatedly among random other requests that arrive, end and are cancelled, with room for all
// requests or for a few. All answers must be equal. INGOT_TEST_ROUNDS=1000 submits the request a thousand times.
TEST(DeterministicLoad, OneRequestHasOneAnswer) {
  Random random;
  SCOPED_TRACE(random.seed());
  const auto roomy = load_deterministic({.device = "cpu", .n_ctx = 256}),
             tight = load_deterministic({.device = "cpu", .n_ctx = 256, .n_kv_tokens = 272, .max_seqs = 12});
  Request request = random_request(random, roomy->info(), 1, 1);
  request.prompt.resize(80);
  for (int32_t& token : request.prompt) token = random.integer(0, roomy->info().n_vocab - 1);
  // The request begins with 5 or 6 of the tight cache's 17 blocks and needs 9, so there are always preemptions.
  request.max_tokens = 64;
  request.ignore_eos = true;
  request.sampling.temperature = 1;
  const char* rounds = std::getenv("INGOT_TEST_ROUNDS");
  const size_t n_wanted = rounds != nullptr ? static_cast<size_t>(std::atoi(rounds)) : 60;
  std::vector<Said> answers;
  int64_t n_preempted = 0, n_cached = 0, n_steps = 0;
  for (int round = 0; answers.size() < n_wanted; ++round) {
    Engine engine(round % 2 == 0 ? *tight : *roomy,
                  {.chunk = random.integer(1, 512), .prefix_cache = round < 2 || random.chance(0.5)});
    std::vector<std::shared_ptr<Collector>> needles;
    for (int i = 0; i < 50; ++i) {
      if (random.chance(0.5)) {
        needles.push_back(submit(engine, request));
      } else {
        Request other = random_request(random, roomy->info(), 60, 30);
        other.sink = std::make_shared<Collector>();
        const RequestId id = engine.submit(other);
        if (random.chance(0.2)) engine.step(), engine.cancel(id);
      }
      if (random.chance(0.5)) engine.step();
    }
    run(engine);
    for (const auto& needle : needles) answers.push_back(said(*needle));
    n_preempted += engine.gauges().n_preemptions;
    n_cached += engine.gauges().n_cached_tokens;
    n_steps += engine.gauges().n_steps;
  }
  std::printf("%zu answers, %lld steps, %lld preemptions, %lld cached tokens\n", answers.size(),
              static_cast<long long>(n_steps), static_cast<long long>(n_preempted), static_cast<long long>(n_cached));
  for (const Said& answer : answers) ASSERT_EQ(answer, answers[0]);
  EXPECT_GT(n_preempted, 0);
  EXPECT_GT(n_cached, 0);
}

// Every kind of layer: experts, latent attention, windows, sinks, capped scores, states.
class BatchInvariance : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(BatchInvariance, SameTokensInAnyBatch) {
  const auto [device, model] = GetParam();
  if (!has_device(device)) GTEST_SKIP() << "no " << device;
  Random random;
  SCOPED_TRACE(random.seed());
  const auto roomy = load_deterministic({.device = device, .n_ctx = 256, .model = model});
  const auto tight = load_deterministic(
      {.device = device, .n_ctx = 256, .n_kv_tokens = 288, .max_seqs = 6, .n_threads = 1, .model = model});
  Request request = random_request(random, roomy->info(), 1, 1);
  request.prompt.resize(150);
  for (int32_t& token : request.prompt) token = random.integer(0, roomy->info().n_vocab - 1);
  request.max_tokens = 20;
  Engine alone(*roomy, {});
  const auto first = submit(alone, request);
  run(alone);
  const Said expected = said(*first);
  for (const int chunk : {1, 13, 64, 512}) {
    for (Ranks* runner : {roomy.get(), tight.get()}) {
      Engine engine(*runner, {.chunk = chunk});
      std::vector<std::shared_ptr<Collector>> needles;
      for (int i = 0; i < 16; ++i) {
        if (i % 4 == 1) needles.push_back(submit(engine, request));
        else submit(engine, random_request(random, roomy->info(), 100, 40));
        if (random.chance(0.3)) engine.step();
      }
      run(engine);
      const auto again = needles.emplace_back(submit(engine, request));
      run(engine);
      for (const auto& needle : needles) EXPECT_EQ(said(*needle), expected) << "chunk " << chunk;
      if (runner == roomy.get()) {
        EXPECT_GT(again->finish->usage.cached_tokens, 100);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, BatchInvariance,
    testing::Combine(testing::Values("cpu", "cuda"),
                     testing::Values("mixtral", "qwen2moe", "qwen3moe", "granitemoe", "gpt_oss_mxfp4", "deepseek2_lite",
                                     "deepseek3", "mistral_window", "gemma2", "gemma3", "qwen3next", "qwen35",
                                     "qwen35moe", "starcoder2", "rwkv7")),
    [](const auto& test) { return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param); });

INSTANTIATE_TEST_SUITE_P(Devices, Deterministic, testing::Values("ref", "cpu", "cuda", "cpu,cpu"),
                         [](const auto& test) {
                           return test.param == std::string_view("cpu,cpu") ? "stages" : std::string(test.param);
                         });

}  // namespace
}  // namespace ingot
