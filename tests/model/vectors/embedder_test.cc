// Encoders against Hugging Face transformers (the vectors of every token) and sentence-transformers (embeddings of
// texts), from GGUF files and from directories: tools/goldens/make_encoders.py. And the input that Embedder refuses.

#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "base/error.h"
#include "model/embedders.h"
#include "model/loader.h"
#include "test_seed.h"

namespace ingot {
namespace {

using testing::HasSubstr;

struct EncoderGolden {
  std::string pooling;
  std::vector<std::vector<int32_t>> sequences, ids;
  std::vector<std::string> texts;
  std::vector<float> hidden;  // [n_tokens, dim]
  nlohmann::json embeddings;
};

EncoderGolden read_encoder_golden(const std::string& name) {
  const auto json = nlohmann::json::parse(read_file((kEncoders / (name + ".json")).string()));
  return {json["pooling"],   json["sequences"], json["ids"], json["texts"], read_npy(kEncoders / (name + ".npy")),
          json["embeddings"]};
}

std::vector<std::string> encoder_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kEncoders))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

EmbedOptions each_token(const char* device = "ref") {
  return {.backend = {.device = device, .n_threads = 2}, .pooling = "none", .normalize = false};
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += double{a[i]} * b[i], aa += double{a[i]} * a[i], bb += double{b[i]} * b[i];
  return ab / std::sqrt(aa * bb);
}

// ("bert", "gguf"), ("bert", "directory"), ...
class Encoders : public testing::TestWithParam<std::tuple<std::string, const char*>> {
 protected:
  const EncoderGolden golden_ = read_encoder_golden(std::get<0>(GetParam()));
  const fs::path path_ =
      kEncoders / (std::get<0>(GetParam()) + (std::string(std::get<1>(GetParam())) == "gguf" ? ".gguf" : ""));
};

TEST_P(Encoders, RefEqualsTransformers) {
  const auto embedder = open_embedder(path_, each_token());
  const double error = largest_difference(embedder->embed(golden_.sequences), golden_.hidden);
  EXPECT_LT(error, 1e-4);
  RecordProperty("error", fmt::format("{:.1e}", error));  // for tools/models_table.py
  RecordProperty("pooling", golden_.pooling);
}

TEST_P(Encoders, CpuEqualsRef) {
  const auto embedder = open_embedder(path_, each_token("cpu"));
  const double error = largest_difference(embedder->embed(golden_.sequences), golden_.hidden);
  EXPECT_LT(error, 5e-3);
  RecordProperty("error", fmt::format("{:.1e}", error));
}

// Each rank has some of the heads and columns. Two batches, so that ranks meet again.
TEST_P(Encoders, TwoRanksEqualTransformers) {
  for (const auto& [device, bound] : {std::pair{"ref", 1e-4}, {"cpu", 5e-3}}) {
    EmbedOptions options = each_token(device);
    options.parallel.n_ranks = 2;
    options.n_ctx = options.max_batch_tokens = 64;
    const auto embedder = open_embedder(path_, options);
    EXPECT_LT(largest_difference(embedder->embed(golden_.sequences), golden_.hidden), bound) << device;
  }
}

