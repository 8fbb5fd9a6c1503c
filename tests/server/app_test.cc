// The handlers on the fake runner. Each client must get the known tokens, with any other clients and any failures.
#include <latch>

#include "server/rig.h"

namespace ingot {
namespace {

using nlohmann::json;

std::vector<int32_t> random_prompt(Random& random, int most) {
  std::vector<int32_t> prompt(static_cast<size_t>(random.integer(1, most)));
  for (int32_t& token : prompt) token = random.integer(0, 258);
  return prompt;
}

json completion(const std::vector<int32_t>& prompt, uint64_t seed, int n, bool stream) {
  return {{"prompt", prompt}, {"seed", seed}, {"max_tokens", n}, {"stream", stream}};
}

TEST(App, StreamedAndWholeAreTheModelsTokens) {
  Rig rig;
  Random random;
  SCOPED_TRACE(random.seed());
  for (int i = 0; i < 40; ++i) {
    const auto prompt = random_prompt(random, 60);
    const uint64_t seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
    const int n = random.integer(1, 80);
    const std::string expected = rig.expected(prompt, seed, n);
    const auto whole = rig.post("/v1/completions", completion(prompt, seed, n, false));
    ASSERT_TRUE(whole->wait());
    ASSERT_EQ(whole->status(), 200) << whole->body();
    EXPECT_EQ(whole->json()["choices"][0]["text"], expected);
    EXPECT_EQ(whole->json()["usage"]["completion_tokens"], n);
    EXPECT_EQ(whole->notes["completion_tokens"], std::to_string(n));
    const auto stream = rig.post("/v1/completions", completion(prompt, seed, n, true));
    ASSERT_TRUE(stream->wait());
    EXPECT_EQ(streamed_text(stream->body()), expected);
  }
  EXPECT_TRUE(rig.wait_idle());
}

TEST(App, ManyAtOnceWithSomeThatLeave) {
  Rig rig(
      {.info = {.n_ctx = 128, .block_size = 8, .pools = {{.n_blocks = 60}}, .max_batch_tokens = 48, .max_seqs = 12}},
      1000);
  Random random;
  SCOPED_TRACE(random.seed());
  struct Client {
    std::shared_ptr<Recorder> recorder;
    std::string expected;
    bool leaves;
  };
  std::vector<Client> clients;
  for (int i = 0; i < 300; ++i) {
    const auto prompt = random_prompt(random, 40);
    const int n = random.integer(1, 60);
    const auto seed = static_cast<uint64_t>(i);
    clients.push_back({rig.post("/v1/completions", completion(prompt, seed, n, true)), rig.expected(prompt, seed, n),
                       random.chance(0.4)});
    if (clients[static_cast<size_t>(random.integer(0, i))].leaves)
      clients[static_cast<size_t>(random.integer(0, i))].recorder->n_bytes();
  }
  for (const Client& client : clients)
    if (client.leaves) client.recorder->leave();
  for (const Client& client : clients) {
    if (client.leaves) continue;
    ASSERT_TRUE(client.recorder->wait());
    EXPECT_EQ(streamed_text(client.recorder->body()), client.expected);
  }
  EXPECT_TRUE(rig.wait_idle()) << "those who left hold nothing";
}

TEST(App, AFailedStepIsAnErrorOfItsRequestsOnly) {
  std::atomic<bool> failing{false};
  int n_failed = 0;
  Rig rig({.step_us = 200, .before_forward = [&](int64_t step) {
             if (step == 20 && n_failed == 0) failing.wait(false);  // or the first answer may have ended
             if (!failing.exchange(false)) return;
             ++n_failed;
             throw std::runtime_error("the device has a headache");
           }});
  const auto stream = rig.post("/v1/completions", completion({1, 2, 3}, 5, 200, true));
  EXPECT_TRUE(stream->wait_for_bytes(500));
  failing = true;
  failing.notify_all();
  ASSERT_TRUE(stream->wait());
  EXPECT_TRUE(stream->failed());
  EXPECT_NE(stream->body().find("\"error\""), std::string::npos);
  EXPECT_EQ(stream->body().find("[DONE]"), std::string::npos);
  failing = true;
  const auto whole = rig.post("/v1/completions", completion({1, 2, 3}, 5, 20, false));
  ASSERT_TRUE(whole->wait());
  EXPECT_EQ(whole->status(), 500);
  EXPECT_EQ(whole->json()["error"]["type"], "server_error");
  const auto after = rig.post("/v1/completions", completion({1, 2, 3}, 5, 20, false));
  ASSERT_TRUE(after->wait());
  EXPECT_EQ(after->json()["choices"][0]["text"], rig.expected({1, 2, 3}, 5, 20));
  EXPECT_TRUE(rig.wait_idle());
}

// One of n choices gets NaN logits. It ends there with an error, and the other choices are unchanged.
TEST(App, AnAnswerWhoseNumbersAreNoneEndsWithError) {
  constexpr size_t kNanAt = 2 + 7;  // tokens of prompt and answer
  Rig rig({.makes_nan = [](const SampleRow& row) { return row.params->seed == 11 && row.history.size() == kNanAt; }});
  json body = completion({1, 2}, 10, 30, false);
  body["n"] = 3;
  const auto whole = rig.post("/v1/completions", body);
  ASSERT_TRUE(whole->wait());
  ASSERT_EQ(whole->status(), 200) << whole->body();
  const json choices = whole->json()["choices"];
  for (int i : {0, 2}) {
    EXPECT_EQ(choices[i]["text"], rig.expected({1, 2}, 10 + static_cast<uint64_t>(i), 30));
    EXPECT_EQ(choices[i]["finish_reason"], "length");
  }
  EXPECT_EQ(choices[1]["text"], rig.expected({1, 2}, 11, 7));
  EXPECT_EQ(choices[1]["finish_reason"], "error");
  body["stream"] = true;
  const auto stream = rig.post("/v1/completions", body);
  ASSERT_TRUE(stream->wait());
  const std::string& events = stream->body();
  EXPECT_EQ(events.find("[DONE]"), std::string::npos);
  EXPECT_EQ(json::parse(events.substr(events.rfind("data: ") + 6))["error"]["type"], "server_error");
  const size_t reason = events.find(R"("finish_reason":"error")");
  EXPECT_NE(reason, std::string::npos);
  EXPECT_EQ(events.find(R"("finish_reason":"error")", reason + 1), std::string::npos);
  EXPECT_TRUE(rig.wait_idle());
}

// The same in APIs with their own form of this error.
TEST(App, AnswersWhoseNumbersAreNoneInOtherApis) {
  Rig rig({.makes_nan = [](const SampleRow& row) { return row.params->seed == 11; }});
  for (bool stream : {false, true}) {
    const json base = {{"seed", 11}, {"stream", stream}};
    json chat = base, responses = base, messages = base;
    chat["messages"] = messages["messages"] = json::array({{{"role", "user"}, {"content", "x"}}});
    messages["max_tokens"] = 5;
    responses["input"] = "x";
    const auto of_chat = rig.post("/v1/chat/completions", chat), of_responses = rig.post("/v1/responses", responses),
               of_messages = rig.post("/v1/messages", messages);
    ASSERT_TRUE(of_chat->wait() && of_responses->wait() && of_messages->wait());
    EXPECT_NE(of_chat->body().find(R"("finish_reason":"error")"), std::string::npos) << of_chat->body();
    EXPECT_NE(of_responses->body().find(R"("status":"failed")"), std::string::npos) << of_responses->body();
    EXPECT_EQ(of_responses->body().find("response.failed") != std::string::npos, stream);
    EXPECT_EQ(of_messages->status(), 200);
    EXPECT_NE(of_messages->body().find(R"("stop_reason":"max_tokens")"), std::string::npos) << of_messages->body();
    EXPECT_NE(of_messages->body().find("the answer ends early"), std::string::npos) << of_messages->body();
  }
  EXPECT_TRUE(rig.wait_idle());
}

double ended(Rig& rig) {
  auto recorder = std::make_shared<Recorder>();
  HttpRequest request{.method = "GET", .path = "/metrics", .headers = {{"host", "localhost"}}};
  EXPECT_FALSE(rig.app.refuse(request));
  rig.app.handle(std::move(request), recorder);
  double sum = 0;
  const std::string& text = recorder->body();
  for (size_t at = text.find("ingot:request_success_total{"); at != std::string::npos;
       at = text.find("ingot:request_success_total{", at + 1))
    sum += std::stod(text.substr(text.find("} ", at) + 2));
  return sum;
}

// Clients that disconnect just when the answer ends (by its length or a stop), and clients that disconnect twice.
TEST(App, WhoLeavesAtTheEndIsCountedOnce) {
  Rig rig({.step_us = 100}, 1000);  // room for all, because refused requests are not counted
  Random random;
  SCOPED_TRACE(random.seed());
  for (int i = 0; i < 150; ++i) {
    json body =
        completion({random.integer(0, 250)}, static_cast<uint64_t>(i), random.integer(1, 6), random.chance(0.7));
    if (random.chance(0.3)) body["stop"] = {"a", "e"};
    if (random.chance(0.2)) body["n"] = 2;
    const auto recorder = rig.post("/v1/completions", body);
    std::this_thread::sleep_for(std::chrono::microseconds(random.integer(0, 1500)));
    recorder->leave();
    if (random.chance(0.5)) recorder->leave();
  }
  EXPECT_TRUE(rig.wait_idle());
  for (int i = 0; i < 5000 && ended(rig) < 150; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ended(rig), 150);
}

TEST(App, NChoicesAndPromptsEachHaveTheirSeed) {
  Rig rig;
  json body = completion({}, 100, 30, false);
  body["prompt"] = json::array({json::array({7, 8}), json::array({9})});
  body["n"] = 3;
  const auto whole = rig.post("/v1/completions", body);
  ASSERT_TRUE(whole->wait());
  ASSERT_EQ(whole->status(), 200) << whole->body();
  for (int i = 0; i < 6; ++i) {
    const std::vector<int32_t> prompt = i < 3 ? std::vector<int32_t>{7, 8} : std::vector<int32_t>{9};
    EXPECT_EQ(whole->json()["choices"][i]["text"], rig.expected(prompt, 100 + static_cast<uint64_t>(i % 3), 30)) << i;
  }
}

// For models with infill tokens, in the model's order. Names of control tokens in prompt and suffix are plain text.
// Token ids stay unchanged.
TEST(App, ASuffixIsFilledInTo) {
  const auto with = [](std::vector<std::string> names, bool add_bos = false) {
    return [names, add_bos](ServedModelParts& parts) {
      const auto owned = testing::byte_level_spec();
      owned->spec.bos = 0;
      owned->spec.add_bos = add_bos;
      owned->merges.clear();
      for (size_t i = 0; i < 3; ++i) owned->tokens[256 + i] = names[i], owned->spec.token_types[256 + i] = 3;
      parts.tokenizer = Tokenizer::create(owned->view());
    };
  };
  const auto ids = [](int32_t mark, const std::string& text) {
    std::vector<int32_t> result{mark};
    for (char c : text) result.push_back(static_cast<unsigned char>(c));
    return result;
  };
  const auto answer = [](Rig& rig, const json& prompt, const json& more) {
    json body = completion({1}, 7, 20, false);
    body["prompt"] = prompt;
    body.update(more);
    const auto got = rig.post("/v1/completions", body);
    EXPECT_TRUE(got->wait());
    return got->json();
  };
  const auto completion_text = [](const json& json) { return json.at("choices")[0]["text"].get<std::string>(); };
  const std::string after = "){}<|fim_middle|>";
  Rig qwen({}, 64, {}, with({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"})),
      mistral({}, 64, {}, with({"[PREFIX]", "[SUFFIX]", "[MIDDLE]"}, true)), none;
  std::vector<int32_t> expected = ids(256, "f(x");
  std::ranges::copy(ids(257, after), std::back_inserter(expected));
  expected.push_back(258);
  for (const json& prompt : {json("f(x"), json::array({'f' + 0, '(' + 0, 'x' + 0})})
    EXPECT_EQ(completion_text(answer(qwen, prompt, {{"suffix", after}})), qwen.expected(expected, 7, 20)) << prompt;
  // llama-server's form: other files come first, and the beginning of the answer last.
  const auto infilled = [&](const json& more) {
    json body = {{"input_prefix", "f(x"}, {"input_suffix", after}, {"n_predict", 20}, {"seed", 7}};
    body.update(more);
    const auto got = qwen.post("/infill", body);
    EXPECT_TRUE(got->wait());
    return got->json().at("content").get<std::string>();
  };
  EXPECT_EQ(infilled(json::object()), qwen.expected(expected, 7, 20));
  std::vector<int32_t> longer = ids('\n', "\n--- snippet ---\n\nint x;");
  longer.insert(longer.end(), expected.begin(), expected.end());
  longer.insert(longer.end(), {'+', 'y'});
  EXPECT_EQ(infilled({{"input_extra", {{{"filename", "a.c"}, {"text", "int x;"}}}}, {"prompt", "+y"}}),
            qwen.expected(longer, 7, 20));
  expected = ids(257, after);
  std::ranges::copy(ids(256, "f(x"), std::back_inserter(expected));
  EXPECT_EQ(completion_text(answer(mistral, "f(x", {{"suffix", after}, {"add_special_tokens", false}})),
            mistral.expected(expected, 7, 20));
  expected.insert(expected.begin(), 0);
  EXPECT_EQ(completion_text(answer(mistral, "f(x", {{"suffix", after}})), mistral.expected(expected, 7, 20));
  for (const json& nothing : {json(""), json(nullptr)})
    EXPECT_EQ(completion_text(answer(none, "f(x", {{"suffix", nothing}})), none.expected({'f', '(', 'x'}, 7, 20));
  EXPECT_EQ(answer(none, "f(x", {{"suffix", "y"}})["error"]["param"], "suffix");
  EXPECT_EQ(answer(qwen, "f(x", {{"suffix", "y"}, {"echo", true}})["error"]["param"], "suffix");
}

// Handlers use the JSON document from which the model's name was read. They do not parse the body's text, which is
// empty here.
TEST(App, ABodyIsParsedOnceForAllThatReadIt) {
  Rig rig;
  Workers workers(1);
  Pacer pacer(workers, std::chrono::milliseconds(1));
  const HttpRequest request{.method = "POST", .path = "/"};
  const MediaPolicy images;
  const auto answer = [&](void (*handler)(const ApiCall&), const JsonValue& body) {
    auto recorder = std::make_shared<Recorder>();
    handler({request, body, rig.model, recorder, pacer, false, rig.pool, "", images});
    EXPECT_TRUE(recorder->wait());
    EXPECT_EQ(recorder->status(), 200) << recorder->body();
    return recorder->json();
  };
  EXPECT_EQ(answer(answer_tokenize, {{"content", "hi"}})["tokens"], (std::vector{'h' + 0, 'i' + 0}));
  EXPECT_EQ(answer(answer_detokenize, {{"tokens", {'h' + 0, 'i' + 0}}})["content"], "hi");
  const JsonValue completion = {{"prompt", {1, 2}}, {"seed", 7}, {"max_tokens", 5}};
  EXPECT_EQ(answer(answer_completions, completion)["choices"][0]["text"], rig.expected({1, 2}, 7, 5));
  const JsonValue messages = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 2}};
  EXPECT_EQ(answer(answer_chat, messages)["usage"]["completion_tokens"], 2);
  EXPECT_EQ(answer(answer_messages, messages)["usage"]["output_tokens"], 2);
  EXPECT_GT(answer(answer_count_tokens, messages)["input_tokens"], 2);
  EXPECT_NE(answer(answer_template, messages)["prompt"].get<std::string>().find("x"), std::string::npos);
  EXPECT_EQ(answer(answer_responses, {{"input", "x"}, {"max_output_tokens", 2}})["usage"]["output_tokens"], 2);
  EXPECT_TRUE(rig.wait_idle());
  workers.stop();  // the pacer is destroyed first, and a worker may still run its job
}

TEST(App, StopStringsCutTheSameStreamedOrNot) {
  Rig rig;
  Random random;
  SCOPED_TRACE(random.seed());
  int n_cut = 0;
  for (int i = 0; i < 60; ++i) {
    const auto prompt = random_prompt(random, 5);
    const uint64_t seed = static_cast<uint64_t>(i);
    const std::string full = rig.expected(prompt, seed, 60);
    std::string stop(1, static_cast<char>(random.integer('!', 'z')));
    if (i % 2 == 0) {  // a character of the answer, because most answers lack a random character
      std::string said;
      std::ranges::copy_if(full, std::back_inserter(said), [](char c) { return c >= '!' && c <= 'z'; });
      if (!said.empty()) stop = said[static_cast<size_t>(random.integer(0, static_cast<int>(said.size()) - 1))];
    }
    const size_t at = full.find(stop);
    n_cut += at != std::string::npos;
    for (bool stream : {false, true}) {
      json body = completion(prompt, seed, 60, stream);
      body["stop"] = stop;
      const auto got = rig.post("/v1/completions", body);
      ASSERT_TRUE(got->wait());
      const std::string text =
          stream ? streamed_text(got->body()) : got->json()["choices"][0]["text"].get<std::string>();
      EXPECT_EQ(text, full.substr(0, at));
    }
  }
  EXPECT_GT(n_cut, 20);
  EXPECT_TRUE(rig.wait_idle());
}

TEST(App, TheQueueIsBounded) {
  std::latch all_asked(1);  // no answer ends before
  Rig rig({.info = {.n_ctx = 256, .block_size = 16, .pools = {{.n_blocks = 64}}, .max_batch_tokens = 64, .max_seqs = 1},
           .step_us = 2000,
           .before_forward = [&](int64_t) { all_asked.wait(); }},
          3);
  std::vector<std::shared_ptr<Recorder>> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(rig.post("/v1/completions", completion({1}, 1, 200, true)));
  while (rig.model->n_taken() < 4) std::this_thread::yield();
  const auto refused = rig.post("/v1/completions", completion({1}, 1, 1, false));
  const bool answered = refused->wait();
  all_asked.count_down();
  ASSERT_TRUE(answered);
  EXPECT_EQ(refused->status(), 429);
  EXPECT_EQ(refused->json()["error"]["code"], "queue_full");
  for (const auto& one : taken) one->leave();
  EXPECT_TRUE(rig.wait_idle());
  const auto after = rig.post("/v1/completions", completion({1}, 1, 1, false));
  ASSERT_TRUE(after->wait());
  EXPECT_EQ(after->status(), 200);
}

TEST(App, WhoWaitsTooLongGets503) {
  std::atomic<bool> late_is_over{false};
  Rig rig(
      {.info = {.n_ctx = 1024, .block_size = 16, .pools = {{.n_blocks = 64}}, .max_batch_tokens = 64, .max_seqs = 1},
       .before_forward =
           [&](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(late_is_over ? 0 : 10)); }},
      64, {}, [](ServedModelParts& parts) { parts.queue_timeout = std::chrono::seconds(1); });
  std::shared_ptr<Recorder> busy;  // runs for more than a second, which is allowed after its first step
  do {                             // retries if the machine stalled
    busy = rig.post("/v1/completions", completion({1}, 1, 1000, true));
    ASSERT_TRUE(busy->wait_for_bytes(1));
  } while (busy->failed());
  const auto late = rig.post("/v1/completions", completion({1}, 1, 1, false));
  ASSERT_TRUE(late->wait());
  late_is_over = true;
  EXPECT_EQ(late->status(), 503);
  EXPECT_EQ(late->json()["error"]["code"], "queue_timeout");
  EXPECT_EQ(late->header("Retry-After"), "1");
  ASSERT_TRUE(busy->wait());
  EXPECT_EQ(streamed_text(busy->body()), rig.expected({1}, 1, 1000));
  EXPECT_TRUE(rig.wait_idle());
}

TEST(App, AReaderThatDoesNotReadPausesItselfOnly) {
  std::atomic<bool> all_are_paused{false};  // happens long before the answers end, because steps are slow until then
  Rig rig({.before_forward = [&](int64_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(all_are_paused ? 100 : 30'000));
  }});
  std::vector<std::shared_ptr<Recorder>> stalled;
  for (int i = 0; i < 3; ++i) {
    stalled.push_back(rig.post("/v1/completions", completion({1, 2}, static_cast<uint64_t>(i), 250, true)));
    stalled.back()->full_ = true;
  }
  while (rig.model->engine().gauges().n_paused < 3) std::this_thread::yield();
  all_are_paused = true;
  const size_t before = stalled[0]->n_bytes();
  for (int i = 0; i < 5; ++i) {
    const auto other = rig.post("/v1/completions", completion({9}, 4, 60, false));
    ASSERT_TRUE(other->wait());
    EXPECT_EQ(other->json()["choices"][0]["text"], rig.expected({9}, 4, 60));
  }
  EXPECT_LE(stalled[0]->n_bytes(), before + 2000) << "it goes on though nobody reads";
  for (size_t i = 0; i < stalled.size(); ++i) {
    stalled[i]->make_room();
    ASSERT_TRUE(stalled[i]->wait());
    EXPECT_EQ(streamed_text(stalled[i]->body()), rig.expected({1, 2}, i, 250));
  }
  EXPECT_TRUE(rig.wait_idle());
}

TEST(App, CachedPromptsAreCountedAndNotSharedByKeys) {
  Rig rig;
  std::vector<int32_t> prompt(100);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  const auto cached = [&](const std::string& key, const std::string& salt) {
    auto recorder = std::make_shared<Recorder>();
    json body = completion(prompt, 1, 2, false);
    if (!salt.empty()) body["cache_salt"] = salt;
    HttpRequest request{
        .method = "POST", .path = "/v1/completions", .headers = {{"x-api-key", key}}, .body = body.dump()};
    EXPECT_FALSE(rig.app.refuse(request));
    rig.app.handle(std::move(request), recorder);
    EXPECT_TRUE(recorder->wait());
    return recorder->json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_GE(cached("a", ""), 96) << "whole blocks of 16 at least";
  EXPECT_EQ(cached("b", ""), 0) << "another key's";
  EXPECT_EQ(cached("a", "x"), 0) << "another salt's";
  EXPECT_GE(cached("a", "x"), 96);
}

// The fake model writes a text that depends only on the position. Its first 30 letters do not repeat.
TEST(App, SpeculationIsAskedForAndCounted) {
  FakeOptions fake;
  fake.info.max_logits = fake.info.max_seqs + 16;
  const auto letter = [](int64_t place) {
    return static_cast<int32_t>('a' + (place < 33 ? place * place % 29 % 26 : place % 5));
  };
  fake.writes = [&](const SampleRow& row) { return letter(row.position); };
  // The clock moves with each look at it, so all steps take equally long, and drafts pay.
  static std::atomic<int64_t> n_looks = 0;
  Rig rig(fake, 64, {}, [](ServedModelParts& parts) {
    parts.speculate = Speculate::kAuto;
    parts.engine.now = [] { return Clock::time_point(std::chrono::milliseconds(++n_looks)); };
  });
  std::string text;
  for (int place = 3; place < 103; ++place) text += static_cast<char>(letter(place));
  int accepted_sum = 0, drafts_sum = 0;
  const auto accepted = [&](const json& more, int n_tokens) {
    json body = completion({1, 2, 3}, 0, n_tokens, false);
    body.update(more);
    const auto recorder = rig.post("/v1/completions", body);
    EXPECT_TRUE(recorder->wait());
    EXPECT_EQ(recorder->json()["choices"][0]["text"], text.substr(0, static_cast<size_t>(n_tokens)));
    const json details = recorder->json()["usage"]["completion_tokens_details"];
    const int right = details["accepted_prediction_tokens"];
    accepted_sum += right;
    const int n_drafts = right + details["rejected_prediction_tokens"].get<int>();
    drafts_sum += n_drafts;
    const json timings = recorder->json()["timings"];
    EXPECT_EQ(timings.value("draft_n", 0), n_drafts);
    EXPECT_EQ(timings.value("draft_n_accepted", 0), right);
    EXPECT_EQ(timings.contains("tokens_per_step"), n_drafts > 0);
    if (n_drafts > 0) {
      EXPECT_EQ(timings["tokens_per_step"], n_tokens / static_cast<double>(n_tokens - right));
    }
    return right;
  };
  EXPECT_EQ(accepted({{"speculate", "off"}}, 100), 0);
  EXPECT_EQ(drafts_sum, 0);
  EXPECT_EQ(accepted(json::object(), 30), 0);
  const json prediction = {{"type", "content"}, {"content", text.substr(0, 30)}};
  EXPECT_GT(accepted({{"prediction", prediction}}, 30), 0);
  EXPECT_EQ(accepted({{"prediction", prediction}, {"speculate", "off"}}, 30), 0);
  EXPECT_GT(accepted(json::object(), 100), 0);
  EXPECT_GT(accepted({{"speculate", "ngram"}}, 100), 0);

  HttpRequest request{.method = "GET", .path = "/metrics", .headers = {{"host", "localhost"}}};
  ASSERT_FALSE(rig.app.refuse(request));
  const auto metrics = std::make_shared<Recorder>();
  rig.app.handle(std::move(request), metrics);
  ASSERT_TRUE(metrics->wait());
  const auto value = [&](const std::string& name) {
    const size_t at = metrics->body().find("ingot:spec_decode_num_" + name + "{");
    return at == std::string::npos ? -1 : std::stoi(metrics->body().substr(metrics->body().find("} ", at) + 2));
  };
  EXPECT_EQ(value("draft_tokens_total"), drafts_sum);
  EXPECT_EQ(value("accepted_tokens_total"), accepted_sum);
  EXPECT_GT(value("accepted_tokens_per_pos_total"), 0);
  EXPECT_GT(value("drafts_total"), 0);

  for (const auto& [field, wrong] : {std::pair<std::string, json>{"speculate", "much"},
                                     {"speculate", "draft"},
                                     {"speculate", "mtp"},
                                     {"speculate", "eagle3"},
                                     {"prediction", json{{"type", "audio"}}},
                                     {"prediction", json{{"content", json::array({1})}}}}) {
    json body = completion({1, 2, 3}, 0, 3, false);
    body[field] = wrong;
    const auto recorder = rig.post("/v1/completions", body);
    ASSERT_TRUE(recorder->wait());
    EXPECT_EQ(recorder->status(), 400);
    EXPECT_TRUE(recorder->json()["error"]["param"].get<std::string>().starts_with(field)) << recorder->body();
  }
}

TEST(App, PhasesAndRoutes) {
  Rig rig;
  const auto status = [&](const char* method, const char* path) {
    HttpRequest request{.method = method, .path = path, .headers = {{"host", "localhost"}}};
    if (auto refusal = rig.app.refuse(request)) return refusal->status;
    auto recorder = std::make_shared<Recorder>();
    rig.app.handle(std::move(request), recorder);
    return recorder->wait() ? recorder->status() : 0;
  };
  EXPECT_EQ(status("GET", "/health"), 200);
  EXPECT_EQ(status("GET", "/v1/models/other"), 200);
  EXPECT_EQ(status("GET", "/v1/models/none"), 404);
  EXPECT_EQ(status("POST", "/health"), 405);
  EXPECT_EQ(status("GET", "/"), 200);
  for (const Phase phase : {Phase::kLoading, Phase::kDraining, Phase::kDead}) {
    rig.app.set_phase(phase);
    EXPECT_EQ(status("GET", "/health"), 503);
    EXPECT_EQ(status("GET", "/metrics"), 200);
    EXPECT_EQ(status("GET", "/v1/models"), 503);
    EXPECT_EQ(status("GET", "/nothing"), 404);
    HttpRequest request{.method = "POST", .path = "/v1/completions", .headers = {{"host", "localhost"}}};
    const auto refusal = rig.app.refuse(request);
    ASSERT_TRUE(refusal);
    EXPECT_NE(std::ranges::find(refusal->headers, std::pair<std::string, std::string>("Retry-After", "1")),
              refusal->headers.end());
  }
}

// 429 means that a later try may succeed.
TEST(App, MoreAnswersThanCouldEverRunAreRefusedForGood) {
  Rig rig({}, 4);
  const int most = rig.model->info().max_seqs + 4;
  const auto status_for = [&](int n) {
    nlohmann::json body = completion({1, 2}, 3, 2, false);
    body["n"] = n;
    const auto answer = rig.post("/v1/completions", body);
    EXPECT_TRUE(answer->wait());
    EXPECT_TRUE(rig.wait_idle());
    return std::pair(answer->status(), answer->body());
  };
  EXPECT_EQ(status_for(most).first, 200);
  const auto [status, body] = status_for(most + 1);
  EXPECT_EQ(status, 400);
  EXPECT_NE(body.find(R"("param":"n")"), std::string::npos) << body;
  EXPECT_EQ(status_for(1).first, 200);
}

TEST(Access, NamesOfThisMachine) {
  const auto is_local = [](const char* host) { return is_local_host({.headers = {{"host", host}}}); };
  for (const char* host : {"localhost", "LOCALHOST:8080", "LocalHost.", "localhost.:80", "127.0.0.1", "127.9.9.9:1",
                           "[::1]:8080", "[::1]"})
    EXPECT_TRUE(is_local(host)) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "localhost..", "127.0.0.1.evil.example", ".",
                           "127.0.0.1a", "[::2]", "notlocalhost"})
    EXPECT_FALSE(is_local(host)) << host;
}

TEST(App, EndsWithRequestsUnderWay) {
  std::vector<std::shared_ptr<Recorder>> open;
  {
    // Answers of 10 s, so that none ends before the server.
    Rig rig(
        {.info =
             {.n_ctx = 2048, .block_size = 16, .pools = {{.n_blocks = 2048}}, .max_batch_tokens = 64, .max_seqs = 16},
         .step_us = 5000});
    for (int i = 0; i < 8; ++i) open.push_back(rig.post("/v1/completions", completion({1, 2}, 3, 2000, i % 2 == 0)));
    open.push_back(rig.post("/v1/completions", completion({1, 2}, 3, 2000, false)));
    while (rig.model->n_taken() < 9) std::this_thread::yield();
  }
  for (const auto& one : open) {
    ASSERT_TRUE(one->wait(std::chrono::seconds(1)));
    // A stream that had begun already has its status. It reports the end in an event.
    EXPECT_TRUE(one->failed() || one->status() == 503 || one->body().find("\"error\"") != std::string::npos)
        << one->status() << one->body();
  }
}

}  // namespace
}  // namespace ingot
