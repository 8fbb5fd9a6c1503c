#include "cli/chat/talk.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "cli/chat/media.h"
#include "io/json.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr size_t kMaxTalkBytes = size_t{64} << 20;

// Texts, images and recordings, as /image and /audio put them into a question.
bool has_parts(const JsonValue& content) {
  return content.is_array() && std::ranges::all_of(content, [](const JsonValue& part) {
           if (!part.is_object() || !part.contains("type")) return false;
           return is_media_part(part) || (part["type"] == "text" && part.value("text", JsonValue()).is_string());
         });
}

bool is_message(const JsonValue& m) {
  static const std::set<std::string, std::less<>> roles = {"system", "developer", "user", "assistant", "tool"};
  if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) return false;
  const bool has_text = m.contains("content") &&
                        (m["content"].is_string() || (m["role"] == "user" && has_parts(m["content"])));
  return roles.contains(m["role"].get<std::string>()) &&
         (has_text || (m["role"] == "assistant" && m.contains("tool_calls")));
}

}  // namespace

void Talk::reset(const std::string& system) {
  messages = JsonValue::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
}

std::string Talk::system() const {
  return messages.empty() || messages[0]["role"] != "system" ? "" : messages[0]["content"].get<std::string>();
}

std::optional<std::string> Talk::undo() {
  size_t at = messages.size();
  while (at > 0 && messages[at - 1]["role"] != "user") --at;
  if (at == 0) return std::nullopt;
  const std::string question = text_of_message(messages[at - 1]);
  messages.erase(messages.begin() + static_cast<ptrdiff_t>(at - 1), messages.end());
  return question;
}

std::optional<std::string> Talk::last(std::string_view role) const {
  for (size_t i = messages.size(); i > 0; --i) {
    const JsonValue& message = messages[i - 1];
    if (message["role"] == role && message.contains("content") && !message["content"].is_null())
      return text_of_message(message);
  }
  return std::nullopt;
}

int Talk::n_questions() const {
  return static_cast<int>(std::ranges::count_if(messages, [](const JsonValue& m) { return m["role"] == "user"; }));
}

void Talk::load(const std::string& path) {
  const std::string text = read_file(path, kMaxTalkBytes);
  walk_json(text, path, [](const JsonEvent&) {});  // reports the position of an error, and limits the depth
  JsonValue given = JsonValue::parse(text);
  if (!given.is_array()) throw Error("{}: must be a JSON array of messages, as /save writes it", printable(path));
  for (size_t i = 0; i < given.size(); ++i)
    if (!is_message(given[i]))
      throw Error("{}: [{}] is not a message: a message needs a role and text as its content", printable(path), i);
  messages = std::move(given);
}

void Talk::save(const std::string& path) const {
  const std::string text = messages.dump(2, ' ', false, JsonValue::error_handler_t::replace) + "\n";
  write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, FileReaders::kOwner);
}

std::string last_talk_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string state = variable("XDG_STATE_HOME"); state.starts_with('/')) return state + "/ingot/chat.json";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.local/state/ingot/chat.json";
}

}  // namespace ingot
