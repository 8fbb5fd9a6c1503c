// For any text of a model, each API answers 200 with the whole text, split into reasoning, content and calls like
// AnswerParser. Streams and whole answers contain the same.
#include "server/desk.h"

namespace ingot {
namespace {

void check_all(Desk& desk, const std::string& text) {
  const CallFormat& row = desk.rig.model->answers().format();
  SCOPED_TRACE(fmt::format("{}: {}", row.name, text));
  const std::string written = replace_invalid_utf8(text);
  const testing::Answer answer = testing::read_whole(row, written, {.tools = &kTools});
  const testing::Answer whole_calls = testing::read_whole(row, written, {.tools = &kTools}, true);
  const bool is_cut = answer.calls.size() > whole_calls.calls.size();

  const std::string chat = described(expected(whole_calls, "tool_calls", "stop"));
  const Seen whole =
      chat_seen({JsonValue::parse(desk.ask("/v1/chat/completions", kChatBody, text, false)->body())}, "message");
  EXPECT_EQ(described(whole), chat);
  const auto chunks = events_of(desk.ask("/v1/chat/completions", kChatBody, text, true)->body());
  const char* streamed_call = is_cut ? "length" : "tool_calls";
  EXPECT_EQ(described(chat_seen(chunks, "delta")), described(expected(answer, streamed_call, "stop")));
  EXPECT_EQ(std::ranges::count(whole.ids, ""), 0);

  const JsonValue asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}};
  const std::string response = described(expected(whole_calls, "completed", "completed"));
  EXPECT_EQ(described(responses_seen(JsonValue::parse(desk.ask("/v1/responses", asked, text, false)->body()))),
            response);
  const auto events = events_of(desk.ask("/v1/responses", asked, text, true)->body());
  EXPECT_EQ(described(responses_seen(events.back()["response"])),
            described(expected(answer, is_cut ? "incomplete" : "completed", "completed")));
  EXPECT_EQ(streamed_output(events), events.back()["response"]["output"]);

  Seen blocks = expected(whole_calls, "tool_use", "end_turn");
  for (auto& [name, arguments] : blocks.calls) arguments = as_input(arguments);
  const JsonValue message = JsonValue::parse(desk.ask("/v1/messages", messages_body(), text, false)->body());
  EXPECT_EQ(described(messages_seen(message)), described(blocks));
  const JsonValue streamed = streamed_message(events_of(desk.ask("/v1/messages", messages_body(), text, true)->body()));
  Seen streamed_blocks = expected(answer, is_cut ? "max_tokens" : "tool_use", "end_turn");
  for (auto& [name, arguments] : streamed_blocks.calls) arguments = as_input(arguments);
  EXPECT_EQ(described(messages_seen(streamed)), described(streamed_blocks));

  Seen local = blocks;
  local.finish = "stop";
  EXPECT_EQ(described(ollama_seen(desk.ask("/api/chat", kChatBody, text, false)->body())), described(local));
  EXPECT_EQ(described(ollama_seen(desk.ask("/api/chat", kChatBody, text, true)->body())), described(local));
}

TEST(Answers, WhateverIsWrittenComesWhole) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const CallFormat& row : call_formats()) {
    Desk desk(std::string(row.name).c_str());
    for (int i = 0; i < 2; ++i) check_all(desk, testing::drawn_text(row, draw));
  }
}

TEST(Answers, HaveCallsReasoningAndContent) {
  Desk desk("hermes");
  const std::string call =
      R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Paris \u00e9", "days": 2}}</tool_call>)";
  check_all(desk,
            "<think>Hm.</think>I look." + call + "\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>");
  check_all(desk, call + " and more <tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa");
  check_all(desk, "<tool_call>{\"name\": \"now\", \"arguments\": {\"n\": 1e999}}</tool_call>");
  check_all(desk, "");
  check_all(desk, "<think>never ends");

  const JsonValue whole = JsonValue::parse(desk.ask("/v1/chat/completions", kChatBody, call, false)->body());
  const JsonValue& message = whole["choices"][0]["message"];
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_TRUE(message["content"].is_null());
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"city": "Paris \u00e9", "days": 2})");
  EXPECT_FALSE(whole.contains("warnings"));
}

