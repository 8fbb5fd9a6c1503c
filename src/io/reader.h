// A bounds-checked reader for the bytes of a file, little-endian only. Every read names its field, so an error says
// "FILE: CONTEXT: FIELD at offset N: truncated: need A bytes, have B". Strings are views of the bytes, not copies. Used
// for GGUF files, safetensors files, importance matrices and saved prefixes.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ingot {

static_assert(std::endian::native == std::endian::little, "file formats are read with memcpy");

inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Reader {
 public:
  // `file` is the name for messages. The name and the bytes must outlive the reader.
  Reader(std::span<const uint8_t> bytes, std::string_view file) : bytes_(bytes), file_(file) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  uint64_t offset() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  std::span<const uint8_t> since(uint64_t start) const { return bytes_.subspan(start, position_ - start); }

  std::span<const uint8_t> take(uint64_t n_bytes, const char* field) {
    field_start_ = position_;
    if (n_bytes > remaining()) [[unlikely]]
      fail_truncated(field, n_bytes);
    position_ += n_bytes;
    return bytes_.subspan(field_start_, n_bytes);
  }

  template <class T>
  T read(const char* field) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, "any byte is not a bool");
    T value;
    std::memcpy(&value, take(sizeof value, field).data(), sizeof value);
    return value;
  }

  // Reads a u64 length, then that many bytes (any bytes). Refuses strings of 1 GiB and more.
  std::string_view read_string(const char* field) {
    const auto n_bytes = read<uint64_t>(field);
    if (n_bytes >= kMaxStringBytes && n_bytes <= remaining()) [[unlikely]]
      fail(field, "a string of {} bytes; the limit is {}", n_bytes, kMaxStringBytes - 1);
    return as_text(take(n_bytes, field));
  }

  // Throws Error about `field`, with the offset of the last read.
  template <class... Args>
  [[noreturn]] void fail(const char* field, fmt::format_string<Args...> format, Args&&... args) const {
    fail_at_field(field, fmt::format(format, std::forward<Args>(args)...));
  }

  // Adds a context to error messages while the Scope lives: `metadata 'llama.block_count'`.
  class Scope {
   public:
    Scope(Reader& reader, const char* what, std::string_view name) : reader_(reader) {
      reader_.context_.emplace_back(what, name);
    }
    ~Scope() { reader_.context_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Reader& reader_;
  };

  static constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;

 private:
  [[noreturn]] void fail_truncated(const char* field, uint64_t n_bytes) const;
  [[noreturn]] void fail_at_field(const char* field, const std::string& message) const;

  std::span<const uint8_t> bytes_;
  std::string_view file_;
  uint64_t position_ = 0;
  uint64_t field_start_ = 0;
  std::vector<std::pair<const char*, std::string_view>> context_;
};

}  // namespace ingot
