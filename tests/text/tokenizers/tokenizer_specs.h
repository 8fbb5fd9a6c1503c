// Small handmade vocabularies, for the tests of single rules and for the fuzzer.
#pragma once
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizers/tokenizer.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/world.h"

namespace ingot::testing {

// A specification that owns its strings.
struct OwnedSpec {
  std::vector<std::string> tokens, merges;
  TokenizerSpec spec;

  OwnedSpec() = default;
  OwnedSpec(const OwnedSpec&) = delete;
  OwnedSpec& operator=(const OwnedSpec&) = delete;

  // The specification, with views of the current strings.
  TokenizerSpec view() const {
    TokenizerSpec result = spec;
    result.tokens.assign(tokens.begin(), tokens.end());
    result.merges.assign(merges.begin(), merges.end());
    return result;
  }
};

// The smallest complete byte-level vocabulary: ids 0 to 255 are the bytes; "ab" (256), "abc" (257) and "Ġa" (258) have
// merges.
inline std::unique_ptr<OwnedSpec> byte_level_spec() {
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "test";
  owned->spec.model = "gpt2";
  owned->spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte)
    owned->tokens.push_back(gpt2_from_bytes(std::string(1, static_cast<char>(byte))));
  owned->merges = {"a b", "ab c", "\u0120 a"};
  for (const char* token : {"ab", "abc", "\u0120a"}) owned->tokens.push_back(token);
  owned->spec.token_types.assign(owned->tokens.size(), 1);
  return owned;
}

// The smallest complete SentencePiece vocabulary: unk, bos, eos, the bytes (3 to 258), then "▁" (259), "a", "b", "ab",
// "▁a", "▁ab".
inline std::unique_ptr<OwnedSpec> sentencepiece_spec() {
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "test";
  owned->spec.model = "llama";
  owned->tokens = {"<unk>", "<s>", "</s>"};
  owned->spec.token_types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    owned->tokens.push_back(fmt::format("<0x{:02X}>", byte));
    owned->spec.token_types.push_back(6);
  }
  for (const char* token : {"\u2581", "a", "b", "ab", "\u2581a", "\u2581ab"}) {
    owned->tokens.push_back(token);
    owned->spec.token_types.push_back(1);
  }
  for (size_t i = 0; i < owned->tokens.size(); ++i) owned->spec.scores.push_back(-static_cast<float>(i));
  return owned;
}

// The smallest complete vocabulary of a World tokenizer: "<s>", the bytes (1 to 256), "ab" (257), "abc" (258),
// "\n\n" (259).
inline std::unique_ptr<OwnedSpec> world_spec() {
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "test";
  owned->spec.model = "rwkv";
  owned->tokens = {"<s>"};
  for (int byte = 0; byte < 256; ++byte) owned->tokens.push_back(escape_token(std::string(1, static_cast<char>(byte))));
  for (const char* token : {"ab", "abc", "\\n\\n"}) owned->tokens.push_back(token);
  owned->spec.token_types.assign(owned->tokens.size(), 1);
  owned->spec.token_types[0] = 3;
  return owned;
}

// Appends a token; returns its id.
inline int32_t add_token(OwnedSpec& owned, std::string text, TokenType type, float score = -1000.0f) {
  owned.tokens.push_back(std::move(text));
  owned.spec.token_types.push_back(static_cast<int32_t>(type));
  if (!owned.spec.scores.empty()) owned.spec.scores.push_back(score);
  return static_cast<int32_t>(owned.tokens.size()) - 1;
}

}  // namespace ingot::testing
