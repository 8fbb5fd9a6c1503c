// For any text of a model, each API answers 200 with the whole text, split into reasoning, content and calls like
// AnswerParser. Streams and whole answers contain the same.
#include <random>

#include "server/rig.h"
#include "test_seed.h"
#include "text/calls_check.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kEnd = 256;  // a stop token of the requests

const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}])");

// A model that writes a given text byte by byte, then kEnd. One request at a time.
struct Desk {
  explicit Desk(const char* format, ChatTemplate chat = ChatTemplate::chatml_default())
      : rig({.info = {.n_ctx = 8192, .block_size = 64, .n_blocks = 256, .max_batch_tokens = 4096, .max_seqs = 4},
             .writes = [this](const SampleRow& row) { return write(row); }},
            64, {}, [&](ServedModelParts& parts) {
              parts.call_format = find_call_format(format);
              parts.chat = std::move(chat);
            }) {}

  int32_t write(const SampleRow& row) {
    const size_t n = row.history.size();
    if (is_new) begin = n, prompt.assign(row.history.begin(), row.history.end());
    is_new = false;
    return n - begin < text.size() ? static_cast<unsigned char>(text[n - begin]) : kEnd;
  }

  // The answer's JSON, or its events.
  std::shared_ptr<Recorder> ask(const std::string& path, Json body, const std::string& answer, bool stream) {
    text = answer;
    is_new = true;
    body["stream"] = stream;
    body["stop_token_ids"] = {kEnd};
    const char* limit = path == "/v1/responses" ? "max_output_tokens" : "max_tokens";
    if (!body.contains(limit)) body[limit] = answer.size() + 1;
    auto recorder = rig.post(path, body);
    EXPECT_TRUE(recorder->wait());
    EXPECT_EQ(recorder->status(), 200) << recorder->body();
    return recorder;
  }

  // Whether the engine ends the request because the constraint refuses the answer.
  bool fails(const std::string& path, Json body, const std::string& answer) {
    text = answer;
    is_new = true;
    body["stop_token_ids"] = {kEnd};
    auto recorder = rig.post(path, body);
    EXPECT_TRUE(recorder->wait());
    return recorder->body().find("which the constraint does not allow") != std::string::npos;
  }

  std::string asked() const { return rig.model->tokenizer().decode(prompt); }

  std::string text;
  size_t begin = 0;
  bool is_new = true;
  std::vector<int32_t> prompt;  // of the last answer
  Rig rig;
};

// An answer as a client sees it.
struct Seen {
  std::string reasoning, content, finish;
  std::vector<std::pair<std::string, std::string>> calls;  // name and arguments
  std::vector<std::string> ids;
  Json warnings = Json::array();
};

// Arguments in the form of Anthropic's whole answers: an object, or the text if it is not an object.
std::string as_input(const std::string& arguments) {
  const Json input = Json::parse(arguments, nullptr, false);
  return input.is_object() ? input.dump(-1, ' ', false, Json::error_handler_t::replace) : arguments;
}

std::string described(const Seen& seen) {
  std::string text = fmt::format("reasoning [{}]\ncontent [{}]\n", seen.reasoning, seen.content);
  for (const auto& [name, arguments] : seen.calls) text += fmt::format("call {} {}\n", name, arguments);
  return text + fmt::format("{}\n{}", seen.finish, seen.warnings.dump());
}

std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  for (size_t begin = 0, end; (end = body.find("\n\n", begin)) != body.npos; begin = end + 2) {
    const std::string event = body.substr(begin, end - begin);
    const size_t data = event.find("data: ");
    if (event != "data: [DONE]") events.push_back(Json::parse(event.substr(data + 6)));
  }
  return events;
}

std::string member_text(const Json& object, const char* name) {
  const auto text = object.find(name);
  return text == object.end() || text->is_null() ? "" : text->get<std::string>();
}

void add_call(Seen& seen, const Json& call) {
  const Json& function = call["function"];
  const auto index = static_cast<size_t>(call.value("index", static_cast<int>(seen.calls.size())));
  if (call.contains("id")) {
    EXPECT_EQ(index, seen.calls.size()) << "calls come in order";
    EXPECT_EQ(call["type"], "function");
    seen.calls.emplace_back(function["name"], "");
    seen.ids.push_back(call["id"]);
  }
  ASSERT_LT(index, seen.calls.size());
  seen.calls[index].second += function["arguments"].get<std::string>();
}

