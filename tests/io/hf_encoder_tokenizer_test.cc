// WordPiece and Unigram: tokenizer.json against Hugging Face tokenizers, and a Unigram model in a GGUF file against
// sentencepiece (tools/tokenizer_goldens/make_encoders.py); and the refused contents of such files.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "io/huggingface/normalizer.h"
#include "io/huggingface/tokenizer.h"
#include "io/refused.h"
#include "text/tokenizers/normalizer.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Object = nlohmann::ordered_json;
using testing::HasSubstr;

const fs::path kEncoders = fs::path(INGOT_TEST_DATA) / "tokenizers" / "encoders";

Object golden(const std::string& name) { return Object::parse(read_file((kEncoders / (name + ".json")).string())); }

std::unique_ptr<Tokenizer> load_encoder(const fs::path& directory) {
  return Tokenizer::create(read_hf_tokenizer(HfDirectory(directory.string()), {})->spec);
}

class HfEncoderTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(HfEncoderTokenizer, EncodesAndDecodesAsTheReference) {
  const auto tokenizer = load_encoder(kEncoders / GetParam());
  const Object expected = golden(GetParam());
  const auto texts = expected.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 200u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer->encode(texts[i], {.add_special = false, .parse_special = true});
    EXPECT_EQ(ids, expected["ids"][i].get<std::vector<int32_t>>()) << printable(texts[i]);
    const std::string_view name = GetParam();
    const bool one_space =
        name == "unigram_bytes" || name == "t5";  // Metaspace's decoder takes a second leading space too
    const std::string decoded = tokenizer->decode(ids, true);
    if (!one_space) {
      EXPECT_EQ(decoded, expected["decoded"][i].get<std::string>()) << printable(texts[i]);
    }
  }
  RecordProperty("compared", std::to_string(texts.size()));  // for tools/models_table.py
}

TEST_P(HfEncoderTokenizer, AddsWhatTheReferenceAdds) {
  const auto tokenizer = load_encoder(kEncoders / GetParam());
  const Object expected = golden(GetParam());
  for (size_t i = 0; i < expected["with_special"].size(); ++i)
    EXPECT_EQ(tokenizer->encode(expected["texts"][i].get<std::string>(), {.parse_special = true}),
              expected["with_special"][i].get<std::vector<int32_t>>());
}

INSTANTIATE_TEST_SUITE_P(Families, HfEncoderTokenizer,
                         testing::Values("bert_uncased", "bert_cased", "bert_accents", "xlm_roberta", "t5",
                                         "unigram_bytes"),
                         [](const auto& name) { return std::string(name.param); });

TEST(HfNormalizer, EveryStepEqualsTheReference) {
  const Object expected = golden("normalizers");
  const auto texts = expected.at("texts").get<std::vector<std::string>>();
  size_t n_changed = 0;
  for (const Object& step : expected.at("steps")) {
    const auto document = JsonDocument::parse(Object{{"normalizer", step.at("normalizer")}}.dump(), "golden");
    const Normalizer normalizer(read_hf_normalizer(document.root()));
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string normalized = normalizer.apply(texts[i]);
      EXPECT_EQ(normalized, step["normalized"][i].get<std::string>()) << step.at("name") << " " << printable(texts[i]);
      n_changed += normalized != texts[i];
    }
  }
  EXPECT_GT(n_changed, 1000u);
  RecordProperty("compared", std::to_string(texts.size() * expected.at("steps").size()));
}

// Changes a file, and returns the loader's message.
class HfEncoderTokenizerEdit : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(directory_); }
  std::string refused(const char* name, const std::function<void(Object&)>& edit) {
    fs::remove_all(directory_);
    fs::copy(kEncoders / name, directory_);
    const fs::path file = directory_ / "tokenizer.json";
    Object json = Object::parse(read_file(file.string()));
    edit(json);
    std::ofstream(file, std::ios::binary) << json.dump();
    return refusal([&] { load_encoder(directory_); });
  }
  fs::path directory_ =
      fs::path(testing::TempDir()) /
      fmt::format("hf_encoder_tokenizer_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(HfEncoderTokenizerEdit, WordPieceModelsMustMakeSense) {
  EXPECT_THAT(refused("bert_uncased", [](Object& j) { j["model"]["continuing_subword_prefix"] = ""; }),
              HasSubstr("is empty"));
  EXPECT_THAT(refused("bert_uncased", [](Object& j) { j["model"]["max_input_chars_per_word"] = 0; }),
              HasSubstr("max_input_chars_per_word"));
  EXPECT_THAT(refused("bert_uncased", [](Object& j) { j["model"]["unk_token"] = "[NONE]"; }),
              HasSubstr("names no unknown token"));
  EXPECT_THAT(refused("bert_uncased",
                      [](Object& j) {
                        j["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
                      }),
              HasSubstr("'UnicodeScripts'"));
  EXPECT_THAT(refused("bert_uncased",
                      [](Object& j) {
                        j["decoder"] = {{"type", "CTC"}};
                      }),
              HasSubstr("the decoder 'CTC'"));
  EXPECT_THAT(refused("bert_accents", [](Object& j) { j["post_processor"]["sep"] = {"[SEP]"}; }),
              HasSubstr("expected a token and its id"));
  EXPECT_THAT(refused("bert_accents",
                      [](Object& j) {
                        j["post_processor"]["cls"] = {"[CLS]", -1};
                      }),
              HasSubstr("post_processor.cls[1]"));
}

TEST_F(HfEncoderTokenizerEdit, UnigramModelsMustMakeSense) {
  EXPECT_THAT(refused("t5", [](Object& j) { j["model"]["vocab"][5] = {"x"}; }),
              HasSubstr("expected a token and its score"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["model"]["vocab"][5] = {"", 1.0}; }), HasSubstr("'model.vocab[5]'"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["model"]["vocab"][5][1] = "high"; }), HasSubstr("model.vocab[5][1]"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["model"]["unk_id"] = nullptr; }), HasSubstr("names no unknown token"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["model"]["unk_id"] = 1 << 20; }), HasSubstr("names no unknown token"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AA*="; }),
              HasSubstr("is not base64"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AAA"; }),
              HasSubstr("is not base64"));
  EXPECT_THAT(refused("t5", [](Object& j) { j["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "/////w=="; }),
              HasSubstr("precompiled_charsmap: its trie"));
  EXPECT_THAT(refused("unigram_bytes", [](Object& j) { j["model"]["vocab"][3][0] = "<0x01>x"; }),
              HasSubstr("255 byte tokens"));
}

}  // namespace
}  // namespace ingot
