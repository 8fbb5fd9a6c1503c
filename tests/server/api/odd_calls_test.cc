// Calls as models really write them, in each family's syntax, through each API, streamed and whole. A client gets
// exactly the arguments that the model wrote, or no call that it could run.
#include "base/ascii.h"
#include "server/desk.h"
#include "text/calls/call_writer.h"

namespace ingot {
namespace {

// What a model writes where a JSON object belongs, and the object that it means; "": the text cannot be read.
struct OddArguments {
  const char *written, *meant;
};
constexpr OddArguments kOddArguments[] = {
    {R"({"city": "Paris",})", R"({"city": "Paris"})"},
    {R"({"city": "Paris" , })", R"({"city": "Paris"})"},
    {R"({"list": [1, 2, ], "city": "Paris"})", R"({"list": [1, 2], "city": "Paris"})"},
    {R"({"ok": True, "note": None, "bad": False})", R"({"ok": true, "note": null, "bad": false})"},
    {R"({"nested": {"a": [True, {"b": None,},],}})", R"({"nested": {"a": [true, {"b": null}]}})"},
    {R"({'city': 'Paris'})", R"({"city": "Paris"})"},
    {R"({'city': 'the "old" town'})", R"({"city": "the \"old\" town"})"},
    {R"({"city": 'it\'s'})", R"({"city": "it's"})"},
    {R"({"city": "it\'s \d+"})", R"({"city": "it's \\d+"})"},
    {R"({"city": "C:\Users\x41\Temp"})", R"({"city": "C:\\Users\\x41\\Temp"})"},
    {R"({"city": "C:\users"})", R"({"city": "C:\\users"})"},
    {R"({"city": "\u12"})", R"({"city": "\\u12"})"},
    {R"({"city": "\ud83d"})", R"({"city": "\ufffd"})"},
    {R"({"city": "\ud83d\n"})", R"({"city": "\ufffd\n"})"},
    {R"({"city": "\ud83d\ud83d\ude00"})", R"({"city": "\ufffd\ud83d\ude00"})"},
    {R"({"city": "\ude00"})", R"({"city": "\ufffd"})"},
    {R"({city: "Paris", days : 2})", R"({"city": "Paris", "days": 2})"},
    {"{\"city\": \"Paris\", // the capital\n \"days\": 2}", R"({"city": "Paris", "days": 2})"},
    {R"({"city": /* of *France* */ "Paris", "days": 2 /**/})", R"({"city": "Paris", "days": 2})"},
    {"{# a note\n\"days\": 2}", R"({"days": 2})"},
    {"{\"city\": \"two\nlines\"}", R"({"city": "two\nlines"})"},
    {R"({"n": 1e999})", R"({"n": 1.7976931348623157e308})"},
    {R"({"city": "say "hi""})", ""},
    {R"({"city": Paris})", ""},
    {R"({"n": NaN})", ""},
    {R"({"n": -Infinity})", ""},
    {R"({"n": 1.})", ""},
    {R"({"n": 007})", ""},
    {R"({"city": "Paris" "days": 2})", ""},
    {R"({"city" "Paris"})", ""},
    {R"({"city": })", ""},
    {R"({"city": "Paris",, "days": 2})", ""},
    {R"({,})", ""},
    {R"({"city": "Paris"])", ""},
    {R"({"city": "Paris)", ""},
    {R"({"city": )", ""},
    {R"({"city": "Paris"/})", ""},
    {R"({"city": True})", ""},   // the tool wants a string
    {R"({'days': 'two'})", ""},  // the tool wants an integer
    {R"({city name: "Paris"})", ""},
};

bool has_json_arguments(const CallFormat& row) {
  return row.syntax == CallSyntax::kEnvelope || row.syntax == CallSyntax::kNamed || row.syntax == CallSyntax::kChannel;
}

std::string call_text(const CallFormat& row, const std::string& arguments) {
  return row.begin_text("get_weather") + arguments + row.end_text();
}

JsonValue parsed(const std::string& text) { return JsonValue::parse(text, nullptr, false); }

// Checks one answer. `cut`: the reason for an answer whose call has begun but cannot be read.
void check_call(const Seen& seen, const std::string& meant, const char* called, const char* plain, const char* cut) {
  if (!meant.empty()) {
    EXPECT_EQ(seen.finish, called) << described(seen);
    ASSERT_EQ(seen.calls.size(), 1u) << described(seen);
    EXPECT_EQ(seen.calls[0].first, "get_weather");
    EXPECT_EQ(parsed(seen.calls[0].second), parsed(meant)) << seen.calls[0].second;
    return;
  }
  EXPECT_NE(seen.finish, called) << described(seen);
  EXPECT_TRUE(seen.finish == plain || (cut && seen.finish == cut)) << described(seen);
  if (!cut) EXPECT_TRUE(seen.calls.empty()) << described(seen);
  EXPECT_FALSE(seen.warnings.empty()) << described(seen);
}

void check_apis(Desk& desk, const std::string& text, const std::string& meant) {
  SCOPED_TRACE(fmt::format("{}: {}", desk.rig.model->answers().format().name, text));
  const auto chat = [&](bool stream) { return desk.ask("/v1/chat/completions", kChatBody, text, stream)->body(); };
  check_call(chat_seen({JsonValue::parse(chat(false))}, "message"), meant, "tool_calls", "stop", nullptr);
  check_call(chat_seen(events_of(chat(true)), "delta"), meant, "tool_calls", "stop", "length");
  const auto messages = [&](bool stream) { return desk.ask("/v1/messages", messages_body(), text, stream)->body(); };
  check_call(messages_seen(JsonValue::parse(messages(false))), meant, "tool_use", "end_turn", nullptr);
  const JsonValue streamed = streamed_message(events_of(messages(true)));
  check_call(messages_seen(streamed), meant, "tool_use", "end_turn", "max_tokens");
  for (const bool stream : {false, true}) {
    const Seen seen = ollama_seen(desk.ask("/api/chat", kChatBody, text, stream)->body());
    EXPECT_EQ(seen.calls.empty(), meant.empty()) << described(seen);
    if (!meant.empty() && !seen.calls.empty()) EXPECT_EQ(parsed(seen.calls[0].second), parsed(meant));
    if (meant.empty()) EXPECT_NE(seen.content.find("get_weather"), std::string::npos) << described(seen);
  }
  const JsonValue asked = {{"input", "Hi"}, {"tools", functions_of("parameters")}};
  for (const bool stream : {false, true}) {
    const std::string body = desk.ask("/v1/responses", asked, text, stream)->body();
    const JsonValue response = stream ? events_of(body).back()["response"] : JsonValue::parse(body);
    int n_whole = 0;
    for (const JsonValue& item : response["output"]) {
      if (item["type"] != "function_call") continue;
      n_whole += item["status"] == "completed";
      if (!meant.empty()) EXPECT_EQ(parsed(item["arguments"]), parsed(meant));
    }
    EXPECT_EQ(n_whole, meant.empty() ? 0 : 1) << response.dump();
    if (!meant.empty()) EXPECT_EQ(response["status"], "completed");
  }
}

TEST(OddCalls, ArgumentsAreReadOrNotRun) {
  for (const CallFormat& row : call_formats()) {
    if (!has_json_arguments(row)) continue;
    Desk desk(std::string(row.name).c_str());
    for (const auto& [written, meant] : kOddArguments) check_apis(desk, call_text(row, written), meant);
  }
}

// Arguments under another key, or beside the name.
TEST(OddCalls, AnEnvelopeLosesNothing) {
  struct Envelope {
    const char *members, *meant;
  };
  constexpr Envelope kEnvelopes[] = {
      {R"("args": {"city": "Paris"})", R"({"city": "Paris"})"},
      {R"("input": {"city": "Paris", "days": 2})", R"({"city": "Paris", "days": 2})"},
      {R"("argumetns": {"city": "Paris"})", R"({"city": "Paris"})"},
      {R"("args": "{\"city\": \"Paris\"}")", R"({"city": "Paris"})"},
      {R"("city": "Paris")", R"({"city": "Paris"})"},
      {R"("city": "Paris", "days": 2)", R"({"city": "Paris", "days": 2})"},
      {R"("citty": "Paris")", R"({"citty": "Paris"})"},
      {R"("type": "function", "city": "Paris")", R"({"city": "Paris"})"},
      {R"("id": "call00001", "args": {"city": "Paris"})", R"({"city": "Paris"})"},
      {R"("city": {"name": "Paris"})", R"({"city": {"name": "Paris"}})"},
      {R"('args': {'city': 'Paris'},)", R"({"city": "Paris"})"},
      {R"("args": {"city": "Paris"}, "days": 2)", ""},
      {R"("args": {"city": "Paris"}, "input": {"days": 2})", ""},
  };
  for (const CallFormat& row : call_formats()) {
    if (row.syntax != CallSyntax::kEnvelope) continue;
    Desk desk(std::string(row.name).c_str());
    for (const auto& [members, meant] : kEnvelopes) {
      const std::string begin = std::string(row.list_begin) + (row.array ? "[" : "") + std::string(row.call_begin);
      const std::string end = std::string(row.call_end) + (row.array ? "]" : "") + std::string(row.list_end);
      const std::string envelope = fmt::format("{{\"{}\": \"get_weather\", {}}}", row.name_key, members);
      check_apis(desk, begin + envelope + end, meant);
    }
  }
}

// Each byte of a drawn envelope is in a field, in the content or in a warning.
TEST(OddCalls, DrawnEnvelopesAreInFieldsContentOrWarnings) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const auto drawn = [&](std::initializer_list<const char*> list) {
    return std::string(*(list.begin() + draw() % list.size()));
  };
  for (const CallFormat& row : call_formats()) {
    if (row.syntax != CallSyntax::kEnvelope || row.unmarked) continue;
    for (int i = 0; i < 60; ++i) {
      std::string members = fmt::format("\"{}\": \"get_weather\"", row.name_key);
      std::vector<std::string> words;
      for (size_t n = draw() % 4; n > 0; --n) {
        words.push_back(fmt::format("w{}", draw() % 100000));
        const std::string key = drawn({"arguments", "args", "city", "days", "id", "type", "extra"});
        const bool is_protocol = key == "id" || key == "type";
        const std::string value =
            is_protocol
                ? drawn({"\"function\"", "5"})
                : fmt::format(fmt::runtime(drawn({"{{\"city\": \"{}\"}}", "\"{}\"", "[\"{}\"]", "{{\"{}\": {{}}}}"})),
                              words.back());
        if (is_protocol) words.pop_back();
        const std::string member = fmt::format("\"{}\": {}", key, value);
        members = draw() % 2 ? members + ", " + member : member + ", " + members;
      }
      const std::string text = std::string(row.list_begin) + (row.array ? "[" : "") + std::string(row.call_begin) +
                               "{" + members + "}" + std::string(row.call_end) + (row.array ? "]" : "") +
                               std::string(row.list_end);
      SCOPED_TRACE(text);
      const testing::Answer answer = testing::read_whole(row, text, {.tools = &kTools}, true);
      EXPECT_EQ(answer.fault, "");
      std::string seen = answer.content;
      for (const auto& call : answer.calls) seen += call.arguments;
      for (const auto& warning : answer.warnings) seen += warning;
      for (const std::string& word : words) EXPECT_NE(seen.find(word), std::string::npos) << testing::described(answer);
    }
  }
}

// A complete call that ends an answer within its reasoning is a call. Calls in reasoning that has an end, or that goes
// on, are reasoning.
TEST(OddCalls, ACallAtTheEndOfOpenReasoning) {
  for (const CallFormat& row : call_formats()) {
    if (row.syntax == CallSyntax::kNone || row.syntax == CallSyntax::kChannel || row.unmarked) continue;
    SCOPED_TRACE(row.name);
    const std::string arguments = row.syntax == CallSyntax::kTagged   ? row.parameter_text("city", "Paris", true)
                                  : row.syntax == CallSyntax::kPython ? "city='Paris'"
                                  : row.syntax == CallSyntax::kGemma
                                      ? fmt::format("{{city:{0}Paris{0}}}", row.string_mark)
                                      : R"({"city": "Paris"})";
    const std::string call = call_text(row, arguments), thought = "I call.\n";
    const std::string open = std::string(row.think_begin) + thought;
    Desk desk(std::string(row.name).c_str());
    check_apis(desk, open + call, R"({"city": "Paris"})");
    check_apis(desk, open + call + "\n", R"({"city": "Paris"})");
    const testing::Answer two = testing::read_whole(row, open + call + "\n" + call, {.tools = &kTools});
    EXPECT_EQ(two.calls.size(), 2u) << testing::described(two);
    if (row.call_ends_reasoning) continue;
    for (const std::string& rest :
         {call + " No.", call + std::string(row.think_end) + "Yes.", call.substr(0, call.find("Paris"))}) {
      const testing::Answer prose = testing::read_whole(row, open + rest, {.tools = &kTools});
      EXPECT_TRUE(prose.calls.empty()) << testing::described(prose);
      EXPECT_EQ(prose.fault, "");
      EXPECT_TRUE(prose.reasoning.starts_with(thought.substr(0, 7))) << testing::described(prose);
    }
  }
}

// A stop string within reasoning or a call does not end the answer.
TEST(OddCalls, StopStringsEndOnlyContent) {
  Desk desk("hermes");
  const std::string text =
      R"(<think>Paris?</think><tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>)";
  JsonValue body = kChatBody;
  body["stop"] = "Paris";
  for (const bool stream : {false, true}) {
    const std::string answer = desk.ask("/v1/chat/completions", body, text, stream)->body();
    const Seen seen = stream ? chat_seen(events_of(answer), "delta") : chat_seen({JsonValue::parse(answer)}, "message");
    EXPECT_EQ(seen.reasoning, "Paris?");
    EXPECT_EQ(seen.finish, "tool_calls");
    ASSERT_EQ(seen.calls.size(), 1u);
    EXPECT_EQ(seen.calls[0].second, R"({"city": "Paris"})");
    const std::string spoken =
        desk.ask("/v1/chat/completions", body, "<think>Paris?</think>In Paris now", stream)->body();
    const Seen stopped =
        stream ? chat_seen(events_of(spoken), "delta") : chat_seen({JsonValue::parse(spoken)}, "message");
    EXPECT_EQ(stopped.content, "In ");
    EXPECT_EQ(stopped.finish, "stop");
  }
}

// logprobs.content spells message.content.
TEST(OddCalls, LogprobsSpellTheContent) {
  Desk desk("hermes");
  const std::string text = "<think>Hm.</think>Yes. " + call_text(*find_call_format("hermes"), R"({"city": "Paris"})");
  JsonValue body = kChatBody;
  body["logprobs"] = true;
  for (const bool stream : {false, true}) {
    std::string spelled, content;
    const std::string answer = desk.ask("/v1/chat/completions", body, text, stream)->body();
    for (const JsonValue& chunk : stream ? events_of(answer) : std::vector<JsonValue>{JsonValue::parse(answer)}) {
      if (chunk["choices"].empty()) continue;
      const JsonValue& choice = chunk["choices"][0];
      content += member_text(choice[stream ? "delta" : "message"], "content");
      if (!choice.contains("logprobs") || choice["logprobs"].is_null()) continue;
      for (const JsonValue& token : choice["logprobs"]["content"]) spelled += token["token"].get<std::string>();
    }
    EXPECT_EQ(content, "Yes.");
    EXPECT_EQ(spelled, content);
  }
}

// Texts that a model may write into a file.
constexpr const char* kOddTexts[] = {
    "",
    " ",
    "x",
    "two\nlines",
    "a \"quoted\" word",
    "it's",
    "back\\slash \\n \\u0041",
    "{\"name\": \"now\", \"arguments\": {}}",
    "{\"a\": [1, 2",
    "}}]])",
    "<b>bold</b> &amp;",
    "日本語 \U0001F600",
    "null",
    "True",
    "007",
    "1e5",
    "[1, 2]",
    "</parameter> inside",
    "a </arg_value> b </tool_call> c <tool_call> d",
    "<parameter=x>\n1\n</parameter>\nend",
    "<arg_key>x</arg_key>",
    "x</function>y",
    "tab\tand \x7f",
    "# Title\n\n```json\n{}\n```\nend",
    "C:\\Users\\new",
    "{{ jinja }} {% if %}",
    "end of line \\",
    "', 'city': '",
    "<think>no</think>",
    "Paris, France; 5 > 4",
};

// The text is an argument of a call in the family's own syntax. Each API gives the client exactly this text.
TEST(OddCalls, AnyTextIsAnArgument) {
  for (const CallFormat& row : call_formats()) {
    if (row.syntax == CallSyntax::kNone) continue;
    Desk desk(std::string(row.name).c_str());
    for (const char* text : kOddTexts) {
      const std::string_view trimmed = text;
      // The syntax of these families cannot say these texts.
      const auto spells = [&](std::string_view marker) {
        return !trim(marker).empty() && trimmed.find(trim(marker)) != trimmed.npos;
      };
      if (row.syntax == CallSyntax::kChannel && spells("<|")) continue;
      const JsonValue meant = {{"city", text}, {"days", 2}};
      const JsonValue call = {{"function", {{"name", "get_weather"}, {"arguments", meant}}}};
      check_apis(desk, written_calls(row, JsonValue::array({call})), meant.dump());
    }
  }
}

// Slips of models in calls between tags, and in other families' forms.
TEST(OddCalls, SlipsInTagsAreMended) {
  struct Slip {
    const char *format, *text, *meant;
  };
  constexpr Slip kSlips[] = {
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</function>\n</tool_call>",
       R"({"city": "Paris", "days": 3})"},
      {"seed_oss",
       "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris\n<parameter=days>3</parameter>\n</function>\n"
       "</seed:tool_call>",
       R"({"city": "Paris", "days": 3})"},
      {"qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</function>\n</tool_call>",
       R"({"city": "Paris"})"},
      {"glm", "<tool_call>get_weather\n<arg_key><arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
       R"({"city": "Paris"})"},
      {"mistral", R"([TOOL_CALLS]get_weather[ARGS]{"city": "Paris"})", R"({"city": "Paris"})"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>\"{"
       "\\\"city\\\": "
       "\\\"Paris\\\"}\"<|tool_call_end|><|tool_calls_section_end|>",
       R"({"city": "Paris"})"},
  };
  for (const auto& [format, text, meant] : kSlips) {
    Desk desk(format);
    check_apis(desk, text, meant);
  }
}

// With a strict tool and a free choice, a model may write all that the parser reads.
TEST(OddCalls, StrictToolsLeaveReasoningFree) {
  for (const CallFormat& row : call_formats()) {
    if (row.syntax == CallSyntax::kNone || row.syntax == CallSyntax::kChannel) continue;
    SCOPED_TRACE(row.name);
    Desk desk(std::string(row.name).c_str());
    JsonValue body = kChatBody;
    body["tools"][0]["function"]["strict"] = true;
    const std::string text = std::string(row.think_begin) + "Hm." + std::string(row.think_end) + "Yes.";
    const Seen seen =
        chat_seen({JsonValue::parse(desk.ask("/v1/chat/completions", body, text, false)->body())}, "message");
    EXPECT_EQ(seen.reasoning, "Hm.");
    EXPECT_EQ(seen.content, "Yes.");
  }
}

// Clients send system messages anywhere and calls without ids. A template that refuses them gets what it takes.
constexpr const char* kGuards =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be "
    "at the "
    "beginning.') }}{% endif %}{% for c in m.tool_calls %}{% if c.id is not defined or c.id|length != 9 %}{{ "
    "raise_exception('ids of 9') }}{% endif %}{{ c.function|tojson }}{% endfor %}{% if m.role == 'tool' and "
    "(m.tool_call_id is not defined or m.tool_call_id|length != 9) %}{{ raise_exception('ids of 9') }}{% endif %}[{{ "
    "m.role "
    "}}]{{ m.content }}{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}";

TEST(OddCalls, HistoriesReachTemplatesThatRefuseThem) {
  Desk desk("hermes", ChatTemplate(kGuards, "", ""));
  const auto ask = [&](const char* path, const char* body) {
    return JsonValue::parse(desk.ask(path, JsonValue::parse(body), "Yes.", false)->body());
  };
  const JsonValue message = ask("/v1/messages", R"({"system": "top", "messages": [{"role": "user", "content": "task"},
      {"role": "system", "content": "Agents: A, B"}]})");
  EXPECT_EQ(desk.asked(), "[system]top[user]task[user]Agents: A, B");
  EXPECT_EQ(message["warnings"].size(), 1u);
  const JsonValue response = ask("/v1/responses", R"({"instructions": "top", "input": [
      {"role": "developer", "content": "dev"}, {"role": "user", "content": "hi"}]})");
  EXPECT_EQ(desk.asked(), "[system]top\n\ndev[user]hi");
  EXPECT_EQ(response["warnings"].size(), 1u);
  const JsonValue chat = ask("/v1/chat/completions", R"({"messages": [{"role": "system", "content": "A"},
      {"role": "system", "content": "B"}, {"role": "user", "content": "C"}, {"role": "system", "content": "D"}]})");
  EXPECT_EQ(desk.asked(), "[system]A\n\nB[user]C[user]D");
  EXPECT_EQ(chat["warnings"].size(), 1u);
  ask("/api/chat",
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "now", "arguments": {}}}]}, {"role": "tool", "tool_name": "now", "content": "12:00"}]})");
  EXPECT_NE(desk.asked().find("[tool]12:00"), std::string::npos);
  ask("/v1/messages", R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [
      {"type": "tool_use", "id": "toolu_01", "name": "now", "input": {}}]}, {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_01", "content": "12:00"}]}]})");
  EXPECT_NE(desk.asked().find("[tool]12:00"), std::string::npos);
}

}  // namespace
}  // namespace ingot
