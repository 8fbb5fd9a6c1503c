// tokenizer.json of several families against Hugging Face tokenizers (tools/tokenizer_goldens/make_hf.py), and the
// refused contents of such files (bad-input rows T02 to T06, S21).
#include "io/huggingface/tokenizer.h"

#include <gmock/gmock.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "io/refused.h"
#include "text/tokenizers/characters.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using testing::HasSubstr;

const fs::path kHfTokenizers = fs::path(INGOT_TEST_DATA) / "tokenizers" / "hf";

std::unique_ptr<Tokenizer> load(const fs::path& directory, const std::vector<int64_t>& ends = {}) {
  return Tokenizer::create(read_hf_tokenizer(HfDirectory(directory.string()), ends)->spec);
}

class HfTokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(HfTokenizerGolden, EncodesLikeTheReference) {
  const auto tokenizer = load(kHfTokenizers / GetParam());
  const auto golden = OrderedJson::parse(read_file((kHfTokenizers / (std::string(GetParam()) + ".json")).string()));
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  const auto expected = golden.at("ids").get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(texts.size(), expected.size());
  ASSERT_GT(texts.size(), 100u);
  const bool keeps_text = std::string_view(GetParam()).find("spm") == std::string_view::npos;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer->encode(texts[i], {.add_special = false, .parse_special = true});
    EXPECT_EQ(ids, expected[i]) << printable(texts[i]);
    if (keeps_text && texts[i].find("<pad_") == texts[i].npos) {
      EXPECT_EQ(tokenizer->decode(ids),
                std::string_view(GetParam()) == "qwen2" ? normalize(texts[i], NormalForm::kC) : texts[i]);
    }
  }
  RecordProperty("compared", std::to_string(texts.size()));  // for tools/models_table.py
}

TEST_P(HfTokenizerGolden, AddsBosAndEosLikeTheReference) {
  const auto tokenizer = load(kHfTokenizers / GetParam());
  const auto golden = OrderedJson::parse(read_file((kHfTokenizers / (std::string(GetParam()) + ".json")).string()));
  auto expected = golden.at("with_special").get<std::vector<int32_t>>();
  if (std::string_view(GetParam()) == "deepseek") {  // flags of tokenizer_config.json, which tokenizers does not read
    expected.insert(expected.begin(), *tokenizer->bos());
    expected.push_back(*tokenizer->eos());
  }
  EXPECT_EQ(tokenizer->encode("x"), expected);
}

INSTANTIATE_TEST_SUITE_P(Families, HfTokenizerGolden,
                         testing::Values("llama3", "qwen2", "starcoder", "deepseek", "phi4", "spm_legacy", "spm_first",
                                         "spm_always", "spm_gemma"),
                         [](const auto& golden) { return std::string(golden.param); });

TEST(HfTokenizer, SentencePieceTextComesBack) {
  for (const char* name : {"spm_legacy", "spm_first", "spm_always", "spm_gemma"}) {
    const auto tokenizer = load(kHfTokenizers / name);
    for (const char* text : {"the cat and  the hat", "a", "x \xF0\x9F\x98\x80\n\n y", "12 345", ""})
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), true), text) << name;
  }
  // Metaspace puts a space only at the very start. An added token within the text removes no space from the following
  // text.
  const auto first = load(kHfTokenizers / "spm_first");
  EXPECT_EQ(first->decode(first->encode("[INST] the [INST]the", {.parse_special = true})), "<s>[INST] the [INST]the");
}

TEST(HfTokenizer, KnowsSpecialTokens) {
  const auto llama3 = load(kHfTokenizers / "llama3", {421, 5});
  EXPECT_EQ(llama3->token_text(*llama3->bos()), "<|bos|>");
  EXPECT_EQ(llama3->token_text(*llama3->eos()), "<|eos|>") << "named by an object with content";
  EXPECT_TRUE(llama3->is_special(*llama3->find("<|im_start|>")));
  EXPECT_TRUE(llama3->is_end(5)) << "from the list";
  EXPECT_FALSE(llama3->is_end(6));
  const auto qwen2 = load(kHfTokenizers / "qwen2");
  EXPECT_EQ(qwen2->bos(), std::nullopt);
  EXPECT_EQ(qwen2->type(*qwen2->find("<tool>")), TokenType::kUserDefined);
  const auto spm = load(kHfTokenizers / "spm_legacy");
  EXPECT_EQ(spm->unk(), 0);
  EXPECT_EQ(spm->type(3), TokenType::kByte);
}

// ---- edits of a file that are refused, or have no effect

