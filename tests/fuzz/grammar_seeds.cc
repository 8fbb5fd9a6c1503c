// Writes the seeds of the fuzzer for one kind of constraint (FUZZ_KIND: gbnf, lark, regex or schema) into the folder
// given as the first argument: the goldens with their texts, or some written by hand.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"

namespace {

constexpr std::string_view kKind = FUZZ_KIND;

struct Writer {
  std::filesystem::path folder;
  int n = 0;
  void write(const std::string& grammar, const std::string& text) {
    const char options = static_cast<char>(n % 8);
    std::ofstream(folder / ("seed_" + std::to_string(n++)), std::ios::binary) << options << grammar << '\0' << text;
  }
};

void write_goldens(Writer& writer, const char* name) {
  std::ifstream file(std::filesystem::path(INGOT_GRAMMARS) / name);
  for (const auto& entry : nlohmann::json::parse(file)) {
    for (size_t i = 0; i < 3; ++i) writer.write(entry.at("grammar"), entry.at("texts").at(i).at(0));
  }
}

void write_schemas(Writer& writer) {
  std::ifstream file(std::filesystem::path(INGOT_GRAMMARS) / "schemas.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line);
    writer.write(entry.at("schema"), entry.at("tests").at(0).at(0));
  }
  writer.write(R"({"properties":{"x":{"pattern":"(a)\\1"}},"not":{"$ref":"http://x"}})", R"({"x":"b"})");
  writer.write(
      R"({"$schema":"http://json-schema.org/draft-04/schema#","items":[{}],"additionalItems":{"format":"date"}})",
      R"([1,"2024-02-29"])");
}

void write_regexes(Writer& writer) {
  for (const char* regex :
       {"(?:ab|c)+\\d{2,3}|^é.$", "(?=.*x)[^a-c]{2,}(?!y)\\p{L}*", "a?b?c?(d*e*)*", "\\u{1F600}[\\s\\S]?$"})
    writer.write(regex, "abc12");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  Writer writer{argv[1]};
  std::filesystem::create_directories(writer.folder);
  if (kKind == "gbnf") write_goldens(writer, "gbnf.json");
  if (kKind == "lark") write_goldens(writer, "lark.json");
  if (kKind == "schema") write_schemas(writer);
  if (kKind == "regex") write_regexes(writer);
  return 0;
}
