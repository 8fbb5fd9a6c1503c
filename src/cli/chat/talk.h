// Talk: a conversation as messages in OpenAI's form. Turns can be undone one by one, and a talk can be saved to a file.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ingot {

class Talk {
 public:
  explicit Talk(const std::string& system) { reset(system); }

  // Removes all messages and starts with the system prompt `system`, if not empty.
  void reset(const std::string& system);
  std::string system() const;

  // Removes the last question and all following messages. Returns the question; nullopt if there is none.
  std::optional<std::string> undo();
  // The content of the last message with this role; nullopt if there is none.
  std::optional<std::string> last(std::string_view role) const;
  int n_questions() const;

  // The file is a JSON array of messages. If load() throws Error, the talk is unchanged.
  void load(const std::string& path);
  void save(const std::string& path) const;

  nlohmann::ordered_json messages;
};

// $XDG_STATE_HOME/ingot/chat.json or ~/.local/state/ingot/chat.json; "" when neither variable is set.
std::string last_talk_path();

}  // namespace ingot
