// Writes the seeds of the architecture fuzzer into the folder given as the first argument: rows with every type of
// column.
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_arch FOLDER\n", stderr);
    return 2;
  }
  const std::pair<const char*, std::string> seeds[] = {
      {"smallest", R"({"gguf_name": "a", "hf_name": "b"})"},
      {"parts", R"({"gguf_name": "a", "hf_name": "b",)"
                R"( "layers": "delta_net/ffn attention+delta_net/feed_forward+experts"})"},
      {"columns", R"({"gguf_name": "a", "hf_name": "b", "gguf_rope": "interleaved", "activation": "gelu",)"
                  R"( "norm": "layer", "scoring": "sigmoid", "local_theta": "same", "window_period": 6,)"
                  R"( "post_norms": true, "hf_defaults": "{\"head_dim\": 64}"})"},
  };
  std::filesystem::create_directories(argv[1]);
  for (const auto& [name, text] : seeds)
    ingot::write_file(std::string(argv[1]) + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}