TEST_P(Encoders, BatchesDoNotChangeVectors) {
  EmbedOptions options = each_token();
  options.n_ctx = options.max_batch_tokens = 64;
  const auto embedder = open_embedder(path_, options);
  EXPECT_LT(largest_difference(embedder->embed(golden_.sequences), golden_.hidden), 1e-4) << "several batches";
  std::vector<float> one_by_one;
  for (const auto& sequence : golden_.sequences) {
    const std::vector<float> rows = embedder->embed({&sequence, 1});
    one_by_one.insert(one_by_one.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(one_by_one, embedder->embed(golden_.sequences));
}

TEST_P(Encoders, TextsEqualSentenceTransformers) {
  double least = 1;
  for (const char* device : {"ref", "cpu"}) {
    const auto embedder = open_embedder(path_, {.backend = {.device = device, .n_threads = 2}});
    EXPECT_EQ(embedder->pooling(), golden_.pooling);
    const bool has_prompts = !embedder->facts().prompts.empty();
    EXPECT_EQ(has_prompts, std::string_view(std::get<1>(GetParam())) == "directory");
    for (const char* prompt : {"plain", "query"}) {
      std::vector<std::vector<int32_t>> ids;
      for (const std::string& text : golden_.texts)
        ids.push_back(embedder->tokenizer().encode((prompt == std::string("query") ? "the query: " : "") + text));
      if (prompt == std::string("plain")) {
        EXPECT_EQ(ids, golden_.ids);
      }
      const std::vector<float> rows = embedder->embed(ids);
      ASSERT_EQ(rows.size(), golden_.texts.size() * embedder->dim());
      for (size_t i = 0; i < golden_.texts.size(); ++i) {
        const auto expected = golden_.embeddings[prompt][i].get<std::vector<float>>();
        const std::span<const float> row(&rows[i * embedder->dim()], embedder->dim());
        EXPECT_GT(cosine(row, expected), 0.99995) << golden_.texts[i];
        least = std::min(least, cosine(row, expected));
        EXPECT_NEAR(cosine(row, row) * std::inner_product(row.begin(), row.end(), row.begin(), 0.0), 1.0, 1e-5)
            << "not of length 1";
      }
    }
  }
  RecordProperty("cosine", fmt::format("{:.1e}", 1 - least));
}

INSTANTIATE_TEST_SUITE_P(Models, Encoders,
                         testing::Combine(testing::ValuesIn(encoder_names()), testing::Values("gguf", "directory")),
                         [](const auto& i) { return std::get<0>(i.param) + "_" + std::get<1>(i.param); });

TEST(Embedder, PoolsAsTold) {
  const EncoderGolden golden = read_encoder_golden("bert");
  for (const char* pooling : {"cls", "mean", "last"}) {
    const auto embedder =
        open_embedder(kEncoders / "bert.gguf", {.backend = {.device = "ref"}, .pooling = pooling, .normalize = false});
    const size_t dim = embedder->dim();
    std::vector<float> expected;
    size_t begin = 0;
    for (const auto& sequence : golden.sequences) {
      for (size_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (size_t t = 0; t < sequence.size(); ++t) sum += golden.hidden[(begin + t) * dim + i];
        const size_t row = pooling == std::string("cls") ? begin : begin + sequence.size() - 1;
        expected.push_back(pooling == std::string("mean")
                               ? static_cast<float>(sum / static_cast<double>(sequence.size()))
                               : golden.hidden[row * dim + i]);
      }
      begin += sequence.size();
    }
    EXPECT_LT(largest_difference(embedder->embed(golden.sequences), expected), 1e-4) << pooling;
  }
}

TEST(Embedder, ManyTextsTakeManyBatches) {
  const auto embedder =
      open_embedder(kEncoders / "bert.gguf", {.backend = {.device = "cpu", .n_threads = 2}, .max_batch_tokens = 100});
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::vector<std::vector<int32_t>> texts(700);
  for (auto& text : texts) {
    text.resize(1 + rng() % 30);
    for (int32_t& id : text) id = static_cast<int32_t>(rng() % 400);
  }
  const std::vector<float> rows = embedder->embed(texts);
  ASSERT_EQ(rows.size(), texts.size() * embedder->dim());
  for (int round = 0; round < 20; ++round) {
    const size_t i = rng() % texts.size();
    const std::vector<float> alone = embedder->embed({&texts[i], 1});
    EXPECT_GT(cosine(alone, {&rows[i * embedder->dim()], alone.size()}), 0.999999) << i;
  }
}

// In a causal model, the chunks of a long text give what the whole text gives: with each attention and each pooling.
TEST(Embedder, LongTextsAreComputedInChunks) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  constexpr int kMost = 60;
  for (const char* name : {"llama", "gemma2", "gpt_oss", "deepseek2_lite"}) {
    for (const char* pooling : {"none", "cls", "mean", "last"}) {
      const auto open = [&](int n_batch) {
        return open_embedder(
            kModels / (name + std::string(".gguf")),
            {.backend = {.device = "ref"}, .n_ctx = kMost, .max_batch_tokens = n_batch, .pooling = pooling});
      };
      const int n_batch = std::uniform_int_distribution(1, kMost / 2)(rng);
      const auto whole = open(kMost), chunked = open(n_batch);
      EXPECT_EQ(chunked->max_tokens(), kMost);
      EXPECT_EQ(chunked->max_batch_tokens(), n_batch);
      std::vector<std::vector<int32_t>> texts(4);
      for (auto& text : texts) {
        text.resize(std::uniform_int_distribution(1, kMost)(rng));
        for (int32_t& id : text) id = static_cast<int32_t>(rng() % static_cast<uint32_t>(whole->n_vocab()));
      }
      const uint64_t before = chunked->progress();
      EXPECT_LT(largest_difference(chunked->embed(texts), whole->embed(texts)), 1e-4)
          << name << " " << pooling << " in chunks of " << n_batch;
      EXPECT_NE(chunked->progress(), before);
    }
  }
  EXPECT_EQ(
      open_embedder(kEncoders / "bert.gguf", {.backend = {.device = "ref"}, .max_batch_tokens = 5})->max_batch_tokens(),
      70)
      << "a token of an encoder sees its whole text";
}

TEST(Embedder, ThreadsMayShareIt) {
  const EncoderGolden golden = read_encoder_golden("nomic_bert");
  const auto embedder = open_embedder(kEncoders / "nomic_bert.gguf", {.backend = {.device = "cpu", .n_threads = 2}});
  const std::vector<float> expected = embedder->embed(golden.sequences);
  std::vector<std::vector<float>> rows(4);
  std::vector<std::thread> threads;
  for (auto& mine : rows)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) mine = embedder->embed(golden.sequences);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : rows) EXPECT_EQ(mine, expected);
}

