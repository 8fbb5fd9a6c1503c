// Writes the inputs that the grammar fuzzer starts from into the folder of its first argument: the grammars of the
// goldens with their texts, some regular expressions and some schemas.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: seeds_grammar FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1], goldens = INGOT_GRAMMARS;
  std::filesystem::create_directories(folder);
  int n = 0;
  const auto write = [&](char kind, const std::string& grammar, const std::string& text) {
    std::ofstream(folder / ("seed_" + std::to_string(n++)), std::ios::binary) << kind << grammar << '\0' << text;
  };
  char kind = 0;
  for (const char* name : {"gbnf.json", "lark.json"}) {
    std::ifstream file(goldens / name);
    for (const auto& entry : nlohmann::json::parse(file)) {
      for (size_t i = 0; i < 3; ++i) write(kind, entry.at("grammar"), entry.at("texts").at(i).at(0));
    }
    ++kind;
  }
  for (const char* regex : {"(?:ab|c)+\\d{2,3}|^é.$", "(?=.*x)[^a-c]{2,}(?!y)\\p{L}*", "a?b?c?(d*e*)*"})
    write(2, regex, "abc12");
  for (const char* schema :
       {R"({"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]})",
        R"({"type":"array","items":{"anyOf":[{"type":"string","maxLength":3},{"$ref":"#"}]},"uniqueItems":true})"}) {
    write(3, schema, R"({"a": 17})");
    write(3, schema, R"(["ab", ["c"]])");
  }
  return 0;
}
