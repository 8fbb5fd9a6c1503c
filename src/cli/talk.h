// Talk: a conversation as messages in OpenAI's shape. It can be taken back turn by turn, and kept in a file.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

class Talk {
 public:
  explicit Talk(const std::string& system) { reset(system); }

  // Forgets all messages but the system prompt, which is absent if it is empty.
  void reset(const std::string& system);
  std::string system() const;

  // Removes the last question and all that followed it. Returns the question; nullopt if there is none.
  std::optional<std::string> undo();
  // The content of the last message of that role; nullopt if there is none.
  std::optional<std::string> last(std::string_view role) const;
  int n_questions() const;

  // The file is a JSON array of messages. load() leaves the talk as it was when it throws Error.
  void load(const std::string& path);
  void save(const std::string& path) const;

  nlohmann::ordered_json messages;
};

// $XDG_STATE_HOME/ingot/chat.json or ~/.local/state/ingot/chat.json; "" when neither variable is set.
std::string last_talk_path();

}  // namespace ingot
