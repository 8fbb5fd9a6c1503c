// Damaged config.json files (tests/model/hf_config_test.cc has what each key may say): every truncation, and every byte
// changed, are refused by Error or read as a config whose numbers are in range.
#include "io/hf_config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "io/refused.h"

namespace ingot {
namespace {

const std::string kConfig = INGOT_TEST_DATA "/hf/qwen3_tied_yarn/config.json";

HfConfig parse(const std::string& text) { return parse_hf_config(JsonDocument::parse(text, "config.json"), "m"); }

TEST(HfConfigHostile, EveryTruncation) {
  std::string whole = read_file(kConfig);
  whole.erase(whole.find_last_of('}') + 1);
  EXPECT_EQ(parse(whole).n_layers, 2);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal([&] { parse(whole.substr(0, n)); }), "") << n;
}

TEST(HfConfigHostile, EveryByteChanged) {
  const std::string whole = read_file(kConfig);
  const std::string values = std::string("\0\x1b\"0919-+.eE[]{},:nt \\\x7f\xc3\xff", 26);
  size_t n_refused = 0, n_read = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (char value : values) {
      std::string text = whole;
      text[i] = value;
      try {
        const HfConfig c = parse(text);
        ASSERT_TRUE(c.n_layers >= 1 && c.n_heads % c.n_kv_heads == 0 && c.head_dim >= 2 && c.norm_eps > 0 && c.rope.theta > 0) << text;
        ++n_read;
      } catch (const Error&) {
        ++n_refused;
      }
    }
  }
  EXPECT_GT(n_refused, 3000u);
  EXPECT_GT(n_read, 1000u);  // keys and texts that are not looked at
}

}  // namespace
}  // namespace ingot