TEST(Answers, CountReasoningTokens) {
  Desk desk("hermes");
  const auto counted = [&](const char* text) {
    const JsonValue response = JsonValue::parse(desk.ask("/v1/responses", {{"input", "Hi"}}, text, false)->body());
    return response["usage"]["output_tokens_details"]["reasoning_tokens"].get<int>();
  };
  EXPECT_EQ(counted("<think>Hm.</think>Yes."), 18);
  EXPECT_EQ(counted("Yes."), 0);
  EXPECT_EQ(counted("<think>\n\n</think>\n\nYes."), 0);
}

// Arguments are streamed as they are written, not at the end.
TEST(Answers, ArgumentsStream) {
  Desk desk("hermes");
  const std::string text = R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>)";
  size_t n = 0;
  for (const JsonValue& chunk : events_of(desk.ask("/v1/chat/completions", kChatBody, text, true)->body()))
    n += chunk["choices"][0]["delta"].contains("tool_calls");
  EXPECT_GT(n, 10u);
}

TEST(Answers, CutByMaxTokensACallIsNeverWhole) {
  Desk desk("hermes");
  const std::string text = R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Pa)";
  JsonValue body = kChatBody;
  body["max_tokens"] = text.size();
  const Seen seen =
      chat_seen({JsonValue::parse(desk.ask("/v1/chat/completions", body, text, false)->body())}, "message");
  EXPECT_EQ(described(seen),
            described({.content = text, .finish = "length", .warnings = {"the answer ends within a call"}}));
  JsonValue asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}, {"max_output_tokens", text.size()}};
  const JsonValue response = JsonValue::parse(desk.ask("/v1/responses", asked, text, false)->body());
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], text);
  const auto events = events_of(desk.ask("/v1/responses", asked, text, true)->body());
  EXPECT_EQ(events.back()["response"]["status"], "incomplete");
  EXPECT_EQ(events.back()["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(events.back()["response"]["output"][0]["arguments"], R"({"city": "Pa)");
}

TEST(Answers, WithoutToolsHaveNoCalls) {
  Desk desk("hermes");
  const std::string text = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  JsonValue none = kChatBody;
  none["tool_choice"] = "none";
  for (const JsonValue& body : {JsonValue{{"messages", kChatBody["messages"]}}, none}) {
    const Seen seen =
        chat_seen({JsonValue::parse(desk.ask("/v1/chat/completions", body, text, false)->body())}, "message");
    EXPECT_EQ(seen.content, text);
    EXPECT_TRUE(seen.calls.empty());
    EXPECT_EQ(seen.finish, "stop");
  }
}

TEST(Answers, WithoutParallelCallsTheFirstIsKept) {
  Desk desk("hermes");
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  JsonValue body = kChatBody;
  body["parallel_tool_calls"] = false;
  for (const bool stream : {false, true}) {
    const auto answer = desk.ask("/v1/chat/completions", body, call + call, stream);
    const Seen seen = stream ? chat_seen(events_of(answer->body()), "delta")
                             : chat_seen({JsonValue::parse(answer->body())}, "message");
    EXPECT_EQ(seen.calls.size(), 1u);
    EXPECT_EQ(seen.warnings.size(), 1u);
    EXPECT_EQ(seen.content, "");
  }
  JsonValue one = messages_body();
  one["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  EXPECT_EQ(messages_seen(JsonValue::parse(desk.ask("/v1/messages", one, call + call, false)->body())).calls.size(),
            1u);
  const JsonValue asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}, {"parallel_tool_calls", false}};
  const JsonValue response = JsonValue::parse(desk.ask("/v1/responses", asked, call + call, false)->body());
  EXPECT_EQ(responses_seen(response).calls.size(), 1u);
  EXPECT_EQ(response["parallel_tool_calls"], false);
}

