// ChatTemplate: renders a conversation in the format on which a model was trained, with the model's own Jinja template.
//
// Messages and tools are JSON in OpenAI's format. The template gets the same variables as from Hugging Face's
// apply_chat_template: messages, tools, documents, add_generation_prompt, bos_token and eos_token. Published templates
// support only parts of OpenAI's format. So the constructor tests the template with small conversations, and render()
// adapts the input:
//   - OpenAI's clients send tool-call arguments as JSON text. The text becomes an object if the template would quote it
//     a second time or refuse it; an object becomes text if the template refuses objects.
//   - Content made of parts becomes one text if the template does not support parts. A text becomes a part if the
//     template supports only parts.
//   - Content that is null becomes "" if the template would fail or print "None". Absent content becomes "" in the same
//     case, or null if the template supports only null.
//   - A system message is merged into the first user message if the template refuses or drops it. If the template
//     refuses or drops further system messages, those at the front become one, and later ones become user messages in
//     place. Neighbouring user messages become one if the template refuses or drops one of them. The role "developer"
//     becomes "system" if the template does not show it.
//   - Calls and results without ids get ids. Ids become ids of 9 letters and digits if the template refuses others.
//   - Absent tools become an empty list if the template needs a list.
//   - Tools that the template does not show are described in the system message, and calls and results become text
//     (generic_tools.h). Calls that the template does not show become text in the syntax of the model's family.
//   - An image is a part {"type": "image"}, a recording a part {"type": "audio"}, for which the template writes the
//     model's placeholder. If the template shows none, MediaFacts::mark stands where each was. If it shows none in
//     results of tools, those move into a user message after the results.
// Input that the template supports is passed unchanged.
#pragma once
#include <array>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/template.h"
#include "text/media_kind.h"

namespace ingot {

class ChatTemplate {
 public:
  // If Template::parse rejects `source`, logs a warning and uses ChatML instead.
  ChatTemplate(std::string source, std::string bos, std::string eos, TemplateLimits limits = {},
               TemplateClock clock = {});

  // <|im_start|>role ... <|im_end|>: for models without a template.
  static ChatTemplate chatml_default();

  // `messages`: an array of objects; `tools`: an array or null; `variables`: an object or null with more variables for
  // the template (enable_thinking, reasoning_effort, documents, ...). The result contains the special tokens that the
  // template writes, including a BOS if it writes one. `last_edit` changes the adapted messages, the tools and the
  // variables just before rendering. Throws Error, which names the field, for malformed messages or a reserved
  // variable. Throws Error with the template's line for input that the template refuses.
  using Edit = std::function<void(nlohmann::ordered_json&)>;
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     bool add_generation_prompt, const nlohmann::ordered_json& variables,
                     const Edit& last_edit = {}) const;

  // Allows images or recordings in messages. placeholder: the text that templates of the model write for one.
  void read(MediaKind kind, std::string placeholder);
  bool reads(MediaKind kind) const { return !placeholder(kind).empty(); }
  const std::string& placeholder(MediaKind kind) const { return media_[static_cast<size_t>(kind)].placeholder; }

  // What a user should know about changes that render() makes to these messages; empty if there is nothing.
  std::string change_of(const nlohmann::ordered_json& messages) const;

  const std::string& source() const { return source_; }
  // What the template writes at the begin of an answer: "<|im_start|>assistant\n". Empty if the template fails.
  const std::string& answer_prefix() const { return answer_prefix_; }
  // Whether the template uses this variable (`tools`, `enable_thinking`).
  bool mentions(std::string_view name) const { return template_.mentions(name); }

 private:
  // Changes to input that the template does not support.
  struct Adapt {
    bool arguments_to_object = false, arguments_to_text = false;
    bool parts_to_text = false, text_to_parts = false;
    bool null_to_empty = false, absent_to_null = false;
    bool system_to_user = false, merges_systems = false, late_systems_to_users = false, merges_users = false;
    bool developer_to_system = false;
    bool short_ids = false;      // ids must have 9 letters and digits
    bool keeps_results = false;  // the template shows messages of the role "tool"
    bool null_tools_to_empty = false;
    bool tools_to_system = false, calls_to_text = false;
  };
  // How messages may have a kind of media.
  struct Medium {
    std::string placeholder;  // empty: they have none
    bool to_text = false, moves_from_tools = false;
  };

  Adapt probe() const;
  std::string find_answer_prefix() const;
  void probe_content(Adapt& adapt) const;
  void probe_turns(Adapt& adapt) const;
  void probe_ids(Adapt& adapt, const nlohmann::ordered_json& tools) const;
  void probe_tool_calls(Adapt& adapt) const;
  void probe_tools(Adapt& adapt, const nlohmann::ordered_json& tools) const;
  nlohmann::ordered_json adapted(nlohmann::ordered_json messages, const nlohmann::ordered_json& tools) const;
  std::string render_as_is(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                           bool add_generation_prompt, const nlohmann::ordered_json& variables) const;
  std::optional<std::string> attempt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;

  std::string source_, bos_, eos_, answer_prefix_;
  std::array<Medium, kMediaKinds.size()> media_;
  TemplateLimits limits_;
  TemplateClock clock_;
  Template template_;
  Adapt adapt_;
};

}  // namespace ingot
