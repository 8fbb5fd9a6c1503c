#include "text/chat.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

Template parse_or_chatml(const std::string& source, bool& is_fallback) {
  try {
    return Template::parse(source);
  } catch (const Error& error) {
    log_warn("the model's chat template does not parse ({}); using ChatML", error.what());
    is_fallback = true;
    return Template::parse(kChatMl);
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string bos, std::string eos)
    : bos_(std::move(bos)), eos_(std::move(eos)), template_(parse_or_chatml(source, is_fallback_)) {}

ChatTemplate ChatTemplate::chatml_default() { return ChatTemplate(std::string(kChatMl), "", ""); }

std::string ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt, const Json& variables) const {
  Json all = {{"messages", messages}, {"tools", tools}, {"add_generation_prompt", add_generation_prompt},
              {"bos_token", bos_}, {"eos_token", eos_}};
  all.update(variables);
  return template_.render(all);
}

}  // namespace ingot
