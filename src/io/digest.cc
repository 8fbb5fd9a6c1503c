#include "io/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/error.h"

namespace ingot {

struct Digest::State {
  explicit State(const EVP_MD* kind) : context(EVP_MD_CTX_new()) {
    if (context == nullptr || EVP_DigestInit_ex(context, kind, nullptr) != 1)
      throw Error("OpenSSL cannot compute {}", EVP_MD_get0_name(kind));
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_MD_CTX* context;
};

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

Digest Digest::sha256() { return Digest(std::make_unique<State>(EVP_sha256())); }

Digest Digest::git_blob(uint64_t n_bytes) {
  Digest digest(std::make_unique<State>(EVP_sha1()));
  const std::string header = fmt::format("blob {}", n_bytes);
  digest.update({reinterpret_cast<const uint8_t*>(header.c_str()), header.size() + 1});  // with the terminating NUL
  return digest;
}

void Digest::update(std::span<const uint8_t> bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) throw Error("OpenSSL cannot compute a hash");
}

std::string Digest::finish() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  if (EVP_DigestFinal_ex(state_->context, bytes, &n) != 1) throw Error("OpenSSL cannot compute a hash");
  std::string hex;
  for (unsigned int i = 0; i < n; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace ingot