Seen chat_seen(const std::vector<Json>& answers, const char* part) {
  Seen seen;
  for (const Json& answer : answers) {
    if (answer.contains("warnings")) seen.warnings = answer["warnings"];
    if (answer["choices"].empty()) continue;
    const Json& choice = answer["choices"][0];
    const Json& said = choice[part];
    seen.reasoning += member_text(said, "reasoning_content");
    EXPECT_EQ(member_text(said, "reasoning_content"), member_text(said, "reasoning"));
    seen.content += member_text(said, "content");
    if (said.contains("tool_calls"))
      for (const Json& call : said["tool_calls"]) add_call(seen, call);
    if (!choice["finish_reason"].is_null()) seen.finish = choice["finish_reason"];
  }
  return seen;
}

Seen responses_seen(const Json& response) {
  Seen seen;
  for (const Json& item : response["output"]) {
    if (item["type"] == "function_call") {
      seen.calls.emplace_back(item["name"], item["arguments"]);
      seen.ids.push_back(item["call_id"]);
    } else {
      (item["type"] == "reasoning" ? seen.reasoning : seen.content) += item["content"][0]["text"];
    }
  }
  seen.finish = response["status"];
  if (response.contains("warnings")) seen.warnings = response["warnings"];
  return seen;
}

// The output according to all events but the last.
Json streamed_output(const std::vector<Json>& events) {
  Json output = Json::array();
  std::vector<std::string> texts;
  int sequence = 0;
  for (const Json& event : events) {
    EXPECT_EQ(event["sequence_number"], sequence++);
    const std::string type = event["type"];
    if (type == "response.output_item.added") texts.emplace_back();
    if (type.ends_with(".delta")) texts.back() += event["delta"];
    if (type.ends_with("text.done")) {
      EXPECT_EQ(event["text"], texts.back());
    }
    if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], texts.back());
    }
    if (type != "response.output_item.done") continue;
    const Json& item = event["item"];
    EXPECT_EQ(event["output_index"], output.size());
    EXPECT_EQ(item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"], texts.back());
    output.push_back(item);
  }
  return output;
}

Seen messages_seen(const Json& message) {
  Seen seen;
  for (const Json& block : message["content"]) {
    if (block["type"] == "thinking") {
      seen.reasoning += block["thinking"];
      EXPECT_NE(block["signature"], "");
    } else if (block["type"] == "text") {
      seen.content += block["text"];
    } else {
      const Json& input = block.contains("partial_json") ? block["partial_json"] : block["input"];
      seen.calls.emplace_back(block["name"], input.is_string() ? input.get<std::string>() : input.dump());
      seen.ids.push_back(block["id"]);
    }
  }
  seen.finish = message["stop_reason"];
  if (message.contains("warnings")) seen.warnings = message["warnings"];
  return seen;
}

// The message that a stream's events build.
Json streamed_message(const std::vector<Json>& events) {
  Json message = {{"content", Json::array()}};
  std::string text;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      text.clear();
    } else if (type == "content_block_delta") {
      Json& block = message["content"].back();
      const Json& delta = event["delta"];
      if (delta["type"] == "signature_delta") block["signature"] = delta["signature"];
      for (const char* name : {"text", "thinking", "partial_json"})
        if (delta.contains(name)) text += delta[name];
    } else if (type == "content_block_stop") {
      Json& block = message["content"].back();
      const std::string kind = block["type"];
      const Json input = Json::parse(text, nullptr, false);
      if (kind != "tool_use")
        block[kind] = text;
      else
        block[input.is_object() ? "input" : "partial_json"] = input.is_object() ? input : Json(text);
    } else if (type == "message_delta") {
      message["stop_reason"] = event["delta"]["stop_reason"];
      if (event.contains("warnings")) message["warnings"] = event["warnings"];
    }
  }
  return message;
}

// According to the parser's result for the whole text.
Seen expected(const testing::Answer& answer, const char* called, const char* plain) {
  Seen seen{.reasoning = answer.reasoning, .content = answer.content, .finish = answer.calls.empty() ? plain : called};
  for (const testing::ReadCall& call : answer.calls) seen.calls.emplace_back(call.name, call.arguments);
  for (const std::string& warning : answer.warnings) seen.warnings.push_back(warning);
  return seen;
}

Json functions_of(const char* parameters) {
  Json flat = Json::array();
  for (const Json& tool : kTools)
    flat.push_back(
        {{"type", "function"}, {"name", tool["function"]["name"]}, {parameters, tool["function"]["parameters"]}});
  return flat;
}

Json messages_body() {
  Json tools = functions_of("input_schema");
  for (Json& tool : tools) tool.erase("type");
  return {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"tools", tools}};
}

const Json kChatBody = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"tools", kTools}};

