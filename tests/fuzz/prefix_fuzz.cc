// Any bytes as the file of a saved slot. The file is refused by Error, or accepted with all promises kept. The bytes
// are read unchanged, and again with a valid digest, which an attacker could also write.
#include <string>

#include "base/error.h"
#include "io/digest.h"
#include "io/prefix_file.h"
#include "io/walk.h"

namespace {

void read(const std::string& bytes) {
  using namespace ingot;
  try {
    const PrefixFile file =
        parse_prefix_file({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "fuzz.slot");
    const size_t n_blocks = (file.tokens.size() + file.block_tokens - 1) / file.block_tokens;
    for (const PrefixFile::Cache& cache : file.caches) {
      ensure(cache.blocks.size() == (n_blocks - cache.n_missing) * cache.block_bytes, "each block has its bytes");
      unsigned sum = 0;
      for (const uint8_t byte : cache.blocks) sum += byte;
      ensure(sum <= 255u * cache.blocks.size(), "the bytes can be read");
    }
    for (const int32_t token : file.tokens) ensure(token >= 0, "tokens are not negative");
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  ingot::Digest digest = ingot::Digest::sha256();
  digest.update({data, size});
  read(bytes + digest.finish());
  return 0;
}
