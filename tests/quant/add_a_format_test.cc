// Checks docs/add-a-format.md: the header on the page equals the header in the tree, and formats.def contains the lines
// that the page adds.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "quant/format_checks.h"

namespace ingot {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(std::string(INGOT_TEST_DATA) + "/../../" + path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The code block after `heading`.
std::string code_after(const std::string& page, const std::string& heading) {
  const size_t begin = page.find("```cpp\n", page.find(heading)) + 7;
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST(AddAFormat, ThePageShowsTheHeader) {
  const std::string page = read_text("docs/add-a-format.md");
  EXPECT_EQ(code_after(page, "## 1. "), read_text("src/quant/tq2_0.h"));
}

TEST(AddAFormat, ThePageShowsTheLinesOfTheList) {
  std::istringstream lines(code_after(read_text("docs/add-a-format.md"), "## 2. "));
  const std::string list = read_text("src/quant/formats.def");
  int n_lines = 0;
  for (std::string line; std::getline(lines, line); ++n_lines) {
    EXPECT_THAT(list, testing::HasSubstr(line.substr(0, line.find("  ")) + "\n"));
  }
  EXPECT_EQ(n_lines, 2);
}

}  // namespace
}  // namespace ingot
