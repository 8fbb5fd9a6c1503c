// The files of CTranslate2 and whisper.cpp: what they hold, and damaged ones.
#include <gmock/gmock.h>

#include "io/ct2_bytes.h"
#include "io/ctranslate2/model_bin.h"
#include "io/ggml/speech_file.h"
#include "io/ggml_bytes.h"
#include "io/largest_allocation.h"
#include "io/rank_merges.h"
#include "io/refused.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const uint8_t> speech_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string ct2_example() {
  return ct2_model({ct2_variable("encoder/w", {2, 3}, 0, std::string(24, 'x')),
                    ct2_variable("n", {}, 2, "\x06" + std::string(1, '\0'))},
                   "WhisperSpec", {{"projection", "encoder/w"}});
}

TEST(Ct2, VariablesAndAliases) {
  const std::string bytes = ct2_example();
  const Ct2Model model = Ct2Model::parse(speech_bytes(bytes), "model.bin");
  EXPECT_EQ(model.spec(), "WhisperSpec");
  ASSERT_EQ(model.variables().size(), 2u);
  const Ct2Variable* w = model.find("encoder/w");
  ASSERT_NE(w, nullptr);
  EXPECT_THAT(w->shape, ElementsAre(2, 3));
  EXPECT_EQ(w->n_elements(), 6);
  EXPECT_EQ(w->data.size(), 24u);
  EXPECT_EQ(model.find("projection"), w);
  EXPECT_EQ(model.find("n")->integer(), 6);
  EXPECT_EQ(model.find("other"), nullptr);
}

template <class F>
void expect_speech_cuts_refused(const std::string& whole, const F& parse, size_t n_least) {
  for (size_t n = n_least; n < whole.size(); ++n) {
    largest_allocation = 0;
    try {
      parse(whole.substr(0, n));
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("m.bin")) << n;
    }
    EXPECT_LE(largest_allocation, std::max<size_t>(4 * whole.size(), 16384)) << n;
  }
}

TEST(Ct2, DamagedFilesAreRefused) {
  const auto parse = [](const std::string& bytes) { Ct2Model::parse(speech_bytes(bytes), "m.bin"); };
  expect_speech_cuts_refused(ct2_example(), parse, 0);
  const auto refused = [&](const std::string& bytes) { return refusal([&] { parse(bytes); }); };
  EXPECT_THAT(refused("GGUF" + std::string(60, '\0')), HasSubstr("not a CTranslate2 model of version 5 or 6"));
  EXPECT_THAT(refused(ct2_model({ct2_variable("w", {1u << 31, 1u << 31}, 0, "")})), HasSubstr("more elements"));
  EXPECT_THAT(refused(ct2_model({ct2_variable("w", {0}, 0, "")})), HasSubstr("size of a dimension"));
  EXPECT_THAT(refused(ct2_model({ct2_variable("w", {4}, 0, "abcd")})), HasSubstr("number of bytes"));
  EXPECT_THAT(refused(ct2_model({ct2_variable("w", {1}, 9, "abcd")})), HasSubstr("type at offset"));
  EXPECT_THAT(refused(ct2_model({ct2_variable("w", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, "abcd")})),
              HasSubstr("the limit is 8"));
  const std::string w = ct2_variable("w", {1}, 0, "abcd");
  EXPECT_THAT(refused(ct2_model({w, w})), HasSubstr("occurs twice"));
  EXPECT_THAT(refused(ct2_model({w}, "WhisperSpec", {{"a", "b"}})), HasSubstr("'b', which does not exist"));
}

TEST(GgmlSpeech, SizesTokensAndTensors) {
  GgmlSpeechFile::Sizes sizes{.n_vocab = 60,
                              .n_audio_ctx = 4,
                              .audio_dim = 32,
                              .n_audio_heads = 2,
                              .n_audio_layers = 1,
                              .n_text_ctx = 8,
                              .text_dim = 32,
                              .n_text_heads = 2,
                              .n_text_layers = 1,
                              .n_mels = 5,
                              .file_type = 2};
  // Two rows of 32 in Q5_0: 22 bytes each.
  const std::string bytes = ggml_speech_file(sizes, {"a", "b", "ab"},
                                             {ggml_tensor("encoder.w", {2, 32}, 6, std::string(44, 'q')),
                                              ggml_tensor("bias", {3, 1}, 0, std::string(12, 'f'))});
  ASSERT_TRUE(GgmlSpeechFile::is_one(speech_bytes(bytes)));
  const GgmlSpeechFile file = GgmlSpeechFile::parse(speech_bytes(bytes), "m.bin");
  EXPECT_EQ(file.sizes().n_mels, 5);
  EXPECT_THAT(file.tokens(), ElementsAre("a", "b", "ab"));
  ASSERT_NE(file.find("encoder.w"), nullptr);
  EXPECT_EQ(file.find("encoder.w")->format, Format::Q5_0);
  EXPECT_THAT(file.find("encoder.w")->shape, ElementsAre(2, 32));
  EXPECT_EQ(file.find("bias")->data.size(), 12u);

  const auto parse = [](const std::string& text) { GgmlSpeechFile::parse(speech_bytes(text), "m.bin"); };
  expect_speech_cuts_refused(bytes, parse, 0);
  const auto refused = [&](const std::string& text) { return refusal([&] { parse(text); }); };
  const auto with = [&](const std::string& tensor) { return ggml_speech_file(sizes, {"a"}, {tensor}); };
  EXPECT_THAT(refused("GGUF" + std::string(60, '\0')), HasSubstr("not one of whisper.cpp's files"));
  EXPECT_THAT(refused(with(ggml_tensor("w", {1, 33}, 6, std::string(44, 'q')))), HasSubstr("not a multiple of the 32"));
  EXPECT_THAT(refused(with(ggml_tensor("w", {1, 32}, 999, std::string(44, 'q')))), HasSubstr("999 is not supported"));
  EXPECT_THAT(refused(with(ggml_tensor("w", {1 << 30, 1 << 30}, 0, ""))), HasSubstr("is out of range"));
  EXPECT_THAT(refused(with(ggml_tensor("w", {-1}, 0, ""))), HasSubstr("is out of range"));
  sizes.n_mels = 0;
  EXPECT_THAT(refused(with("")), HasSubstr("size in the header"));
}

TEST(RankMerges, AreThoseThatMakeTheTokens) {
  const std::vector<std::string_view> tokens = {"a", "b", "c", " ", "ab", "abc", " a", " ab", "cc", "xyz"};
  EXPECT_THAT(rank_merges(tokens), ElementsAre("a b", "ab c", "\u0120 a", "\u0120 ab", "c c"));
}

}  // namespace
}  // namespace ingot
