// Writes the seeds of the tokenizer fuzzer into the folder given as the first argument: texts for each kind of
// tokenizer, and almost valid specifications. tokenizer_fuzz.cc defines the two leading bytes.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> seeds() {
  const std::string texts[] = {
      "Hello, world! I'm 12345 years old.\r\n\n  x",           "ab<|im|>x <t>  abc\xE2\x96\x81",
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 \xCC\x81", "\xE4\xB8\xAD\xE6\x96\x87 \xD8\xB3\xD9\x84 \xC7\x85",
      std::string("\0\xFF\xC0\x80\xED\xA0\x80 \xE2\x96", 10),  "<sentinel:1>IMGIMGABZ",
  };
  std::vector<std::string> result;
  for (char which = 0; which < 24; ++which)
    for (const std::string& text : texts)
      result.push_back(std::string{static_cast<char>(which % 2 ? 3 : 1), which} + text);
  for (char flags : {1, 2, 5, 9, 17, 41, 97, 0, 8, 48}) {
    result.push_back(std::string{0, flags} + "3 <|im|>\n4 <t>\n1 xy\nma b\n\nab<|im|> <t>");
    result.push_back(std::string{0, flags} + "2 u\n3 b\n6 <0x41>\n1 \xE2\x96\x81\x61\nmab c");
  }
  // A table whose trie turns "a" into "b", then a text.
  std::string table(4 + 256 * 4, '\0');
  auto put = [&](size_t unit, uint32_t value) { std::memcpy(&table[4 * unit], &value, 4); };
  put(0, 256 * 4);
  put(1 + 'a', 'a' | 1u << 8 | 1u << 10);
  table += std::string("b\0", 2);
  for (char flags : {0, 2, 8, 64, 127, 1, 9, 13, 127})
    for (const std::string& text : texts) result.push_back(std::string{4, flags} + table + "\n\n" + text);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: seeds_tokenizer FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  int n = 0;
  for (const std::string& seed : seeds())
    std::ofstream(folder / ("seed_" + std::to_string(n++)), std::ios::binary) << seed;
  return 0;
}
