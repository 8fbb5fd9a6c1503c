// Writes the seeds of the fuzzer of saved slots into the folder given as the first argument.
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "io/prefix_file.h"

namespace {

void write_prefix(const std::string& path, const ingot::PrefixFile& file) {
  ingot::PrefixFileWriter writer(path, file);
  for (const auto& cache : file.caches) writer.write(cache.blocks);
  writer.commit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_prefix FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1], path = folder + "/whole";
  const std::vector<uint8_t> blocks(24, 1);
  std::filesystem::create_directories(folder);
  ingot::PrefixFile file{.model = "m", .layout = "l", .block_tokens = 4,
                         .caches = {{.block_bytes = 8, .blocks = std::span(blocks).first(16)}},
                         .tokens = {1, 2, 3, 4, 5, 6}};
  write_prefix(path, file);
  std::string bytes = ingot::read_file(path);
  bytes.resize(bytes.size() - 64);  // the target appends the digest
  ingot::write_file(folder + "/unsigned", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  file.caches[0].n_missing = 1;
  file.caches[0].blocks = std::span(blocks).first(8);
  write_prefix(folder + "/missing", file);
}
