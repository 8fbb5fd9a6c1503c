// Writes the seeds of the template fuzzer into the folder given as the first argument: the fixture templates, alone and
// followed by a conversation, and the small templates of the goldens.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/json.h"

namespace {

using Json = nlohmann::json;
const std::filesystem::path kTemplates = INGOT_TEMPLATES;

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: seeds_template FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  int n = 0;
  auto write = [&](const std::string& seed) {
    std::ofstream(folder / ("seed_" + std::to_string(n++)), std::ios::binary) << seed;
  };
  const Json conversations = Json::parse(read(kTemplates / "conversations.json"));
  for (const auto& entry : std::filesystem::directory_iterator(kTemplates)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read(entry.path());
    write(source);
    for (const Json& conversation : conversations) write(source + '\0' + conversation.at("messages").dump());
  }
  const Json snippets = Json::parse(read(kTemplates / "snippets.json"));
  for (const Json& one : snippets.at("cases")) write(one.at(0));
  return 0;
}