TEST(Answers, ReasoningFormatNoneLeavesItInTheContent) {
  Desk desk("hermes");
  const std::string thought = "<think>\nHm.\n</think>\n\nI look.";
  JsonValue body = kChatBody;
  body["reasoning_format"] = "none";
  for (const bool stream : {false, true}) {
    const auto answer = desk.ask("/v1/chat/completions", body,
                                 thought + "\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", stream);
    const Seen seen = stream ? chat_seen(events_of(answer->body()), "delta")
                             : chat_seen({JsonValue::parse(answer->body())}, "message");
    EXPECT_EQ(seen.content, thought);
    EXPECT_EQ(seen.reasoning, "");
    EXPECT_EQ(seen.calls.size(), 1u);
  }
}

TEST(Answers, ToolsOfOtherTypesAreLeftOutWithAWarning) {
  Desk desk("hermes");
  JsonValue chat = kChatBody, asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}},
            messages = messages_body();
  const std::pair<const char*, JsonValue> kBodies[] = {
      {"/v1/chat/completions", chat}, {"/v1/responses", asked}, {"/v1/messages", messages}};
  for (const auto& [path, plain] : kBodies) {
    desk.ask(path, plain, "Hi", false);
    const std::string prompt = desk.asked();
    JsonValue body = plain;
    body["tools"].push_back({{"type", "web_search_20250305"}, {"name", "web_search"}});
    const JsonValue answer = JsonValue::parse(desk.ask(path, body, "Hi", false)->body());
    EXPECT_EQ(desk.asked(), prompt);
    ASSERT_EQ(answer["warnings"].size(), 1u) << answer;
    EXPECT_EQ(answer["warnings"][0],
              "tools[2] is left out: this server has no tools of the type 'web_search_20250305'");
  }
}

