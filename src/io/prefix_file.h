// A saved prefix: tokens and their KV-cache blocks. The server writes and reads these files for its slots. The files
// are untrusted: every number is checked before use.
//
// File layout, little-endian: "INGOTKV2"; the model's digest and the layout of the blocks (each a u64 length and the
// text); two u64 of the salt; u32 tokens of a block; u32 number of KV caches; of each cache: u64 bytes of a block, and
// u32 number of leading blocks without bytes; u32 number of tokens; the tokens as i32; the blocks of each cache; the
// SHA-256 of all preceding bytes, as 64 hexadecimal digits.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/digest.h"

namespace ingot {

struct PrefixFile {
  std::string model, layout;
  std::array<uint64_t, 2> salt{};
  uint32_t block_tokens = 0;
  struct Cache {
    uint64_t block_bytes = 0;
    uint32_t n_missing = 0;
    std::span<const uint8_t> blocks = {};  // [blocks of the tokens - n_missing, block_bytes]
  };
  std::vector<Cache> caches;    // at least one
  std::vector<int32_t> tokens;  // all >= 0
};

// `name` is for messages. The bytes must outlive the result. Throws Error.
PrefixFile parse_prefix_file(std::span<const uint8_t> bytes, std::string_view name);

// Writes a file, which appears whole or not at all. The blocks of `head` are ignored: they follow in pieces, in the
// order of the file. All functions throw Error.
class PrefixFileWriter {
 public:
  PrefixFileWriter(const std::string& path, const PrefixFile& head);
  void write(std::span<const uint8_t> bytes);
  size_t commit();  // returns the file's size

 private:
  FileWriter writer_;
  Digest digest_;
  size_t n_bytes_ = 0;
};

}  // namespace ingot
