// ChatTemplate: a checkpoint's template for conversations, with the variables that Hugging Face gives it. A template that
// does not parse is a warning at load, and ChatML takes its place; what it refuses at render time is an Error to the caller.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/template.h"

namespace ingot {

class ChatTemplate {
 public:
  // bos and eos are the texts of those tokens, empty where the model has none.
  ChatTemplate(std::string source, std::string bos, std::string eos);
  static ChatTemplate chatml_default();

  // messages: [{"role", "content", ...}]; tools: an array, or null; variables: an object of further names for the template
  // (enable_thinking, documents, ...), which win over the standard ones.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools, bool add_generation_prompt,
                     const nlohmann::ordered_json& variables) const;

  bool is_fallback() const { return is_fallback_; }  // the checkpoint's own did not parse
  bool mentions(std::string_view name) const { return template_.mentions(name); }

 private:
  std::string bos_, eos_;
  bool is_fallback_ = false;
  Template template_;
};

}  // namespace ingot
