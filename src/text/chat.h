// ChatTemplate: a conversation as the text that a model was trained on, through the model's own Jinja template.
//
// Messages and tools are JSON in OpenAI's shape and reach the template as Hugging Face's apply_chat_template passes
// them, with the variables messages, tools, documents, add_generation_prompt, bos_token and eos_token. Templates in the
// wild accept only some of what that shape allows, so at construction the template is tried on small conversations, and
// render() then adapts:
//   - tool-call arguments come as JSON text from OpenAI's clients: they become an object where the text would be quoted
//     a second time or refused, and text where an object is refused;
//   - content made of parts becomes one text where parts are not understood, and a text becomes a part where only parts
//     are;
//   - content that is null becomes "" where the template would fail or print "None", and content that is absent
//     likewise, or null where only that is understood;
//   - a system message joins the first user message where the template refuses or drops it;
//   - no tools become an empty list of them where the template needs a list;
//   - tools that the template does not show become part of the system message, in words, and calls and results text
//     (generic_tools.h); so do calls that it does not show.
// Where the template copes by itself the messages are passed as they are.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/template.h"

namespace ingot {

class ChatTemplate {
 public:
  // A template that is broken (Template::parse throws) is reported by log_warn, and ChatML is used in its place.
  ChatTemplate(std::string source, std::string bos, std::string eos, TemplateLimits limits = {},
               TemplateClock clock = {});

  // <|im_start|>role ... <|im_end|>: for models that bring no template.
  static ChatTemplate chatml_default();

  // `messages`: an array of objects; `tools`: an array or null; `variables`: an object or null with more variables for
  // the template (enable_thinking, reasoning_effort, documents, ...). The text holds what special tokens the template
  // writes, a BOS too if it writes one. `last_edit` runs on the messages, tools and variables just before the template
  // sees them. Throws Error that names the field for malformed messages or a reserved variable, and with the template's
  // line for what the template refuses.
  using Edit = std::function<void(nlohmann::ordered_json&)>;
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     bool add_generation_prompt, const nlohmann::ordered_json& variables,
                     const Edit& last_edit = {}) const;

  const std::string& source() const { return source_; }
  // Does the template ask for this variable (`tools`, `enable_thinking`)?
  bool mentions(std::string_view name) const { return template_.mentions(name); }

 private:
  // What the template cannot take as it comes.
  struct Adapt {
    bool arguments_to_object = false, arguments_to_text = false;
    bool parts_to_text = false, text_to_parts = false;
    bool null_to_empty = false, absent_to_null = false;
    bool system_to_user = false;
    bool null_tools_to_empty = false;
    bool tools_to_system = false, calls_to_text = false;
  };

  Adapt probe() const;
  void probe_content(Adapt& adapt) const;
  void probe_tool_calls(Adapt& adapt) const;
  void probe_tools(Adapt& adapt, const nlohmann::ordered_json& tools) const;
  nlohmann::ordered_json adapted(nlohmann::ordered_json messages, const nlohmann::ordered_json& tools) const;
  std::string render_as_is(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                           bool add_generation_prompt, const nlohmann::ordered_json& variables) const;
  std::optional<std::string> attempt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;

  std::string source_, bos_, eos_;
  TemplateLimits limits_;
  TemplateClock clock_;
  Template template_;
  Adapt adapt_;
};

}  // namespace ingot
