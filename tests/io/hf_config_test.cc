// Damaged config.json files (tests/model/config/hf_config_test.cc tests the values of each key). With every truncation
// and every changed byte, the file is refused by Error, or read as a config whose numbers are in range.
#include "io/huggingface/config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "io/sweep.h"

namespace ingot {
namespace {

const std::string kConfig = INGOT_TEST_DATA "/hf/qwen3_tied_yarn/config.json";

HfConfig parse_config(const std::string& text) {
  return parse_hf_config(JsonDocument::parse(text, "config.json"), "m");
}

TEST(HfConfigHostile, EveryTruncation) {
  std::string whole = read_file(kConfig);
  whole.erase(whole.find_last_of('}') + 1);
  EXPECT_EQ(parse_config(whole).n_layers, 2);
  expect_cuts_refused(whole, parse_config);
}

TEST(HfConfigHostile, EveryValueOfEveryByte) {
  const std::string whole = read_file(kConfig);
  const size_t n_refused = sweep_bytes(whole, [](const std::string& text) {
    const HfConfig c = parse_config(text);
    ASSERT_TRUE(c.n_layers >= 1 && c.n_heads % c.n_kv_heads == 0 && c.head_dim >= 2 && c.norm_eps > 0 &&
                c.rope.theta > 0)
        << text;
  });
  EXPECT_GT(n_refused, whole.size() * 100);
}

}  // namespace
}  // namespace ingot
