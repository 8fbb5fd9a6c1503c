// Writes the seeds of the safetensors fuzzer into the folder given as the first argument. Each seed uses one part of
// the format, so that few mutations lead to any fault.
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "io/safetensors_bytes.h"

int main(int argc, char** argv) {
  using ingot::safetensors_bytes;
  if (argc != 2) {
    std::fputs("usage: seeds_safetensors FOLDER\n", stderr);
    return 2;
  }
  const std::pair<const char*, std::string> seeds[] = {
      {"empty", safetensors_bytes("{}", 0)},
      {"metadata", safetensors_bytes(R"({"__metadata__":{"format":"pt","a":""}})", 0)},
      {"one", safetensors_bytes(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24)},
      {"scalar", safetensors_bytes(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8)},
      {"nothing", safetensors_bytes(R"({"z":{"dtype":"BF16","shape":[0,4],"data_offsets":[0,0]}})", 0)},
      {"nibbles", safetensors_bytes(R"({"q":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2)},
      {"two", safetensors_bytes(R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}} )", 8)},
      {"others", safetensors_bytes(R"({"\u0041\n":{"x":[{"y":[1,2.5]}],"dtype":"BOOL","shape":[1],"data_offsets":[0,1],"z":null}})", 1)},
  };
  std::filesystem::create_directories(argv[1]);
  for (const auto& [name, bytes] : seeds)
    ingot::write_file(std::string(argv[1]) + "/" + name,
                      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}
