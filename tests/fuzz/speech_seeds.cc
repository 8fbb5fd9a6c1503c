// Writes the seeds of the fuzzer of speech: recordings, small model files, and forms.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "io/ct2_bytes.h"
#include "io/ggml_bytes.h"

int main(int argc, char** argv) {
  using namespace ingot;
  if (argc != 2) {
    std::fputs("usage: seeds_speech FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, char kind, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << kind << bytes;
  };
  for (const auto& entry : std::filesystem::directory_iterator(INGOT_AUDIO)) {
    std::ifstream file(entry.path(), std::ios::binary);
    write(entry.path().filename().string(), '\0', {std::istreambuf_iterator<char>(file), {}});
  }
  for (const int bits : {8, 16, 24, 32})
    write("wav" + std::to_string(bits), '\0',
          wav_bytes(tone(440, 8000, 0.02), {.rate = 8000, .n_channels = 2, .bits = bits}));
  write("float", '\0', wav_bytes(tone(440, 44100, 0.01), {.rate = 44100, .bits = 64, .is_float = true}));
  write("ct2", '\1',
        ct2_model({ct2_variable("encoder/w", {2, 3}, 0, std::string(24, 'x')), ct2_variable("n", {}, 1, "\6")},
                  "WhisperSpec", {{"alias", "n"}}));
  write("ggml", '\2',
        ggml_speech_file(
            {4, 4, 32, 2, 1, 8, 32, 2, 1, 5, 2}, {"a", "b", "ab"},
            {ggml_tensor("w", {2, 32}, 6, std::string(44, 'q')), ggml_tensor("b", {3}, 0, std::string(12, 'f'))}));
  write("form", '\3',
        "multipart/form-data; boundary=\"x y\"\n--x y\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"a\\\"b\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--x y\r\ncontent-disposition: form-data; "
        "name=model\r\n\r\n\r\n--x y--\r\n");
}
