// Writes the seeds of the fuzzer of quantized checkpoints into the folder given as the first argument: one for each
// layout.
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "io/quantized_fixtures.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_quantized FOLDER\n", stderr);
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  for (const auto& fixture : ingot::quantized_fixtures()) {
    const std::string bytes = fixture.config + "\n" + fixture.file.bytes();
    ingot::write_file(std::string(argv[1]) + "/" + fixture.name, ingot::span_of(bytes));
  }
}