TEST(Embedder, CutsLongTexts) {
  const auto embedder = open_embedder(kEncoders / "bert.gguf", {.backend = {.device = "ref"}, .n_ctx = 4});
  EXPECT_EQ(embedder->max_tokens(), 4);
  EXPECT_EQ(embedder->cut({2, 10, 11, 3}), (std::vector<int32_t>{2, 10, 11, 3}));
  EXPECT_EQ(embedder->cut({2, 10, 11, 12, 13, 3}), (std::vector<int32_t>{2, 10, 11, 3})) << "[SEP] stays";
}

// ---- refused input

TEST(Embedder, RefusesTexts) {
  const auto embedder = open_embedder(kEncoders / "bert.gguf", {.backend = {.device = "ref"}});
  auto embed = [&](std::vector<std::vector<int32_t>> texts) { return refusal([&] { embedder->embed(texts); }); };
  EXPECT_THAT(embed({{2, 3}, {}}), HasSubstr("text 1 has no tokens"));
  EXPECT_THAT(embed({std::vector<int32_t>(71, 5)}), HasSubstr("text 0 has 71 tokens, but the model reads at most 70"));
  EXPECT_THAT(embed({{5}, {5, -1}}), HasSubstr("text 1 has the token -1"));
  EXPECT_THAT(embed({{422}}), HasSubstr("(0 to 421)"));
  EXPECT_EQ(embedder->embed(std::vector<std::vector<int32_t>>{}).size(), 0u);
}

TEST(Embedder, RefusesOptions) {
  EXPECT_THAT(refusal([] { open_embedder(kEncoders / "bert.gguf", {.pooling = "max"}); }),
              HasSubstr("pooling 'max' is not known"));
  EXPECT_THAT(refusal([] { open_embedder(kEncoders / "bert.gguf", {.n_ctx = 71}); }), HasSubstr("maximum of 70"));
}

TEST(Embedder, AFaultOfOneRank) {
  EmbedOptions options = each_token();
  options.parallel.n_ranks = 2;
  options.parallel.devices = {"ref", "nothing"};
  try {
    open_embedder(kEncoders / "bert.gguf", options);
    FAIL() << "was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown device 'nothing'"));
  }
}

