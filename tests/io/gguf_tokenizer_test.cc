#include "io/gguf/tokenizer.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/json.h"
#include "io/gguf/writer.h"
#include "io/huggingface/tokenizer.h"
#include "io/refused.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufWriter complete() {
  GgufWriter writer;
  writer.set("tokenizer.ggml.model", "gpt2");
  writer.set("tokenizer.ggml.pre", "qwen2");
  writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
  writer.set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 4});
  writer.set("tokenizer.ggml.scores", std::vector<float>{0.5f, 0.0f, -1.0f});
  writer.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.set("tokenizer.ggml.bos_token_id", uint32_t{1});
  writer.set("tokenizer.ggml.eos_token_id", uint32_t{0xFFFFFFFF});
  writer.set("tokenizer.ggml.add_bos_token", true);
  writer.set("tokenizer.ggml.add_space_prefix", false);
  return writer;
}

std::string tokenizer_refusal(const GgufWriter& writer) {
  const auto bytes = writer.to_bytes();
  const Gguf file = Gguf::parse(bytes, "m.gguf");
  return refusal([&] { tokenizer_spec(file); });
}

TEST(GgufTokenizer, ReadsEveryKey) {
  const auto bytes = complete().to_bytes();
  const Gguf file = Gguf::parse(bytes, "m.gguf");
  const TokenizerSpec spec = tokenizer_spec(file);
  EXPECT_EQ(spec.source, "m.gguf");
  EXPECT_EQ(spec.model, "gpt2");
  EXPECT_EQ(spec.pre, "qwen2");
  EXPECT_THAT(spec.tokens, ElementsAre("a", "b", "ab"));
  EXPECT_THAT(spec.token_types, ElementsAre(1, 1, 4));
  EXPECT_THAT(spec.scores, ElementsAre(0.5f, 0.0f, -1.0f));
  EXPECT_THAT(spec.merges, ElementsAre("a b"));
  EXPECT_EQ(spec.bos, 1);
  EXPECT_EQ(spec.eos, 0xFFFFFFFF);  // Tokenizer::create drops it with a warning
  EXPECT_EQ(spec.unk, std::nullopt);
  EXPECT_EQ(spec.add_bos, true);
  EXPECT_EQ(spec.add_eos, std::nullopt);
  EXPECT_EQ(spec.add_space_prefix, false);
}

// llama.cpp and Hugging Face drop a byte that has no token. Many files still name an unknown token, from
// tokenizer_config.json (SmolLM2, StarCoder: <|endoftext|>). The expected ids are those of the tokenizers library.
TEST(GgufTokenizer, BytesWithoutATokenAreDropped) {
  const auto golden = nlohmann::json::parse(read_file(INGOT_TEST_DATA "/tokenizers/bpe_gaps.json"));
  GgufWriter writer;
  writer.set("tokenizer.ggml.model", "gpt2");
  writer.set("tokenizer.ggml.pre", "gpt-2");
  writer.set("tokenizer.ggml.tokens", golden.at("tokens").get<std::vector<std::string>>());
  std::vector<int32_t> types(golden.at("tokens").size(), 1);
  types[0] = 3;
  writer.set("tokenizer.ggml.token_type", types);
  writer.set("tokenizer.ggml.merges", golden.at("merges").get<std::vector<std::string>>());
  writer.set("tokenizer.ggml.unknown_token_id", uint32_t{0});
  const auto bytes = writer.to_bytes();
  const Gguf file = Gguf::parse(bytes, "m.gguf");
  const auto tokenizer = Tokenizer::create(tokenizer_spec(file));
  ASSERT_GT(golden.at("texts").size(), 10u);
  for (size_t i = 0; i < golden.at("texts").size(); ++i)
    EXPECT_EQ(tokenizer->encode(golden["texts"][i].get<std::string>()), golden["ids"][i].get<std::vector<int32_t>>())
        << golden["texts"][i];
}

TEST(GgufTokenizer, ReadsWordPiece) {
  GgufWriter writer = complete();
  writer.set("tokenizer.ggml.model", "bert");
  writer.set("tokenizer.ggml.cls_token_id", uint32_t{0});
  writer.set("tokenizer.ggml.seperator_token_id", uint32_t{2});
  auto steps = [&] {
    const auto bytes = writer.to_bytes();
    const Gguf file = Gguf::parse(bytes, "m.gguf");
    const TokenizerSpec spec = tokenizer_spec(file);
    EXPECT_EQ(spec.bos, 0);
    EXPECT_EQ(spec.eos, 2);
    EXPECT_EQ(spec.cuts.size(), 2u);
    return spec.normalize.size();
  };
  EXPECT_EQ(steps(), 5u) << "clean, Chinese, NFD, marks, lower case";
  writer.set("tokenizer.ggml.normalizer.lowercase", false);
  EXPECT_EQ(steps(), 2u);
  writer.set("tokenizer.ggml.normalizer.strip_accents", true);
  EXPECT_EQ(steps(), 4u);
  writer.set("tokenizer.ggml.normalizer.strip_accents", 1);
  EXPECT_THAT(tokenizer_refusal(writer), HasSubstr("strip_accents'"));
}

