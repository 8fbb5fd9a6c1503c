#include "io/prefix_file.h"

#include <cstring>

#include "io/reader.h"

namespace ingot {
namespace {

constexpr std::string_view kMagic = "INGOTKV2";
constexpr size_t kDigestBytes = 64;
constexpr uint64_t kMaxTextBytes = 1024, kMaxBlockBytes = uint64_t{1} << 40;
constexpr uint32_t kMaxCaches = 64;

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string digest_of(std::span<const uint8_t> bytes) {
  Digest digest = Digest::sha256();
  digest.update(bytes);
  return digest.finish();
}

std::string read_text(Reader& reader, const char* field) {
  const std::string_view text = reader.read_string(field);
  if (text.size() > kMaxTextBytes) reader.fail(field, "has {} bytes; at most {}", text.size(), kMaxTextBytes);
  return std::string(text);
}

template <class T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, const std::string& text) {
  append(out, uint64_t{text.size()});
  out += text;
}

}  // namespace

PrefixFile parse_prefix_file(std::span<const uint8_t> bytes, std::string_view name) {
  Reader reader(bytes, name);
  const std::string_view magic = as_text(reader.take(kMagic.size(), "magic"));
  if (magic != kMagic && magic.starts_with(kMagic.substr(0, kMagic.size() - 1)))
    reader.fail("magic", "the slot was saved by another version of ingot: save it again");
  if (magic != kMagic) reader.fail("magic", "this is not a file of a saved slot");
  PrefixFile file;
  file.model = read_text(reader, "model");
  file.layout = read_text(reader, "layout");
  for (uint64_t& half : file.salt) half = reader.read<uint64_t>("salt");
  file.block_tokens = reader.read<uint32_t>("tokens of a block");
  if (file.block_tokens == 0) reader.fail("tokens of a block", "is 0");
  const auto n_caches = reader.read<uint32_t>("number of caches");
  if (n_caches == 0 || n_caches > kMaxCaches)
    reader.fail("number of caches", "is {}: must be 1 to {}", n_caches, kMaxCaches);
  for (uint32_t i = 0; i < n_caches; ++i) {
    const auto block_bytes = reader.read<uint64_t>("bytes of a block");
    if (block_bytes == 0 || block_bytes > kMaxBlockBytes)
      reader.fail("bytes of a block", "is {}: must be 1 to {}", block_bytes, kMaxBlockBytes);
    file.caches.push_back({.block_bytes = block_bytes, .n_missing = reader.read<uint32_t>("blocks without bytes")});
  }
  const auto n_tokens = reader.read<uint32_t>("number of tokens");
  const std::span<const uint8_t> tokens = reader.take(uint64_t{n_tokens} * sizeof(int32_t), "tokens");
  file.tokens.resize(n_tokens);
  if (n_tokens > 0) std::memcpy(file.tokens.data(), tokens.data(), tokens.size());
  for (const int32_t token : file.tokens)
    if (token < 0) reader.fail("tokens", "has the invalid token {}", token);
  const uint64_t n_blocks = (uint64_t{n_tokens} + file.block_tokens - 1) / file.block_tokens;
  for (PrefixFile::Cache& cache : file.caches) {
    if (cache.n_missing > n_blocks)
      reader.fail("tokens", "fill {} blocks, but the file leaves out the bytes of {} blocks", n_blocks,
                  cache.n_missing);
    const uint64_t n_stored = n_blocks - cache.n_missing;
    if (n_stored > reader.remaining() / cache.block_bytes)
      reader.fail("tokens", "fill {} blocks of {} bytes: truncated: {} bytes are left", n_stored, cache.block_bytes,
                  reader.remaining());
    cache.blocks = reader.take(n_stored * cache.block_bytes, "blocks");
  }
  const std::string digest = digest_of(reader.since(0));
  if (as_text(reader.take(kDigestBytes, "digest")) != digest) reader.fail("digest", "the file is damaged");
  if (reader.remaining() > 0) reader.fail("digest", "{} bytes follow it", reader.remaining());
  return file;
}

PrefixFileWriter::PrefixFileWriter(const std::string& path, const PrefixFile& file)
    : writer_(path, FileReaders::kOwner), digest_(Digest::sha256()) {
  std::string head(kMagic);
  append_text(head, file.model);
  append_text(head, file.layout);
  for (const uint64_t half : file.salt) append(head, half);
  append(head, file.block_tokens);
  append(head, static_cast<uint32_t>(file.caches.size()));
  for (const PrefixFile::Cache& cache : file.caches) append(head, cache.block_bytes), append(head, cache.n_missing);
  append(head, static_cast<uint32_t>(file.tokens.size()));
  head.append(reinterpret_cast<const char*>(file.tokens.data()), file.tokens.size() * sizeof(int32_t));
  write(as_bytes(head));
}

void PrefixFileWriter::write(std::span<const uint8_t> bytes) {
  digest_.update(bytes);
  writer_.write(bytes);
  n_bytes_ += bytes.size();
}

size_t PrefixFileWriter::commit() {
  writer_.write(as_bytes(digest_.finish()));
  writer_.commit();
  return n_bytes_ + kDigestBytes;
}

}  // namespace ingot