class HfTokenizerEdit : public testing::Test {
 protected:
  void use(const char* name) {
    fs::remove_all(directory_);
    fs::copy(kHfTokenizers / name, directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  void write(const char* file, const std::string& text) { std::ofstream(directory_ / file, std::ios::binary) << text; }
  OrderedJson read(const char* file) { return OrderedJson::parse(read_file((directory_ / file).string())); }

  std::unique_ptr<Tokenizer> edited(const std::function<void(OrderedJson&)>& edit,
                                    const char* file = "tokenizer.json") {
    const OrderedJson before = read(file);
    OrderedJson json = before;
    edit(json);
    write(file, json.dump());
    struct Restore {
      HfTokenizerEdit& test;
      const char* file;
      const OrderedJson& json;
      ~Restore() { test.write(file, json.dump()); }
    } restore{*this, file, before};
    return load(directory_);
  }

  void expect_refused(const char* expected, const std::function<void(OrderedJson&)>& edit,
                      const char* file = "tokenizer.json") {
    EXPECT_THAT(refusal([&] { edited(edit, file); }), HasSubstr(expected));
  }

  fs::path directory_ = fs::path(testing::TempDir()) /
                        fmt::format("hf_tokenizer_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(HfTokenizerEdit, UnknownStepsAreNamed) {
  use("llama3");
  auto set = [](const char* key, const OrderedJson& value) { return [=](OrderedJson& json) { json[key] = value; }; };
  expect_refused("the normalizer 'ByteLevel'", set("normalizer", {{"type", "ByteLevel"}}));
  expect_refused("'normalizer.normalizers[1]' at offset",
                 set("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "NFQ"}}}}}));
  expect_refused("'cls' is missing", set("post_processor", {{"type", "BertProcessing"}}));
  expect_refused("the decoder 'WordPiece'", set("decoder", {{"type", "WordPiece"}}));
  expect_refused("neither byte-level BPE nor", set("pre_tokenizer", {{"type", "Whitespace"}}));
  expect_refused("the pre_tokenizer 'Whitespace'", [](OrderedJson& json) {
    json["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Whitespace"}};
  });
  expect_refused("the behavior 'MergedWithNext'",
                 [](OrderedJson& json) { json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext"; });
  expect_refused("the behavior 'Isolated' with invert",
                 [](OrderedJson& json) { json["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; });
  expect_refused("'pre_tokenizer.pretokenizers[0].pattern.Regex' at offset",
                 [](OrderedJson& json) { json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a&&b]"; });
  expect_refused("pattern.Regex' at offset", [](OrderedJson& json) {
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+$";
  });  // T08
  expect_refused("'(a+)+(?m:$)' may take exponential time",
                 [](OrderedJson& json) { json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+$"; });
  expect_refused("may take exponential time", [](OrderedJson& json) {
    json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "(?:x|[w-z])+!"}}}, {"content", ""}};
  });
  expect_refused("pre-tokenizer expression '(a'",
                 [](OrderedJson& json) { json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; });
  expect_refused("'add_prefix_space' after other steps is not supported",
                 [](OrderedJson& json) { json["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; });
  expect_refused("after ByteLevel, the pre_tokenizer 'Digits'", [](OrderedJson& json) {
    json["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}, {"individual_digits", true}});
  });
  expect_refused("'WordLevel' are not supported", [](OrderedJson& json) { json["model"]["type"] = "WordLevel"; });
  expect_refused("expected an array, got object", [](OrderedJson& json) { json["model"]["type"] = "Unigram"; });
  expect_refused("the pre_tokenizer 'ByteLevel'", [](OrderedJson& json) { json["model"]["type"] = "WordPiece"; });
  expect_refused("'model.dropout'", [](OrderedJson& json) { json["model"]["dropout"] = 0.1; });
  expect_refused("'model.end_of_word_suffix'", [](OrderedJson& json) { json["model"]["end_of_word_suffix"] = "</w>"; });
  expect_refused("at most one each", [](OrderedJson& json) {
    auto& single = json["post_processor"]["processors"][1]["single"];
    single.insert(single.begin(), single[0]);
  });
  use("spm_legacy");
  expect_refused("does not write spaces as U+2581", set("normalizer", nullptr));
  expect_refused("the normalizer 'Prepend'",
                 [](OrderedJson& json) { json["normalizer"]["normalizers"][0]["prepend"] = "x"; });
  expect_refused("the pre_tokenizer 'Metaspace'", set("pre_tokenizer", {{"type", "Metaspace"}}));
  use("spm_first");
  expect_refused("'split', with tokens of several words",
                 [](OrderedJson& json) { json["pre_tokenizer"]["split"] = true; });
  expect_refused("'middle' is none of", [](OrderedJson& json) { json["pre_tokenizer"]["prepend_scheme"] = "middle"; });
}

// Published expressions with a look-ahead to the end of the digits at each digit.
TEST_F(HfTokenizerEdit, SlowExpressionsRunAsOthers) {
  use("llama3");
  for (const char* slow : {R"(\d{1,3}(?=(?:\d{3})*\b))", R"((?=(\d{3})+(?!\d)))"}) {
    const auto tokenizer = edited([&](OrderedJson& json) {
      auto& steps = json["pre_tokenizer"]["pretokenizers"];
      steps.insert(
          steps.begin(),
          OrderedJson{{"type", "Split"}, {"pattern", {{"Regex", slow}}}, {"behavior", "Isolated"}, {"invert", false}});
    });
    const std::string digits(1 << 20, '7');
    const std::clock_t start = std::clock();
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(digits, {.add_special = false})), digits);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20.0)
        << slow;  // takes some 0.2 s; quadratic: minutes
  }
}

TEST_F(HfTokenizerEdit, TokensAndMergesAreChecked) {
  use("llama3");
  expect_refused("expected an integer, got str", [](OrderedJson& json) { json["model"]["vocab"]["a"] = "7"; });  // T05
  expect_refused("-1 is out of range", [](OrderedJson& json) { json["model"]["vocab"]["a"] = -1; });
  expect_refused("is out of range", [](OrderedJson& json) { json["model"]["vocab"]["a"] = int64_t{1} << 31; });
  expect_refused("the token id is 100000, but there are only 420 tokens",
                 [](OrderedJson& json) { json["model"]["vocab"]["a"] = 100000; });
  expect_refused("has the id 5, which is that of", [](OrderedJson& json) { json["model"]["vocab"]["more"] = 5; });
  expect_refused("has the id 5, which is that of", [](OrderedJson& json) { json["added_tokens"][0]["id"] = 5; });
  expect_refused("'content' is empty", [](OrderedJson& json) { json["added_tokens"][0]["content"] = ""; });  // T06
  expect_refused("'single_word' is not supported",
                 [](OrderedJson& json) { json["added_tokens"][0]["single_word"] = true; });
  for (const OrderedJson& merge : {OrderedJson("a"), OrderedJson("a b c"), OrderedJson(" a"), OrderedJson("")})  // T04
    expect_refused("is not two tokens with one space",
                   [&](OrderedJson& json) { json["model"]["merges"].push_back(merge); });
  for (const OrderedJson& merge : {OrderedJson({"a"}), OrderedJson({"a", "b", "c"}), OrderedJson(3),
                                   OrderedJson({1, 2}), OrderedJson({"a", ""}), OrderedJson({"a b", "c"})})
    expect_refused("'model.merges[", [&](OrderedJson& json) { json["model"]["merges"].push_back(merge); });
  expect_refused("not in the vocabulary", [](OrderedJson& json) {
    json["model"]["merges"].push_back({"a", "nothing"});
  });
  expect_refused("occurs twice",
                 [](OrderedJson& json) { json["model"]["merges"].push_back(json["model"]["merges"][0]); });
  expect_refused("'vocab' is missing", [](OrderedJson& json) { json["model"].erase("vocab"); });
  use("spm_legacy");
  expect_refused("is a byte token, but '<0xZZ>'",
                 [](OrderedJson& json) { json["model"]["vocab"]["<0xZZ>"] = 659; });  // T03
  expect_refused("both stand for the byte", [](OrderedJson& json) { json["model"]["vocab"]["<0x0a>"] = 659; });
}

TEST_F(HfTokenizerEdit, ConfigFilesAddTokensAndNames) {
  use("llama3");
  const auto more = edited(
      [](OrderedJson& json) {
        json["added_tokens_decoder"] = {{"5", {{"content", "ignored"}}},
                                        {"430", {{"content", "<new>"}, {"special", true}}}};
      },
      "tokenizer_config.json");
  EXPECT_EQ(more->find("<new>"), 430);
  EXPECT_NE(more->token_text(5), "ignored") << "tokenizer.json has it already";
  EXPECT_EQ(more->type(427), TokenType::kUnused) << "no one names it";
  expect_refused(
      "the key is not a token id",
      [](OrderedJson& json) {
        json["added_tokens_decoder"] = {{"x5", {{"content", "a"}}}};
      },
      "tokenizer_config.json");
  expect_refused(
      "the key is not a token id",
      [](OrderedJson& json) {
        json["added_tokens_decoder"] = {{"99999999999", {{"content", "a"}}}};
      },
      "tokenizer_config.json");
  EXPECT_FALSE(edited([](OrderedJson& json) { json["add_bos_token"] = false; }, "tokenizer_config.json")->add_bos());
  // S21: file names are not followed.
  EXPECT_EQ(edited([](OrderedJson& json) { json["vocab_file"] = "/etc/passwd"; }, "tokenizer_config.json")->n_vocab(),
            424);
  write("tokenizer_config.json", "{}");
  write("special_tokens_map.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_EQ(load(directory_)->eos(), load(directory_)->find("<|im_end|>"));
  fs::remove(directory_ / "tokenizer.json");
  EXPECT_THAT(refusal([&] { load(directory_); }), HasSubstr("tokenizer.json: is missing"));
}

}  // namespace
}  // namespace ingot