void check_all(Desk& desk, const std::string& text) {
  const CallFormat& row = desk.rig.model->call_format();
  SCOPED_TRACE(fmt::format("{}: {}", row.name, text));
  const testing::Answer answer = testing::read_whole(row, replace_invalid_utf8(text), {.tools = &kTools});

  const std::string chat = described(expected(answer, "tool_calls", "stop"));
  const Seen whole =
      chat_seen({Json::parse(desk.ask("/v1/chat/completions", kChatBody, text, false)->body())}, "message");
  EXPECT_EQ(described(whole), chat);
  const auto chunks = events_of(desk.ask("/v1/chat/completions", kChatBody, text, true)->body());
  EXPECT_EQ(described(chat_seen(chunks, "delta")), chat);
  EXPECT_EQ(std::ranges::count(whole.ids, ""), 0);

  const Json asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}};
  const std::string response = described(expected(answer, "completed", "completed"));
  EXPECT_EQ(described(responses_seen(Json::parse(desk.ask("/v1/responses", asked, text, false)->body()))), response);
  const auto events = events_of(desk.ask("/v1/responses", asked, text, true)->body());
  EXPECT_EQ(described(responses_seen(events.back()["response"])), response);
  EXPECT_EQ(streamed_output(events), events.back()["response"]["output"]);

  Seen blocks = expected(answer, "tool_use", "end_turn");
  for (auto& [name, arguments] : blocks.calls) arguments = as_input(arguments);
  const Json message = Json::parse(desk.ask("/v1/messages", messages_body(), text, false)->body());
  EXPECT_EQ(described(messages_seen(message)), described(blocks));
  const Json streamed = streamed_message(events_of(desk.ask("/v1/messages", messages_body(), text, true)->body()));
  EXPECT_EQ(described(messages_seen(streamed)), described(blocks));
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

  const Json whole = Json::parse(desk.ask("/v1/chat/completions", kChatBody, call, false)->body());
  const Json& message = whole["choices"][0]["message"];
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_TRUE(message["content"].is_null());
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"city": "Paris \u00e9", "days": 2})");
  EXPECT_FALSE(whole.contains("warnings"));
}

TEST(Answers, CountReasoningTokens) {
  Desk desk("hermes");
  const auto counted = [&](const char* text) {
    const Json response = Json::parse(desk.ask("/v1/responses", {{"input", "Hi"}}, text, false)->body());
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
  for (const Json& chunk : events_of(desk.ask("/v1/chat/completions", kChatBody, text, true)->body()))
    n += chunk["choices"][0]["delta"].contains("tool_calls");
  EXPECT_GT(n, 10u);
}

TEST(Answers, CutByMaxTokensTheCallEndsThere) {
  Desk desk("hermes");
  const std::string text = R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Pa)";
  Json body = kChatBody;
  body["max_tokens"] = text.size();
  const Seen seen = chat_seen({Json::parse(desk.ask("/v1/chat/completions", body, text, false)->body())}, "message");
  EXPECT_EQ(seen.finish, "length");
  ASSERT_EQ(seen.calls.size(), 1u);
  EXPECT_EQ(seen.calls[0].second, R"({"city": "Pa)");
  ASSERT_EQ(seen.warnings.size(), 1u);
  Json asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}, {"max_output_tokens", text.size()}};
  const Json response = Json::parse(desk.ask("/v1/responses", asked, text, false)->body());
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST(Answers, WithoutToolsHaveNoCalls) {
  Desk desk("hermes");
  const std::string text = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  Json none = kChatBody;
  none["tool_choice"] = "none";
  for (const Json& body : {Json{{"messages", kChatBody["messages"]}}, none}) {
    const Seen seen = chat_seen({Json::parse(desk.ask("/v1/chat/completions", body, text, false)->body())}, "message");
    EXPECT_EQ(seen.content, text);
    EXPECT_TRUE(seen.calls.empty());
    EXPECT_EQ(seen.finish, "stop");
  }
}

TEST(Answers, WithoutParallelCallsTheFirstIsKept) {
  Desk desk("hermes");
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  Json body = kChatBody;
  body["parallel_tool_calls"] = false;
  for (const bool stream : {false, true}) {
    const auto answer = desk.ask("/v1/chat/completions", body, call + call, stream);
    const Seen seen =
        stream ? chat_seen(events_of(answer->body()), "delta") : chat_seen({Json::parse(answer->body())}, "message");
    EXPECT_EQ(seen.calls.size(), 1u);
    EXPECT_EQ(seen.warnings.size(), 1u);
    EXPECT_EQ(seen.content, "");
  }
  Json one = messages_body();
  one["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  EXPECT_EQ(messages_seen(Json::parse(desk.ask("/v1/messages", one, call + call, false)->body())).calls.size(), 1u);
  const Json asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}, {"parallel_tool_calls", false}};
  const Json response = Json::parse(desk.ask("/v1/responses", asked, call + call, false)->body());
  EXPECT_EQ(responses_seen(response).calls.size(), 1u);
  EXPECT_EQ(response["parallel_tool_calls"], false);
}