TEST(Embedder, RefusesModelsThatWrite) {
  EXPECT_THAT(refusal([] { open_embedder(kModels / "llama.gguf", {}); }), HasSubstr("name no pooling for embeddings"));
  const auto told = open_embedder(kModels / "llama.gguf", {.backend = {.device = "ref"}, .pooling = "last"});
  EXPECT_EQ(told->embed(std::vector<std::vector<int32_t>>{{1, 2, 3}}).size(), static_cast<size_t>(told->dim()));
}

class EncoderDirectory : public testing::Test {
 protected:
  EncoderDirectory() {
    fs::remove_all(path_);
    fs::copy(kEncoders / "modern_bert", path_, fs::copy_options::recursive);
  }
  ~EncoderDirectory() override { fs::remove_all(path_); }
  void edit(const char* file, const std::function<void(nlohmann::ordered_json&)>& change) {
    auto json = nlohmann::ordered_json::parse(read_file((path_ / file).string()));
    change(json);
    std::ofstream(path_ / file) << json.dump();
  }
  std::string config(const std::function<void(nlohmann::ordered_json&)>& change) {
    const std::string before = read_file((path_ / "config.json").string());
    edit("config.json", change);
    const std::string result = refusal([&] { open_embedder(path_, {.backend = {.device = "ref"}}); });
    std::ofstream(path_ / "config.json") << before;
    return result;
  }
  const fs::path path_ = fs::path(testing::TempDir()) /
                         fmt::format("encoder_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(EncoderDirectory, ConfigsMustMakeSense) {
  EXPECT_EQ(config([](auto&) {}), "was accepted");
  EXPECT_THAT(config([](auto& j) { j["num_attention_heads"] = 0; }), HasSubstr("num_attention_heads"));
  EXPECT_THAT(config([](auto& j) { j["num_attention_heads"] = 5; }), HasSubstr("not a multiple of 5 heads"));
  EXPECT_THAT(config([](auto& j) { j["num_attention_heads"] = 48; }), HasSubstr("heads of 1 dimensions"));
  EXPECT_THAT(config([](auto& j) { j.erase("hidden_size"); }), HasSubstr("'hidden_size' is missing"));
  EXPECT_THAT(config([](auto& j) { j["norm_eps"] = 0; }), HasSubstr("'norm_eps'"));
  EXPECT_THAT(config([](auto& j) { j["hidden_activation"] = "relu6"; }), HasSubstr("'relu6' is not supported"));
  EXPECT_THAT(config([](auto& j) { j["layer_types"].push_back("full_attention"); }),
              HasSubstr("5 elements for 4 layers"));
  EXPECT_THAT(config([](auto& j) { j["layer_types"][1] = "linear"; }), HasSubstr("'linear'"));
  EXPECT_THAT(config([](auto& j) { j["local_attention"] = -2; }), HasSubstr("local_attention"));
  EXPECT_THAT(config([](auto& j) { j["rope_parameters"]["full_attention"]["rope_theta"] = -1; }),
              HasSubstr("rope_theta"));
  EXPECT_THAT(config([](auto& j) { j["rope_parameters"]["sliding_attention"]["rope_type"] = "yarn"; }),
              HasSubstr("'yarn' is not supported for sliding_attention"));
  EXPECT_THAT(config([](auto& j) { j["is_decoder"] = true; }), HasSubstr("'is_decoder'"));
  EXPECT_THAT(config([](auto& j) { j["num_hidden_layers"] = 3, j.erase("layer_types"); }),
              HasSubstr("is part of a layer"));
  EXPECT_THAT(config([](auto& j) { j["num_hidden_layers"] = 5, j.erase("layer_types"); }), HasSubstr("is missing"));
  EXPECT_THAT(config([](auto& j) { j["intermediate_size"] = 58; }), HasSubstr("expected [116, 48]"));
  EXPECT_THAT(config([](auto& j) { j["vocab_size"] = 100; }), HasSubstr("the tokenizer has"));
}

// Keys of transformers versions before 5 have the same meaning.
TEST_F(EncoderDirectory, OldKeysAreRead) {
  const EncoderGolden golden = read_encoder_golden("modern_bert");
  edit("config.json", [](auto& j) {
    j.erase("rope_parameters"), j.erase("layer_types");
    j["global_rope_theta"] = 160000.0;
    j["local_rope_theta"] = 10000.0;
    j["global_attn_every_n_layers"] = 3;
  });
  EXPECT_LT(largest_difference(open_embedder(path_, each_token())->embed(golden.sequences), golden.hidden), 1e-4);
}

TEST_F(EncoderDirectory, ModulesMustBeKnown) {
  edit("modules.json", [](auto& j) {
    j.push_back({{"idx", 3}, {"name", "3"}, {"path", "3_LSTM"}, {"type", "sentence_transformers.models.LSTM"}});
  });
  EXPECT_THAT(refusal([&] { open_embedder(path_, {}); }),
              HasSubstr("the module 'sentence_transformers.models.LSTM' is not supported"));
}

// ---- EmbeddingGemma: attention in both directions, and dense layers after pooling

class GemmaDirectory : public EncoderDirectory {
 protected:
  GemmaDirectory() {
    fs::remove_all(path_);
    fs::copy(kEncoders / "gemma_embed", path_, fs::copy_options::recursive);
  }
  std::string dense(const std::function<void(nlohmann::ordered_json&)>& change) {
    edit("3_Dense/config.json", change);
    return refusal([&] { open_embedder(path_, {.backend = {.device = "ref"}}); });
  }
};

TEST_F(GemmaDirectory, DenseLayersAreRead) {
  const auto embedder = open_embedder(path_, {.backend = {.device = "ref"}});
  EXPECT_EQ(embedder->dim(), 40);
  EXPECT_EQ(open_embedder(path_, each_token())->dim(), 48) << "dense layers are of what pooling makes";
  const auto before = embedder->embed(std::vector<std::vector<int32_t>>{{1, 2, 3}});
  ASSERT_EQ(dense([](auto& j) { j["activation_function"] = "torch.nn.modules.activation.Tanh"; }), "was accepted");
  const auto after =
      open_embedder(path_, {.backend = {.device = "ref"}})->embed(std::vector<std::vector<int32_t>>{{1, 2, 3}});
  EXPECT_LT(cosine(before, after), 0.9999) << "the activation changes something";
}

TEST_F(GemmaDirectory, DenseLayersMustMakeSense) {
  EXPECT_THAT(dense([](auto& j) { j["in_features"] = 71; }), HasSubstr("71 features, and what comes before has 72"));
  EXPECT_THAT(dense([](auto& j) { j["in_features"] = 72, j["out_features"] = 41; }), HasSubstr("expected [41, 72]"));
  EXPECT_THAT(dense([](auto& j) { j["out_features"] = 40, j["activation_function"] = "torch.nn.Softmax"; }),
              HasSubstr("'torch.nn.Softmax'"));
  EXPECT_THAT(dense([](auto& j) { j["activation_function"] = "torch.nn.Identity", j["use_residual"] = true; }),
              HasSubstr("'use_residual'"));
  edit("modules.json", [](auto& j) { j[2]["path"] = "../../elsewhere"; });
  EXPECT_THAT(refusal([&] { open_embedder(path_, {}); }), HasSubstr("not the name of a folder"));
}

// Later tokens affect a token's vector, and the model cannot generate text.
TEST_F(GemmaDirectory, LooksToBothSides) {
  const auto golden = read_encoder_golden("gemma_embed");
  edit("config.json", [](auto& j) { j["use_bidirectional_attention"] = false; });
  EXPECT_GT(largest_difference(open_embedder(path_, each_token())->embed(golden.sequences), golden.hidden), 1e-2);
  EXPECT_THAT(refusal([&] {
                load_model(open_checkpoint((kEncoders / "gemma_embed.gguf").string()), {.backend = {.device = "ref"}},
                           nullptr);
              }),
              HasSubstr("use `ingot embed`"));
}

TEST_F(EncoderDirectory, PoolingMustBeKnown) {
  edit("1_Pooling/config.json",
       [](auto& j) { j["pooling_mode_cls_token"] = false, j["pooling_mode_max_tokens"] = true; });
  EXPECT_THAT(refusal([&] { open_embedder(path_, {}); }), HasSubstr("pooling by 'max' is not supported"));
}

}  // namespace
}  // namespace ingot
