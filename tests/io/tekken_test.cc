// tekken.json against mistral-common's Tekkenizer (tools/tokenizer_goldens/make_tekken.py).
#include "io/huggingface/tekken.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
const fs::path kTekken = fs::path(INGOT_TEST_DATA) / "tokenizers" / "tekken";

TEST(Tekken, TokensAreThoseOfMistralCommon) {
  const auto spec = read_hf_tokenizer(HfDirectory(kTekken.string()), {});  // the directory has no tokenizer.json
  const auto tokenizer = Tokenizer::create(spec->spec);
  const auto expected = nlohmann::json::parse(read_file((kTekken / "expected.json").string()));
  EXPECT_EQ(spec->spec.tokens.size(), expected["n_tokens"].get<size_t>());
  for (const auto& row : expected["texts"]) {
    const std::string text = row["text"];
    const std::vector<int32_t> ids = row["ids"];
    EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_EQ(tokenizer->encode("a", {.add_special = true}).at(0), 1);
}

// The message for an edited copy of the golden's file.
std::string complaint(const std::string& from, const std::string& to) {
  const fs::path folder = fs::path(testing::TempDir()) / "tekken_faults";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << "{}";
  std::string text = read_file((kTekken / "tekken.json").string());
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  std::ofstream(folder / "tekken.json") << text.replace(at, from.size(), to);
  std::string message;
  try {
    Tokenizer::create(read_tekken(HfDirectory(folder.string()))->spec);
  } catch (const Error& error) {
    message = error.what();
  }
  fs::remove_all(folder);
  return message;
}

TEST(Tekken, FaultsAreNamed) {
  const std::pair<const char*, const char*> edits[] = {{"\"rank\": 1,", "is not 1, its place"},
                                                       {"\"token_bytes\": \"AQ==\"", "base64"}};
  EXPECT_NE(complaint(edits[0].first, "\"rank\": 7,").find(edits[0].second), std::string::npos);
  EXPECT_NE(complaint(edits[1].first, "\"token_bytes\": \"A*==\"").find(edits[1].second), std::string::npos);
  EXPECT_NE(complaint(edits[1].first, "\"token_bytes\": \"AA==\"").find("occurs twice"), std::string::npos);
  EXPECT_NE(complaint("\"default_vocab_size\": ", "\"default_vocab_size\": 9").find("expected"), std::string::npos);
  EXPECT_NE(complaint("\"</s>\"", "\"</x>\"").find("</s>"), std::string::npos);
}

}  // namespace
}  // namespace ingot
