// Cross-encoders against transformers (the output of their classifiers) and sentence-transformers (scores), from GGUF
// files and from directories: tools/goldens/make_rankers.py. And the input that Embedder refuses for them.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "model/embedders.h"

namespace ingot {
namespace {

using testing::HasSubstr;

const fs::path kRankers = fs::path(INGOT_TEST_DATA) / "rankers";

struct RankerGolden {
  std::string query;
  std::vector<std::string> documents;
  std::vector<std::vector<int32_t>> ids;
  std::vector<double> logits, scores;
};

RankerGolden read_ranker_golden(const std::string& name) {
  const auto json = nlohmann::json::parse(read_file((kRankers / (name + ".json")).string()));
  return {json["query"], json["documents"], json["ids"], json["logits"], json["scores"]};
}

EmbedOptions on(const char* device) { return {.backend = {.device = device, .n_threads = 2}}; }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// ("bert", "gguf"), ("bert", "directory"), ...
class Rankers : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  const std::string name_ = std::get<0>(GetParam()), form_ = std::get<1>(GetParam());
  const RankerGolden golden_ = read_ranker_golden(name_);
  const fs::path path_ = kRankers / (name_ + (form_ == "gguf" ? ".gguf" : ""));
};

TEST_P(Rankers, ScoresEqualSentenceTransformers) {
  double largest[2] = {};
  for (const char* device : {"ref", "cpu"}) {
    const auto embedder = open_embedder(path_, on(device));
    ASSERT_TRUE(embedder->ranks());
    const Embedder::Scores scores = embedder->score(golden_.query, golden_.documents, true);
    ASSERT_EQ(scores.values.size(), golden_.documents.size());
    size_t n_tokens = 0;
    for (const auto& ids : golden_.ids) n_tokens += ids.size();
    EXPECT_EQ(scores.n_tokens, n_tokens);
    for (size_t i = 0; i < golden_.documents.size(); ++i) {
      // A directory sets its own activation; for a GGUF file it is always the sigmoid.
      const double expected = form_ == "gguf" ? sigmoid(golden_.logits[i]) : golden_.scores[i];
      const bool is_ref = device == std::string("ref");
      EXPECT_NEAR(scores.values[i], expected, is_ref ? 1e-4 : 3e-3) << device << ": " << golden_.documents[i];
      largest[is_ref ? 0 : 1] = std::max(largest[is_ref ? 0 : 1], std::abs(scores.values[i] - expected));
    }
  }
  RecordProperty("ref", fmt::format("{:.1e}", largest[0]));  // for tools/models_table.py
  RecordProperty("cpu", fmt::format("{:.1e}", largest[1]));
}

// A pair has the same score alone and in a batch.
TEST_P(Rankers, BatchesDoNotChangeScores) {
  EmbedOptions options = on("ref");
  const auto embedder = open_embedder(path_, options);
  options.max_batch_tokens = 1;
  const auto one_by_one = open_embedder(path_, options);
  const std::vector<float> all = embedder->score(golden_.query, golden_.documents, true).values;
  EXPECT_EQ(one_by_one->score(golden_.query, golden_.documents, true).values, all);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(embedder->score(golden_.query, {&golden_.documents[i], 1}, true).values, std::vector<float>{all[i]}) << i;
  EXPECT_TRUE(embedder->score(golden_.query, {}, true).values.empty());
}

TEST_P(Rankers, RefuseWhatIsTooLong) {
  const auto embedder = open_embedder(path_, on("ref"));
  std::string text;
  for (int i = 0; i < 700; ++i) text += "words ";
  const std::vector<std::string> documents = {"short", text};
  try {
    embedder->score("query", documents);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the query and document 1 have"));
  }
  EXPECT_EQ(embedder->score("query", documents, true).values.size(), 2u);
  EXPECT_THROW(embedder->embed(golden_.ids), Error) << "it has no embeddings";
}

INSTANTIATE_TEST_SUITE_P(Models, Rankers,
                         testing::Values(std::tuple("bert", "gguf"), std::tuple("bert", "directory"),
                                         std::tuple("xlm_roberta", "gguf"), std::tuple("xlm_roberta", "directory"),
                                         std::tuple("modern_bert", "gguf"), std::tuple("modern_bert", "directory"),
                                         std::tuple("qwen3_score", "gguf"), std::tuple("qwen3_score", "directory"),
                                         std::tuple("qwen3_yes", "gguf"), std::tuple("qwen3_yes", "directory")),
                         [](const auto& i) { return std::get<0>(i.param) + "_" + std::get<1>(i.param); });

// The tokens of pairs, cut and whole, equal those of the tokenizers library; "longest_first" has cut document 4.
TEST(Ranker, PairsEqualTokenizers) {
  for (const std::string name : {"bert", "xlm_roberta", "modern_bert", "qwen3_score"}) {
    const RankerGolden golden = read_ranker_golden(name);
    const size_t n_ctx = golden.ids[4].size();
    for (const std::string& path : {(kRankers / name).string(), (kRankers / (name + ".gguf")).string()}) {
      const auto tokenizer = open_checkpoint(path)->tokenizer();
      for (size_t i = 0; i < golden.documents.size(); ++i) {
        size_t n_first = 0;
        EXPECT_EQ(tokenizer->encode_pair(golden.query, golden.documents[i], n_ctx, n_first), golden.ids[i])
            << path << " " << i;
        EXPECT_EQ(n_first, golden.ids[5].size() - 1) << "the query, and what is around it";
      }
    }
  }
}

TEST(Ranker, PairsOfLongTextsAreCutFairly) {
  const auto tokenizer = open_checkpoint((kRankers / "bert").string())->tokenizer();
  size_t n_first = 0;
  const std::string many = "the the the the the the the the", few = "of of";
  auto count = [&](const std::string& a, const std::string& b, size_t most) {
    const size_t n = tokenizer->encode_pair(a, b, most, n_first).size();
    return std::pair(n_first - 2, n - n_first - 1);  // [CLS] a [SEP] b [SEP]
  };
  EXPECT_EQ(count(many, few, 100), std::pair(size_t{8}, size_t{2}));
  EXPECT_EQ(count(many, few, 10), std::pair(size_t{5}, size_t{2}));
  EXPECT_EQ(count(few, many, 10), std::pair(size_t{2}, size_t{5}));
  EXPECT_EQ(count(many, many, 12), std::pair(size_t{5}, size_t{4}));
  EXPECT_EQ(count(many, many, 3), std::pair(size_t{0}, size_t{0}));
}

TEST(Ranker, PromptsKeepWhatIsAroundTheDocument) {
  const auto embedder = open_embedder(kRankers / "qwen3_yes.gguf", {.backend = {.device = "ref"}, .n_ctx = 100});
  std::string document;
  for (int i = 0; i < 500; ++i) document += i % 3 == 0 ? "\u00E9" : "x";
  const Embedder::Scores cut = embedder->score("q", {&document, 1}, true);
  EXPECT_LE(cut.n_tokens, 100u);
  EXPECT_GT(cut.n_tokens, 80u);
  // Control tokens of the prompt are not recognised in a document.
  const std::string tokens = "[SEP]", letters = "[SEQ]";
  EXPECT_EQ(embedder->score("q", {&tokens, 1}).n_tokens, embedder->score("q", {&letters, 1}).n_tokens);
}

// ---- refused input

TEST(Ranker, RefusesModelsThatEmbed) {
  const std::string document = "text";
  const auto embedder = open_embedder(kEncoders / "bert.gguf", on("ref"));
  EXPECT_FALSE(embedder->ranks());
  EXPECT_THAT(refusal([&] { embedder->score("query", {&document, 1}); }), HasSubstr("embeds texts and cannot rank"));
  EmbedOptions options = on("ref");
  options.pooling = "rank";
  EXPECT_THAT(refusal([&] { open_embedder(kEncoders / "bert.gguf", options); }),
              HasSubstr("this model has no known classifier"));
}

// A classifier with three classes.
class ThreeClasses final : public WeightSource {
 public:
  std::string name() const override { return "feelings"; }
  Dialect dialect() const override { return Dialect::kHf; }
  bool find(const std::string& name, int64_t, int64_t, HostTensor& out) override {
    if (name != "score.weight") return false;
    out = {.format = Format::F32, .n_out = 3, .n_in = 48, .data = reinterpret_cast<const uint8_t*>(values_.data())};
    return true;
  }
  size_t total_bytes() const override { return values_.size() * sizeof(float); }

