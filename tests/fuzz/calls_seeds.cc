// Writes the seeds of the calls fuzzer into the folder given as the first argument: two forced calls between text for
// each family.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "text/calls/call_format.h"

namespace {

std::string arguments_of(const ingot::CallFormat& row) {
  using enum ingot::CallSyntax;
  if (row.syntax == kTagged) return row.parameter_text("city", "Paris", true) + row.parameter_text("days", "2", false);
  if (row.syntax == kPython) return "city='Paris', days=2, id=[None, 1.5], note={'a': \"b\"}";
  const std::string mark(row.string_mark);
  if (row.syntax == kGemma) return "{city:" + mark + "Paris" + mark + ",days:2,id:[1,{a:true}]}";
  return R"({"city": "Paris", "days": 2, "id": [null, 1.5e3, -1e309, "\u00e9"]})";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: seeds_calls FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  unsigned char n = 0;
  for (const ingot::CallFormat& row : ingot::call_formats()) {
    std::string seed = {static_cast<char>(n), '\7', '\1'};
    seed += row.think_begin;
    seed += "Hm.";
    seed += row.think_end;
    seed += row.begin_text("get_weather") + arguments_of(row) + row.next_text("now", 1) + "{}" + row.end_text() +
            "\nText.\n";
    std::ofstream(folder / ("seed_" + std::to_string(n++)), std::ios::binary) << seed;
  }
  return 0;
}
