// Bytes as a template. The template is rendered with fixed variables and, if a NUL follows, with the messages after the
// NUL. Rendering must end soon with UTF-8 text, or with an Error in one printable line. In a model's chat template, no
// text of a user may become a control token.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "text/chat_encode.h"
#include "text/tokenizers/tokenizer_specs.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// Nearly the variables of tools/template_goldens/snippets.py, and those of a conversation.
const Json& fixed_variables() {
  static const Json variables = Json::parse(R"({
    "s": "Hello World", "u": "h\u00e9llo \ud83d\udc4b \u00df", "e": "", "ws": " \t a b\u00a0\n",
    "n": 7, "z": 0, "m": -3, "f": 2.5,
    "big": 18446744073709551615, "t": true, "b": false, "no": null, "l": [3, 1, 2], "ls": ["b", "A", "c"], "el": [],
    "d": {"a": 1, "B": {"c": [1, 2]}, "items": 5}, "ed": {}, "nested": [[1, 2], [3, [4, "q"]]],
    "users": [{"name": "Ann", "age": 31, "on": true}, {"name": "bob", "age": 25, "on": false}],
    "messages": [{"role": "system", "content": "Be <b>."}, {"role": "user", "content": [{"type": "text", "text": "x"}]},
                 {"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1.5, "y"]}}}]}],
    "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  return variables;
}

const Tokenizer& tokenizer() {
  static const auto owned = [] {
    auto spec = testing::byte_level_spec();
    for (const char* name : {"<|im_start|>", "<|im_end|>", "<s>", "</s>"})
      testing::add_token(*spec, name, TokenType::kControl);
    return spec;
  }();
  static const std::unique_ptr<Tokenizer> made = Tokenizer::create(owned->view());
  return *made;
}

// Runs f. An Error is allowed if its message is printable.
template <class F>
void may_refuse(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c) CHECK(static_cast<unsigned char>(*c) >= 0x20);
  }
}

void check_template(std::string_view source) {
  may_refuse([&] {
    const Template parsed = Template::parse(source);
    const TemplateLimits limits;
    const std::string text = parsed.render(fixed_variables(), limits);
    CHECK(text.size() <= limits.output_bytes);
    CHECK(is_valid_utf8(text));
  });
}

size_t n_controls(const ChatTemplate& chat, const Json& messages) {
  const auto ids = encode_chat(tokenizer(), chat, messages, nullptr, nullptr);
  return std::count_if(ids.begin(), ids.end(), [](int32_t id) { return tokenizer().is_special(id); });
}

// ChatML does not support tools, so consecutive tool results share a turn (generic_tools.h).
size_t n_turns(const Json& messages) {
  const auto is_result = [](const Json& message) { return message.value("role", Json("")) == "tool"; };
  size_t n = 0;
  for (size_t i = 0; i < messages.size(); ++i) n += i == 0 || !is_result(messages[i]) || !is_result(messages[i - 1]);
  return n;
}

// A hostile template may write any control tokens. With ChatML, user text must not change the number of control tokens.
void check_chat(std::string_view source, std::string_view text) {
  const Json messages = Json::parse(text, nullptr, false);
  if (messages.is_discarded()) return;
  const ChatTemplate hostile(std::string(source), "<s>", "</s>", {.fuel = 100'000});
  may_refuse([&] { n_controls(hostile, messages); });
  static const ChatTemplate chatml = ChatTemplate::chatml_default();
  may_refuse([&] {
    const size_t n = n_controls(chatml, messages);  // throws if `messages` is not a conversation
    CHECK(n == 2 * n_turns(messages) + 1);
  });
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  static const bool quiet = [] {
    set_log_level(LogLevel::kOff);
    return true;
  }();
  CHECK(quiet);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  check_template(input.substr(0, cut));
  if (cut != input.npos) check_chat(input.substr(0, cut), input.substr(cut + 1));
  return 0;
}