 private:
  const std::vector<float> values_ = std::vector<float>(3 * 48);
};

TEST(Ranker, RefusesModelsThatSort) {
  ThreeClasses source;
  EXPECT_THAT(
      refusal([&] { read_classifier(*open_checkpoint((kRankers / "qwen3_score").string()), source, 48, false); }),
      HasSubstr("feelings: the classifier has 3 classes"));
  EXPECT_THAT(
      refusal([&] { read_classifier(*open_checkpoint((kRankers / "qwen3_score").string()), source, 47, false); }),
      HasSubstr("'score.weight' is [3, 48]: expected [3, 47]"));
}

// The encoder of a cross-encoder can compute embeddings if the caller chooses a pooling.
TEST(Ranker, PoolingMayBeTold) {
  EmbedOptions options = on("ref");
  options.pooling = "mean";
  const auto embedder = open_embedder(kRankers / "bert.gguf", options);
  EXPECT_FALSE(embedder->ranks());
  EXPECT_EQ(embedder->embed(std::vector<std::vector<int32_t>>{{2, 5, 3}}).size(), 48u);
}

class RankerDirectory : public testing::Test {
 protected:
  RankerDirectory() {
    fs::remove_all(path_);
    fs::copy(kRankers / "modern_bert", path_, fs::copy_options::recursive);
  }
  ~RankerDirectory() override { fs::remove_all(path_); }
  std::string config(const std::function<void(nlohmann::ordered_json&)>& change) {
    auto json = nlohmann::ordered_json::parse(read_file((kRankers / "modern_bert" / "config.json").string()));
    change(json);
    std::ofstream(path_ / "config.json") << json.dump();
    return refusal([&] { open_embedder(path_, on("ref")); });
  }
  const fs::path path_ = fs::path(testing::TempDir()) /
                         fmt::format("ranker_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RankerDirectory, ConfigsMustBeKnown) {
  EXPECT_EQ(config([](auto&) {}), "was accepted");
  EXPECT_THAT(config([](auto& j) { j["classifier_pooling"] = "max"; }), HasSubstr("'classifier_pooling'"));
  EXPECT_THAT(config([](auto& j) { j["classifier_activation"] = "relu6"; }), HasSubstr("'relu6' is not supported"));
  EXPECT_THAT(config([](auto& j) { j["sentence_transformers"]["activation_fn"] = "torch.nn.Softmax"; }),
              HasSubstr("'torch.nn.Softmax'"));
  EXPECT_THAT(config([](auto& j) { j["architectures"] = "x"; }), HasSubstr("architectures"));
}

// A model that answers a question in words. Its template contains the question.
TEST(Ranker, TheTemplateAsks) {
  const fs::path copy = fs::path(testing::TempDir()) / "ranker_that_is_asked";
  auto accepted = [&](const std::function<void()>& change) {
    fs::remove_all(copy);
    fs::copy(kRankers / "qwen3_yes", copy, fs::copy_options::recursive);
    change();
    return refusal([&] { open_embedder(copy, on("ref")); });
  };
  auto write = [&](const char* file, const char* text) { std::ofstream(copy / file) << text; };
  EXPECT_EQ(accepted([] {}), "was accepted");
  EXPECT_THAT(accepted([&] { fs::remove(copy / "chat_template.jinja"); }), HasSubstr("needs a chat template"));
  EXPECT_THAT(accepted([&] { write("chat_template.jinja", "{{ messages[0].content }}"); }),
              HasSubstr("leaves out the {document}"));
  EXPECT_THAT(accepted([&] { write("chat_template.jinja", "{{ messages[0"); }), HasSubstr("line 1"));
  EXPECT_THAT(
      accepted([&] { write("1_LogitScore/config.json", R"({"true_token_id": 40, "false_token_id": 100000})"); }),
      HasSubstr("'false_token_id'"));
  EXPECT_THAT(accepted([&] { write("1_LogitScore/config.json", "{}"); }), HasSubstr("'true_token_id' is missing"));
  EXPECT_EQ(accepted([&] { write("1_LogitScore/config.json", R"({"true_token_id": 40})"); }), "was accepted");
  fs::remove_all(copy);
}

// The pooling that config.json names is used.
TEST_F(RankerDirectory, ClassifierPoolingIsRead) {
  const RankerGolden golden = read_ranker_golden("modern_bert");
  const float mean = open_embedder(path_, on("ref"))->score(golden.query, {&golden.documents[1], 1}).values[0];
  config([](auto& j) { j["classifier_pooling"] = "cls"; });
  const float cls = open_embedder(path_, on("ref"))->score(golden.query, {&golden.documents[1], 1}).values[0];
  EXPECT_NEAR(mean, golden.scores[1], 1e-4);
  EXPECT_GT(std::abs(mean - cls), 1e-3);
}

}  // namespace
}  // namespace ingot
