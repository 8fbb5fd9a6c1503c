// ingot template: renders a conversation with a chat template, for template authors.
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/options/commands.h"
#include "cli/options/options.h"
#include "io/json.h"
#include "model/loader.h"
#include "text/chat.h"

namespace ingot {
namespace {

using Object = nlohmann::ordered_json;

struct TemplateVerb {
  std::string model, template_file, messages, tools, bos, eos;
  HubFlags hub;
  std::vector<std::string> settings;
  bool no_generation_prompt = false;
};

Object read_json_file(const std::string& path) {
  const std::string text = read_file(path);
  walk_json(text, path, [](const JsonEvent&) {});  // reports the position of an error
  return Object::parse(text);
}

// Parses KEY=VALUE. The value is JSON if it parses as JSON, otherwise a string.
Object variables_of(const std::vector<std::string>& settings) {
  Object variables = Object::object();
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == 0 || equals == setting.npos)
      throw UsageError("--set wants KEY=VALUE, such as enable_thinking=false; got '{}'", printable(setting, 64));
    const std::string value = setting.substr(equals + 1);
    Object parsed = Object::parse(value, nullptr, false);
    variables[setting.substr(0, equals)] = parsed.is_discarded() ? Object(value) : std::move(parsed);
  }
  return variables;
}

// The template and the texts of BOS and EOS for the template.
struct Source {
  std::string text, bos, eos;
};

Source read_source(const TemplateVerb& o) {
  Source source{.bos = o.bos, .eos = o.eos};
  if (!o.template_file.empty()) source.text = read_file(o.template_file);
  if (o.model.empty()) {
    if (o.template_file.empty())
      throw UsageError("no template is given: name a model, or give a template with --template-file");
    return source;
  }
  const auto checkpoint = open_model_file({.path = o.model, .hub = o.hub});
  const auto tokenizer = checkpoint->tokenizer();
  if (source.bos.empty() && tokenizer->bos()) source.bos = tokenizer->token_text(*tokenizer->bos());
  if (source.eos.empty() && tokenizer->eos()) source.eos = tokenizer->token_text(*tokenizer->eos());
  if (!o.template_file.empty()) return source;
  const auto text = chat_template_source(*checkpoint);
  if (!text) throw Error("{}: this model has no chat template: give one with --template-file", printable(o.model));
  source.text = *text;
  return source;
}

void render(const TemplateVerb& o) {
  const Source source = read_source(o);
  const Object messages = read_json_file(o.messages), tools = o.tools.empty() ? Object() : read_json_file(o.tools);
  Template::parse(source.text);  // throws the parse error here; ChatTemplate would fall back to ChatML
  const ChatTemplate chat(source.text, source.bos, source.eos);
  const std::string text = chat.render(messages, tools, !o.no_generation_prompt, variables_of(o.settings));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_template(CLI::App& app) {
  auto o = std::make_shared<TemplateVerb>();
  CLI::App* command = app.add_subcommand("template", "Render a conversation with a model's chat template");
  command->add_option(
      "MODEL,-m,--model,--hf-repo", o->model,
      "model whose template is used: GGUF file, model directory, or ORG/REPO[:QUANT] of the Hub (also -hf)");
  command->add_option("--template-file,--chat-template-file", o->template_file,
                      "use the template in this file instead");
  command
      ->add_option("--messages", o->messages,
                   "file with the conversation: a JSON array of {role, content, ...}; - for standard input")
      ->required();
  command->add_option("--tools", o->tools, "file with the tools: a JSON array in the format of OpenAI's API");
  command->add_option("--set", o->settings,
                      "set a template variable: KEY=VALUE, where the value is JSON or text (repeatable)");
  command->add_option("--bos", o->bos, "value of bos_token; default: the model's");
  command->add_option("--eos", o->eos, "value of eos_token; default: the model's");
  command->add_flag("--no-generation-prompt", o->no_generation_prompt, "leave out the generation prompt at the end");
  add_hub_options(*command, o->hub);
  command->footer(
      "Examples:\n  ingot template model.gguf --messages chat.json --tools tools.json --set enable_thinking=false\n"
      "  ingot template --template-file chat_template.jinja --messages - < chat.json");
  command->callback([o] { render(*o); });
}

}  // namespace ingot
