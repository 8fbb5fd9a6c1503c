// Any bytes as a tokenizer.json. The file is refused by Error, or read as a tokenizer that encodes any text into ids of
// its vocabulary and decodes these ids, alone and in pairs. Any other result (another exception, a sanitizer's report,
// a hang) is a bug.
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "io/huggingface/tokenizer.h"
#include "io/walk.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

constexpr std::string_view kTexts[] = {"",
                                       "Hello, world! 12345",
                                       " \t a\u0301 \u4E2D\u6587 \u2581x",
                                       "<s>[CLS]</s><|bos|> the\r\n",
                                       "\xFF\xC0\x80 \xED\xA0\x80",
                                       "the the the the \U0001F468\u200D\U0001F469"};

// The loader reads files with fixed names from a folder. Each process has its own folder.
const std::string& folder() {
  static const std::string path = [] {
    const std::string made =
        (std::filesystem::temp_directory_path() / ("fuzz_hf_tokenizer_" + std::to_string(::getpid()))).string();
    std::filesystem::create_directories(made);
    set_log_level(LogLevel::kOff);
    return made;
  }();
  return path;
}

void check(const Tokenizer& tokenizer) {
  auto is_text = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) ensure(id >= 0 && id < tokenizer.n_vocab(), "ids are of the vocabulary");
    tokenizer.decode(ids);
    tokenizer.decode(ids, true);
  };
  for (const std::string_view text : kTexts) {
    is_text(tokenizer.encode(text));
    is_text(tokenizer.encode(text, {.add_special = false, .parse_special = true}));
    size_t n_first = 0;
    const auto pair = tokenizer.encode_pair(text, kTexts[1], 12, n_first);
    ensure(n_first <= pair.size(), "a pair's second text is in it");
    is_text(pair);
  }
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  write_file(folder() + "/tokenizer.json", {data, size});
  try {
    check(*Tokenizer::create(read_hf_tokenizer(HfDirectory(folder()), {})->spec));
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
