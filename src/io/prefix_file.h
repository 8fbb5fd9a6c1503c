// A file with a saved prefix: tokens, and the blocks of a KV cache that belong to them. The server writes and reads
// these files for its slots. A file is untrusted: every number is checked before it is used.
//
// Layout, little-endian: "INGOTKV1"; the digest of the model and the layout of the blocks (a u64 length and the text,
// each); two u64 of the salt; u32 tokens of a block, u64 bytes of a block, u32 blocks without bytes at the beginning,
// u32 tokens; the tokens as i32; the blocks; the SHA-256 of all that, as 64 hexadecimal digits.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct PrefixFile {
  std::string model, layout;
  std::array<uint64_t, 2> salt{};
  uint32_t block_tokens = 0;
  uint64_t block_bytes = 0;
  uint32_t n_missing = 0;
  std::vector<int32_t> tokens;      // none is negative
  std::span<const uint8_t> blocks;  // [blocks of the tokens - n_missing, block_bytes]
};

// `name` is for messages. The bytes must outlive the result. Throws Error.
PrefixFile parse_prefix_file(std::span<const uint8_t> bytes, std::string_view name);
// Returns the size of the file, which appears whole or not at all. Throws Error.
size_t write_prefix_file(const std::string& path, const PrefixFile& file);

}  // namespace ingot
