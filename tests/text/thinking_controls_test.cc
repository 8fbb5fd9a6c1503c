// Which of the variables for thinking a template obeys.
#include "text/thinking_controls.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

ThinkingControls controls_of(const std::string& end) {
  const std::string messages = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  return thinking_controls(ChatTemplate(messages + end, "", ""));
}

TEST(ThinkingControls, OnlyWhatChangesThePrompt) {
  const ThinkingControls plain = thinking_controls(ChatTemplate::chatml_default());
  EXPECT_EQ(plain.switch_name, "");
  EXPECT_TRUE(plain.efforts.empty());

  const ThinkingControls on_off = controls_of("{% if enable_thinking is false %}<think></think>{% endif %}");
  EXPECT_EQ(on_off.switch_name, "enable_thinking");
  EXPECT_TRUE(on_off.efforts.empty());

  EXPECT_EQ(controls_of("{% if thinking %}<think>{% endif %}").switch_name, "thinking");
  EXPECT_EQ(controls_of("{% for m in messages %}{{ m.thinking }}{% endfor %}").switch_name, "")
      << "a member of messages";
  EXPECT_EQ(controls_of("{% set enable_thinking = true %}{{ enable_thinking }}").switch_name, "");

  using Efforts = std::vector<std::string>;
  EXPECT_EQ(controls_of("{{ reasoning_effort | default('medium') }}").efforts,
            (Efforts{"minimal", "low", "medium", "high"}));
  EXPECT_EQ(controls_of("{% if reasoning_effort == 'high' %}much{% else %}little{% endif %}").efforts,
            (Efforts{"low", "high"}));
  EXPECT_EQ(controls_of("{% if reasoning_effort not in ['low', 'high'] %}{{ raise_exception('no') }}{% endif %}"
                        "{{ reasoning_effort }}")
                .efforts,
            (Efforts{"low", "high"}));
  EXPECT_TRUE(controls_of("{% if reasoning_effort %}think{% endif %}").efforts.empty());
}

}  // namespace
}  // namespace ingot
