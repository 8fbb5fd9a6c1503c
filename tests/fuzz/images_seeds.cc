// Writes the seeds of the fuzzer of images: the files of tests/data/images.
#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_images FOLDER\n", stderr);
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  for (const auto& entry : std::filesystem::directory_iterator(INGOT_IMAGES))
    std::filesystem::copy_file(entry.path(), argv[1] / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
}