TEST(Answers, ReasoningFormatNoneLeavesItInTheContent) {
  Desk desk("hermes");
  const std::string thought = "<think>\nHm.\n</think>\n\nI look.";
  Json body = kChatBody;
  body["reasoning_format"] = "none";
  for (const bool stream : {false, true}) {
    const auto answer = desk.ask("/v1/chat/completions", body,
                                 thought + "\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", stream);
    const Seen seen =
        stream ? chat_seen(events_of(answer->body()), "delta") : chat_seen({Json::parse(answer->body())}, "message");
    EXPECT_EQ(seen.content, thought);
    EXPECT_EQ(seen.reasoning, "");
    EXPECT_EQ(seen.calls.size(), 1u);
  }
}

TEST(Answers, ToolsOfOtherTypesAreLeftOutWithAWarning) {
  Desk desk("hermes");
  Json chat = kChatBody, asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}}, messages = messages_body();
  const std::pair<const char*, Json> kBodies[] = {
      {"/v1/chat/completions", chat}, {"/v1/responses", asked}, {"/v1/messages", messages}};
  for (const auto& [path, plain] : kBodies) {
    desk.ask(path, plain, "Hi", false);
    const std::string prompt = desk.asked();
    Json body = plain;
    body["tools"].push_back({{"type", "web_search_20250305"}, {"name", "web_search"}});
    const Json answer = Json::parse(desk.ask(path, body, "Hi", false)->body());
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
  Json strict = kChatBody, forced = kChatBody;
  strict["tools"][1]["function"]["strict"] = true;
  strict["parallel_tool_calls"] = false;
  strict["tools"][1]["function"]["parameters"]["additionalProperties"] = false;
  forced["tool_choice"] = "required";
  const std::string good = "I look.<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const Json answer = Json::parse(desk.ask("/v1/chat/completions", strict, good, false)->body());
  EXPECT_FALSE(answer.contains("warnings"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  const std::string bad = "I look.<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\"";
  EXPECT_TRUE(desk.fails("/v1/chat/completions", strict, bad));
  EXPECT_TRUE(desk.fails("/v1/chat/completions", forced, good));
}

// Tools that differ only in their descriptions share one grammar, which is compiled once.
TEST(Answers, DescriptionsAreNoPartOfAGrammar) {
  Desk desk("hermes");
  Json body = kChatBody;
  body["tools"][0]["function"]["strict"] = true;
  for (int i = 0; i < 20; ++i) {
    Json& function = body["tools"][0]["function"];
    function["description"] = fmt::format("The weather, told in way {}", i);
    function["parameters"]["properties"]["city"]["description"] = fmt::format("City {}", i);
    desk.ask("/v1/chat/completions", body, "Hi", false);
  }
  EXPECT_EQ(desk.rig.model->grammars().n_cached(), 1u);
}

// A model whose markers are control tokens: <|channel|> and <|message|>. A third control token is not a marker.
struct ChannelModel {
  enum : int32_t { kChannel = 256, kMessage = 257, kOther = 258 };
  std::unique_ptr<testing::OwnedSpec> spec = testing::byte_level_spec();
  std::vector<int32_t> written;
  size_t begin = 0;
  Rig rig{{.info = {.n_ctx = 2048, .block_size = 16, .n_blocks = 256, .max_batch_tokens = 64, .max_seqs = 4},
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

  std::shared_ptr<Recorder> ask(Json body) {
    begin = 0;
    body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
    if (!body.contains("max_tokens")) body["max_tokens"] = written.size();
    const auto answer = rig.post("/v1/chat/completions", body);
    EXPECT_TRUE(answer->wait());
    return answer;
  }
  Seen seen(const Json& body) {
    const auto answer = ask(body);
    EXPECT_EQ(answer->status(), 200) << answer->body();
    return answer->status() == 200 ? chat_seen({Json::parse(answer->body())}, "message") : Seen();
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
  const Json schema = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"enum", {"Yes", "Maybe"}}}}}}};
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
  const auto is_refused = [](ChannelModel& model, const Json& body) {
    return model.ask(body)->body().find("which the constraint does not allow") != std::string::npos;
  };
  EXPECT_TRUE(is_refused(*model_of("final", R"("No")"), {{"response_format", schema}}));

  const Json forced = {{"tools", kTools}, {"tool_choice", "required"}, {"parallel_tool_calls", false}};
  const char* call = "commentary to=functions.get_weather <|constrain|>json";
  const Seen called = model_of(call, R"({"city":"Oslo"}<|call|>)")->seen(forced);
  ASSERT_EQ(called.calls.size(), 1u) << described(called);
  EXPECT_EQ(called.calls[0].second, R"({"city":"Oslo"})");
  EXPECT_EQ(called.finish, "tool_calls");
  EXPECT_TRUE(is_refused(*model_of("final", "No."), forced));
}

}  // namespace
}  // namespace ingot