// This model ignores constraints, so breaking a constraint ends the answer. Both outcomes show that the request's
// constraint was enforced.
TEST(Answers, StrictAndForcedToolsAreHeld) {
  Desk desk("hermes");
  JsonValue strict = kChatBody, forced = kChatBody;
  strict["tools"][1]["function"]["strict"] = true;
  strict["parallel_tool_calls"] = false;
  strict["tools"][1]["function"]["parameters"]["additionalProperties"] = false;
  forced["tool_choice"] = "required";
  const std::string good = "I look.<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const JsonValue answer = JsonValue::parse(desk.ask("/v1/chat/completions", strict, good, false)->body());
  EXPECT_FALSE(answer.contains("warnings"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  const std::string bad = "I look.<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\"";
  EXPECT_TRUE(desk.fails("/v1/chat/completions", strict, bad));
  EXPECT_TRUE(desk.fails("/v1/chat/completions", forced, good));
}

// Tools that differ only in their descriptions share one grammar, which is compiled once.
TEST(Answers, DescriptionsAreNoPartOfAGrammar) {
  Desk desk("hermes");
  JsonValue body = kChatBody;
  body["tools"][0]["function"]["strict"] = true;
  for (int i = 0; i < 20; ++i) {
    JsonValue& function = body["tools"][0]["function"];
    function["description"] = fmt::format("The weather, told in way {}", i);
    function["parameters"]["properties"]["city"]["description"] = fmt::format("City {}", i);
    desk.ask("/v1/chat/completions", body, "Hi", false);
  }
  EXPECT_EQ(desk.rig.model->answers().grammars().n_cached(), 1u);
}

// A model whose markers are control tokens: <|channel|> and <|message|>. A third control token is not a marker.
struct ChannelModel {
  enum : int32_t { kChannel = 256, kMessage = 257, kOther = 258 };
  std::unique_ptr<testing::OwnedSpec> spec = testing::byte_level_spec();
  std::vector<int32_t> written;
  size_t begin = 0;
  Rig rig{
      {.info = {.n_ctx = 2048, .block_size = 16, .pools = {{.n_blocks = 256}}, .max_batch_tokens = 64, .max_seqs = 4},
       .writes = [this](const SampleRow& row) { return write(row); }},
      64,
      {},
      [this](ServedModelParts& parts) {
        spec->merges.clear();
        for (size_t i = 0; i < 3; ++i) {
          spec->tokens[256 + i] = std::array{"<|channel|>", "<|message|>", "<|other|>"}[i];
          spec->spec.token_types[256 + i] = 3;
        }
        parts.tokenizer = Tokenizer::create(spec->view());
        parts.call_format = find_call_format("gpt_oss");
      }};

  int32_t write(const SampleRow& row) {
    if (begin == 0) begin = row.history.size();
    return written[row.history.size() - begin];
  }
  void say(std::string_view text) { written.insert(written.end(), text.begin(), text.end()); }
  void message(std::string_view channel, std::string_view text) {
    written.push_back(kChannel), say(channel), written.push_back(kMessage), say(text);
  }

  std::shared_ptr<Recorder> ask(JsonValue body) {
    begin = 0;
    body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
    if (!body.contains("max_tokens")) body["max_tokens"] = written.size();
    const auto answer = rig.post("/v1/chat/completions", body);
    EXPECT_TRUE(answer->wait());
    return answer;
  }
  Seen seen(const JsonValue& body) {
    const auto answer = ask(body);
    EXPECT_EQ(answer->status(), 200) << answer->body();
    return answer->status() == 200 ? chat_seen({JsonValue::parse(answer->body())}, "message") : Seen();
  }
};

constexpr const char* kNextMessage = "<|end|><|start|>assistant";

// Special tokens that are markers of the format are parsed. Other special tokens are not shown.
TEST(Answers, MarkersThatAreSpecialTokensAreRead) {
  ChannelModel model;
  model.message("analysis", "Hm.");
  model.written.push_back(ChannelModel::kOther);
  model.say(kNextMessage);
  model.message("final", "Yes.");
  model.written.push_back(ChannelModel::kOther);
  const Seen seen = model.seen({});
  EXPECT_EQ(seen.reasoning, "Hm.");
  EXPECT_EQ(seen.content, "Yes.");
}

// A schema applies to the text of the last channel. Reasoning before it is unconstrained. A forced call has its own
// channel.
TEST(Answers, ConstraintsHoldInTheirChannel) {
  const JsonValue schema = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"enum", {"Yes", "Maybe"}}}}}}};
  const auto model_of = [](const char* channel, const char* text) {
    auto model = std::make_unique<ChannelModel>();
    model->message("analysis", "Hm.");
    model->say(kNextMessage);
    model->message(channel, text);
    return model;
  };
  const Seen held = model_of("final", R"("Yes")")->seen({{"response_format", schema}});
  EXPECT_EQ(held.reasoning, "Hm.");
  EXPECT_EQ(held.content, R"("Yes")");
  const auto is_refused = [](ChannelModel& model, const JsonValue& body) {
    return model.ask(body)->body().find("which the constraint does not allow") != std::string::npos;
  };
  EXPECT_TRUE(is_refused(*model_of("final", R"("No")"), {{"response_format", schema}}));

  const JsonValue forced = {{"tools", kTools}, {"tool_choice", "required"}, {"parallel_tool_calls", false}};
  const char* call = "commentary to=functions.get_weather <|constrain|>json";
  const Seen called = model_of(call, R"({"city":"Oslo"}<|call|>)")->seen(forced);
  ASSERT_EQ(called.calls.size(), 1u) << described(called);
  EXPECT_EQ(called.calls[0].second, R"({"city":"Oslo"})");
  EXPECT_EQ(called.finish, "tool_calls");
  EXPECT_TRUE(is_refused(*model_of("final", "No."), forced));
}

}  // namespace
}  // namespace ingot
