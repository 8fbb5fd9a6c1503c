// Writes the seeds of the Hub fuzzer into the folder given as the first argument.
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_hub FOLDER\n", stderr);
    return 2;
  }
  const std::string sha1(40, 'a'), sha256(64, 'b');
  auto small = [&](const std::string& path) {
    return R"({"type":"file","path":")" + path + R"(","oid":")" + sha1 + R"(","size":12})";
  };
  auto large = [&](const std::string& path) {
    return R"({"type":"file","path":")" + path + R"(","oid":")" + sha1 + R"(","size":9,"lfs":{"oid":")" + sha256 +
           R"(","size":9,"pointerSize":1}})";
  };
  const std::pair<const char*, std::string> seeds[] = {
      {"revision", R"(r{"id":"a/b","sha":")" + sha1 + R"(","siblings":[{"rfilename":"x"}]})"},
      {"one", "t[" + large("m-Q4_K_M.gguf") + "]"},
      {"split", "t[" + large("Q8_0/m-00001-of-00002.gguf") + "," + large("Q8_0/m-00002-of-00002.gguf") + "]"},
      {"directory", "t[" + small("config.json") + "," + small("tokenizer.json") + "," + large("model.safetensors") +
                        R"(,{"type":"directory","path":"x"}])"},
      {"index", "t[" + small("config.json") + "," + small("model.safetensors.index.json") + "]"},
      {"headers",
       "hlink:<https://h/x>; rel=\"next\"\ncontent-range:bytes 1-9/10\nx-error-code:GatedRepo\nx-error-message:no\n"},
      {"etag", "hx-linked-etag:W/\"" + std::string(64, 'a') +
                   "\"\nx-linked-size:10\nx-repo-commit:" + std::string(40, 'b') + "\ncontent-length:10\n"},
      {"tags", "cQ8_0\na-Q8_0.gguf\na-UD-Q4_K_XL.gguf\nmmproj.gguf\n"},
      {"label", "cx\nMXFP4_MOE/x-IQ2_XXS-00001-of-00001.gguf\n"},
      {"modules", R"(m[{"idx":0,"path":"m","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling"}])"},
      {"name", "nhf.co/org/repo:Q4_K_M"},
  };
  std::filesystem::create_directories(argv[1]);
  for (const auto& [name, bytes] : seeds)
    ingot::write_file(std::string(argv[1]) + "/" + name,
                      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}
