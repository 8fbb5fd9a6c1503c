// The two hashes that identify files on the Hugging Face Hub: SHA-256 of the bytes for large files, and git's hash
// (SHA-1 of a header and the bytes) for other files. Computed by OpenSSL.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ingot {

class Digest {
 public:
  static Digest sha256();
  static Digest git_blob(uint64_t n_bytes);  // for a file of n_bytes bytes
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(std::span<const uint8_t> bytes);
  std::string finish();  // lower-case hexadecimal digits; must be the last call

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ingot
