// A server whose model writes a given text, and the answers of each API as a client sees them.
#pragma once
#include <random>
#include <sstream>

#include "server/rig.h"
#include "test_seed.h"
#include "text/calls/calls_check.h"
#include "text/json_value.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

inline constexpr int32_t kEnd = 256;  // a stop token of the requests

inline const JsonValue kTools =
    JsonValue::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}])");

// A model that writes a given text byte by byte, then kEnd. One request at a time.
struct Desk {
  explicit Desk(const char* format, ChatTemplate chat = ChatTemplate::chatml_default())
      : rig({.info = {.n_ctx = 8192,
                      .block_size = 64,
                      .pools = {{.n_blocks = 256}},
                      .max_batch_tokens = 4096,
                      .max_seqs = 4},
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
  std::shared_ptr<Recorder> ask(const std::string& path, JsonValue body, const std::string& answer, bool stream) {
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
  bool fails(const std::string& path, JsonValue body, const std::string& answer) {
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
  JsonValue warnings = JsonValue::array();
};

// Arguments in the form of an object, as Anthropic's and Ollama's answers have them, or the text of a cut call.
inline std::string as_input(const std::string& arguments) {
  const JsonValue input = JsonValue::parse(arguments, nullptr, false);
  return input.is_object() ? input.dump(-1, ' ', false, JsonValue::error_handler_t::replace) : arguments;
}

inline std::string described(const Seen& seen) {
  std::string text = fmt::format("reasoning [{}]\ncontent [{}]\n", seen.reasoning, seen.content);
  for (const auto& [name, arguments] : seen.calls) text += fmt::format("call {} {}\n", name, arguments);
  return text + fmt::format("{}\n{}", seen.finish, seen.warnings.dump());
}

inline std::vector<JsonValue> events_of(const std::string& body) {
  std::vector<JsonValue> events;
  for (size_t begin = 0, end; (end = body.find("\n\n", begin)) != body.npos; begin = end + 2) {
    const std::string event = body.substr(begin, end - begin);
    const size_t data = event.find("data: ");
    if (event != "data: [DONE]") events.push_back(JsonValue::parse(event.substr(data + 6)));
  }
  return events;
}

inline std::string member_text(const JsonValue& object, const char* name) {
  const auto text = object.find(name);
  return text == object.end() || text->is_null() ? "" : text->get<std::string>();
}

inline void add_call(Seen& seen, const JsonValue& call) {
  const JsonValue& function = call["function"];
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

inline Seen chat_seen(const std::vector<JsonValue>& answers, const char* part) {
  Seen seen;
  for (const JsonValue& answer : answers) {
    if (answer.contains("warnings")) seen.warnings = answer["warnings"];
    if (answer["choices"].empty()) continue;
    const JsonValue& choice = answer["choices"][0];
    const JsonValue& said = choice[part];
    seen.reasoning += member_text(said, "reasoning_content");
    EXPECT_EQ(member_text(said, "reasoning_content"), member_text(said, "reasoning"));
    seen.content += member_text(said, "content");
    if (said.contains("tool_calls"))
      for (const JsonValue& call : said["tool_calls"]) add_call(seen, call);
    if (!choice["finish_reason"].is_null()) seen.finish = choice["finish_reason"];
  }
  return seen;
}

inline Seen responses_seen(const JsonValue& response) {
  Seen seen;
  for (const JsonValue& item : response["output"]) {
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
inline JsonValue streamed_output(const std::vector<JsonValue>& events) {
  JsonValue output = JsonValue::array();
  std::vector<std::string> texts;
  int sequence = 0;
  for (const JsonValue& event : events) {
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
    const JsonValue& item = event["item"];
    EXPECT_EQ(event["output_index"], output.size());
    EXPECT_EQ(item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"], texts.back());
    output.push_back(item);
  }
  return output;
}

inline Seen messages_seen(const JsonValue& message) {
  Seen seen;
  for (const JsonValue& block : message["content"]) {
    if (block["type"] == "thinking") {
      seen.reasoning += block["thinking"];
      EXPECT_NE(block["signature"], "");
    } else if (block["type"] == "text") {
      seen.content += block["text"];
    } else {
      const JsonValue& input = block.contains("partial_json") ? block["partial_json"] : block["input"];
      seen.calls.emplace_back(block["name"], input.is_string() ? input.get<std::string>() : input.dump());
      seen.ids.push_back(block["id"]);
    }
  }
  seen.finish = message["stop_reason"];
  if (message.contains("warnings")) seen.warnings = message["warnings"];
  return seen;
}

// The message that a stream's events build.
inline JsonValue streamed_message(const std::vector<JsonValue>& events) {
  JsonValue message = {{"content", JsonValue::array()}};
  std::string text;
  for (const JsonValue& event : events) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      text.clear();
    } else if (type == "content_block_delta") {
      JsonValue& block = message["content"].back();
      const JsonValue& delta = event["delta"];
      if (delta["type"] == "signature_delta") block["signature"] = delta["signature"];
      for (const char* name : {"text", "thinking", "partial_json"})
        if (delta.contains(name)) text += delta[name];
    } else if (type == "content_block_stop") {
      JsonValue& block = message["content"].back();
      const std::string kind = block["type"];
      const JsonValue input = JsonValue::parse(text, nullptr, false);
      if (kind != "tool_use")
        block[kind] = text;
      else
        block[input.is_object() ? "input" : "partial_json"] = input.is_object() ? input : JsonValue(text);
    } else if (type == "message_delta") {
      message["stop_reason"] = event["delta"]["stop_reason"];
      if (event.contains("warnings")) message["warnings"] = event["warnings"];
    }
  }
  return message;
}

// According to the parser's result for the whole text.
inline Seen expected(const testing::Answer& answer, const char* called, const char* plain) {
  Seen seen{.reasoning = answer.reasoning, .content = answer.content, .finish = answer.calls.empty() ? plain : called};
  for (const testing::ReadCall& call : answer.calls) seen.calls.emplace_back(call.name, call.arguments);
  for (const std::string& warning : answer.warnings) seen.warnings.push_back(warning);
  return seen;
}

// An answer of /api/chat: one line, or the lines of a stream.
inline Seen ollama_seen(const std::string& body) {
  Seen seen;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    const JsonValue answer = JsonValue::parse(line);
    const JsonValue& message = answer["message"];
    seen.reasoning += member_text(message, "thinking");
    seen.content += member_text(message, "content");
    if (message.contains("tool_calls"))
      for (const JsonValue& call : message["tool_calls"]) {
        EXPECT_TRUE(call["function"]["arguments"].is_object());
        seen.calls.emplace_back(call["function"]["name"], as_input(call["function"]["arguments"].dump()));
      }
    if (answer.contains("warnings")) seen.warnings = answer["warnings"];
    if (answer["done"] == true) seen.finish = answer["done_reason"];
  }
  return seen;
}

inline JsonValue functions_of(const char* parameters) {
  JsonValue flat = JsonValue::array();
  for (const JsonValue& tool : kTools)
    flat.push_back(
        {{"type", "function"}, {"name", tool["function"]["name"]}, {parameters, tool["function"]["parameters"]}});
  return flat;
}

inline JsonValue messages_body() {
  JsonValue tools = functions_of("input_schema");
  for (JsonValue& tool : tools) tool.erase("type");
  return {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"tools", tools}};
}

inline const JsonValue kChatBody = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"tools", kTools}};

}  // namespace ingot
