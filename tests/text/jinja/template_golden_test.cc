// Template compared with jinja2, which is set up like Hugging Face's apply_chat_template
// (tools/template_goldens/make.py). The inputs are each fixture template with each conversation, and small templates,
// written by hand and random, with fixed variables.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja/template.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(INGOT_TEST_DATA) + "/templates/" + name, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::tm golden_clock() {
  std::tm time{};  // 2024-07-26 14:05:09, a Friday
  time.tm_year = 124, time.tm_mon = 6, time.tm_mday = 26, time.tm_hour = 14, time.tm_min = 5, time.tm_sec = 9;
  time.tm_wday = 5, time.tm_yday = 207;
  return time;
}

struct Rendering {
  std::optional<std::string> text;
  std::string error;
};

Rendering rendering_of(const std::string& source, const Json& variables) {
  try {
    return {Template::parse(source).render(variables, {}, golden_clock), ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

void expect_same(const Rendering& got, const Json& wanted, const std::string& what) {
  if (wanted.is_null()) {
    EXPECT_FALSE(got.text) << what << "\njinja2 refuses it; here it gives: " << got.text.value_or("");
    EXPECT_NE(got.error.find("line "), std::string::npos) << what << ": the error names no line: " << got.error;
  } else {
    EXPECT_EQ(got.text.value_or("refused: " + got.error), wanted.get<std::string>()) << what;
  }
}

// The variables that apply_chat_template passes.
Json variables_of(const Json& conversation) {
  Json variables = {{"messages", conversation.at("messages")},
                    {"tools", conversation.value("tools", Json())},
                    {"documents", nullptr},
                    {"add_generation_prompt", conversation.value("add_generation_prompt", true)},
                    {"bos_token", "<s>"},
                    {"eos_token", "</s>"}};
  const Json more = conversation.value("set", Json::object());
  for (const auto& [name, value] : more.items()) variables[name] = value;
  return variables;
}

TEST(TemplateGoldens, ChatTemplates) {
  const Json conversations = Json::parse(read_file("conversations.json")),
             rendered = Json::parse(read_file("rendered.json"));
  ASSERT_GE(rendered.size(), 9u);
  for (const auto& [name, wanted] : rendered.items()) {
    const std::string source = read_file(name);
    ASSERT_EQ(wanted.size(), conversations.size());
    for (const Json& conversation : conversations) {
      const std::string title = conversation.at("name");
      expect_same(rendering_of(source, variables_of(conversation)), wanted.at(title), name + " of " + title);
    }
  }
  RecordProperty("compared", std::to_string(rendered.size() * conversations.size()));  // for tools/models_table.py
}

TEST(TemplateGoldens, Snippets) {
  const Json snippets = Json::parse(read_file("snippets.json"));
  ASSERT_GE(snippets.at("cases").size(), 700u);
  for (const Json& one : snippets.at("cases")) {
    const std::string source = one.at(0);
    expect_same(rendering_of(source, snippets.at("variables")), one.at(1), source);
  }
  RecordProperty("compared", std::to_string(snippets.at("cases").size()));
}

}  // namespace
}  // namespace ingot