TEST(GgufTokenizer, ReadsUnigram) {
  GgufWriter writer = complete();
  writer.set("tokenizer.ggml.model", "t5");
  auto n_steps = [&] {
    const auto bytes = writer.to_bytes();
    const Gguf file = Gguf::parse(bytes, "m.gguf");
    return tokenizer_spec(file).normalize.size();
  };
  EXPECT_EQ(n_steps(), 1u);
  writer.set("tokenizer.ggml.remove_extra_whitespaces", false);
  EXPECT_EQ(n_steps(), 0u);
  writer.set("tokenizer.ggml.precompiled_charsmap", std::vector<uint8_t>{0, 0xFF, 7});
  EXPECT_EQ(n_steps(), 1u);
  const auto bytes = writer.to_bytes();
  const Gguf file = Gguf::parse(bytes, "m.gguf");
  EXPECT_EQ(tokenizer_spec(file).normalize[0].from, std::string("\0\xFF\7", 3));
  writer.set("tokenizer.ggml.precompiled_charsmap", std::vector<float>{0});
  EXPECT_THAT(tokenizer_refusal(writer), HasSubstr("precompiled_charsmap': expected an array of u8, got [f32]"));
}

// Gemma 4 and similar models use byte pairs in SentencePiece's spelling. The expected ids come from the tokenizers
// library with the same vocabulary.
TEST(GgufTokenizer, SentencePieceLikeBytePairsEqualTheReference) {
  const std::string hf = std::string(INGOT_TEST_DATA) + "/tokenizers/hf/spm_gemma";
  const auto owned = read_hf_tokenizer(HfDirectory(hf), {});
  const auto golden = nlohmann::json::parse(read_file(hf + ".json"));
  for (const auto& [model, pre] : {std::pair{"gemma4", "gemma4"}, std::pair{"gpt2", "granite-embed-multi-311m"},
                                   std::pair{"gpt2", "sarvam-moe"}}) {
    GgufWriter writer;
    writer.set("tokenizer.ggml.model", model);
    writer.set("tokenizer.ggml.pre", pre);
    writer.set("tokenizer.ggml.tokens", owned->spec.tokens);
    writer.set("tokenizer.ggml.token_type", owned->spec.token_types);
    writer.set("tokenizer.ggml.merges", owned->spec.merges);
    writer.set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*owned->spec.bos));
    writer.set("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*owned->spec.unk));
    const auto bytes = writer.to_bytes();
    const Gguf file = Gguf::parse(bytes, "m.gguf");
    const auto tokenizer = Tokenizer::create(tokenizer_spec(file));
    EXPECT_FALSE(tokenizer->add_bos());
    const auto texts = golden["texts"].get<std::vector<std::string>>();
    ASSERT_GT(texts.size(), 100u);
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(tokenizer->encode(texts[i], {.add_special = false, .parse_special = true}),
                golden["ids"][i].get<std::vector<int32_t>>())
          << pre << ": " << printable(texts[i]);
  }
}

TEST(GgufTokenizer, ReadsWhatStandsBetweenTwoTexts) {
  auto between = [](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer = complete();
    writer.set("tokenizer.ggml.eos_token_id", uint32_t{2});
    change(writer);
    const auto bytes = writer.to_bytes();
    const Gguf file = Gguf::parse(bytes, "m.gguf");
    return tokenizer_spec(file).pair_between;
  };
  EXPECT_THAT(between([](GgufWriter&) {}), ElementsAre());
  EXPECT_THAT(between([](GgufWriter& w) { w.set("tokenizer.ggml.add_eos_token", true); }), ElementsAre(2));
  EXPECT_THAT(between([](GgufWriter& w) {
                w.set("tokenizer.ggml.add_eos_token", true);
                w.set("tokenizer.ggml.add_sep_token", true);
                w.set("tokenizer.ggml.seperator_token_id", uint32_t{1});
              }),
              ElementsAre(2, 1));
  EXPECT_THAT(between([](GgufWriter& w) { w.set("tokenizer.ggml.model", "bert"); }), ElementsAre(2));
  EXPECT_THAT(between([](GgufWriter& w) { w.set("tokenizer.ggml.model", "t5"); }), ElementsAre(2, 2));
}

TEST(GgufTokenizer, MissingKeysAreNamed) {
  GgufWriter writer;
  EXPECT_THAT(tokenizer_refusal(writer), HasSubstr("m.gguf: metadata 'tokenizer.ggml.model' is missing"));
  writer.set("tokenizer.ggml.model", "gpt2");
  EXPECT_THAT(tokenizer_refusal(writer), HasSubstr("'tokenizer.ggml.tokens' is missing"));
  writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THAT(tokenizer_refusal(writer), HasSubstr("'tokenizer.ggml.merges' is missing"));
}

TEST(GgufTokenizer, WrongTypesAreRefused) {
  auto with = [](const char* key, const auto& value) {
    GgufWriter writer = complete();
    writer.set(key, value);
    return tokenizer_refusal(writer);
  };
  const std::vector<uint8_t> bytes{1, 1, 1};
  EXPECT_THAT(with("tokenizer.ggml.scores", bytes),
              HasSubstr("'tokenizer.ggml.scores': expected an array of f32, got [u8]"));
  EXPECT_THAT(with("tokenizer.ggml.token_type", bytes), HasSubstr("expected an array of i32, got [u8]"));
  EXPECT_THAT(with("tokenizer.ggml.token_type", 1), HasSubstr("token_type'"));
  EXPECT_THAT(with("tokenizer.ggml.tokens", bytes), HasSubstr("tokens'"));
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::vector<std::string>>{{"a", "b"}}), HasSubstr("merges'"));
  EXPECT_THAT(with("tokenizer.ggml.bos_token_id", "1"), HasSubstr("bos_token_id'"));
  EXPECT_THAT(with("tokenizer.ggml.bos_token_id", ~uint64_t{0}), HasSubstr("bos_token_id'"));
  EXPECT_THAT(with("tokenizer.ggml.add_bos_token", 1), HasSubstr("add_bos_token'"));
}

}  // namespace
}  // namespace ingot
