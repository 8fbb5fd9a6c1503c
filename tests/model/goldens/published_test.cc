// Tiny models in the exact layout of published repositories: their keys in config.json, their tensor names, and
// unrelated files next to them. The result equals the references' result for the same weights in the current layout of
// transformers.
#include <numeric>

#include "model/hf_models.h"
#include "model/vectors/embedder.h"
#include "model/safetensors_edit.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// A copy of a directory of tests/data; removed when the test ends.
class RepositoryCopy {
 public:
  explicit RepositoryCopy(const fs::path& from) {
    fs::remove_all(path);
    fs::copy(kData / from, path, fs::copy_options::recursive);
  }
  ~RepositoryCopy() { fs::remove_all(path); }
  Json json(const char* file) const { return Json::parse(read_file((path / file).string())); }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(path / file, std::ios::binary) << text;
  }
  // Files of real repositories that ingot does not read.
  void add_others(std::initializer_list<const char*> names) const {
    for (const char* name : names) write(name, std::string(name).ends_with(".json") ? "{}" : "text");
  }

  const fs::path path = fs::path(testing::TempDir()) /
                        fmt::format("published_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

RawTensor ones(std::vector<int64_t> shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return raw_tensor("BF16", std::move(shape), std::vector<uint16_t>(static_cast<size_t>(n), 0x3F80));
}

// Qwen3.5: a vision model whose text model is one of its parts; layers that draft tokens; two shards.
TEST(Published, Qwen35) {
  const RepositoryCopy copy("hf/qwen35");
  Json text = copy.json("config.json");
  for (const char* key : {"architectures", "transformers_version", "pad_token_id"}) text.erase(key);
  text["dtype"] = "bfloat16";
  text["attn_output_gate"] = true;
  text["full_attention_interval"] = 2;
  text["mamba_ssm_dtype"] = "float32";
  text["mlp_only_layers"] = Json::array();
  text["mtp_num_hidden_layers"] = 1;
  text["mtp_use_dedicated_embeddings"] = false;
  text["rope_parameters"]["mrope_interleaved"] = true;
  text["rope_parameters"]["mrope_section"] = {1, 1, 1};
  const Json config = {
      {"architectures", {"Qwen3_5ForConditionalGeneration"}},
      {"image_token_id", 260},
      {"model_type", "qwen3_5"},
      {"text_config", text},
      {"tie_word_embeddings", true},
      {"transformers_version", "4.57.0.dev0"},
      {"video_token_id", 261},
      {"vision_config",
       {{"depth", 1}, {"hidden_size", 16}, {"model_type", "qwen3_5"}, {"num_heads", 2}, {"out_hidden_size", 40}}},
      {"vision_end_token_id", 262},
      {"vision_start_token_id", 259}};
  copy.write("config.json", config.dump(4));
  RawTensors shards[2];
  Json weight_map = Json::object();
  size_t n = 0, n_bytes = 0;
  const auto add = [&](const std::string& name, const RawTensor& tensor) {
    const size_t shard = n++ % 2;
    weight_map[name] = fmt::format("model.safetensors-0000{}-of-00002.safetensors", shard + 1);
    n_bytes += tensor.bytes.size();
    shards[shard][name] = tensor;
  };
  for (const auto& [name, tensor] : take_safetensors(copy.path)) {
    ASSERT_TRUE(name.starts_with("model.")) << name;
    add("model.language_model." + name.substr(6), tensor);
  }
  for (const char* name : {"model.visual.blocks.0.attn.qkv.weight", "model.visual.merger.linear_fc1.weight",
                           "mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight"})
    add(name, ones({8, 16}));
  for (const char* name :
       {"model.visual.patch_embed.proj.bias", "mtp.norm.weight", "mtp.layers.0.input_layernorm.weight"})
    add(name, ones({16}));
  for (int i = 0; i < 2; ++i)
    copy.write(fmt::format("model.safetensors-0000{}-of-00002.safetensors", i + 1), safetensors_of(shards[i]));
  copy.write("model.safetensors.index.json",
             Json{{"metadata", {{"total_size", n_bytes}}}, {"weight_map", weight_map}}.dump());
  copy.add_others({"README.md", "LICENSE", "merges.txt", "vocab.json", "preprocessor_config.json",
                   "video_preprocessor_config.json"});

  const Golden golden = read_golden("qwen35");
  const auto checkpoint = open_checkpoint(copy.path.string());
  RunnerOptions options;
  options.backend.device = "ref";
  options.max_batch_tokens = options.max_logits = 512;
  options.kv_dtype = DType::kF32;
  Ranks runner(checkpoint->config(), checkpoint->weights(), options, nullptr);
  EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, 512), golden.logits), 1e-4);
  EXPECT_EQ(checkpoint->tokenizer()->n_vocab(), 265);
  EXPECT_TRUE(checkpoint->chat_template());
}

// EmbeddingGemma: transformers 4 keys for its two ropes, and all files of sentence-transformers.
TEST(Published, EmbeddingGemma) {
  const RepositoryCopy copy("encoders/gemma_embed");
  Json config = copy.json("config.json");
  config.erase("rope_parameters");
  config.erase("dtype");
  config.update(Json{{"rope_theta", 1000000.0},
                     {"rope_local_base_freq", 10000.0},
                     {"rope_scaling", nullptr},
                     {"torch_dtype", "float32"},
                     {"transformers_version", "4.57.0.dev0"}});
  copy.write("config.json", config.dump(2));
  Json prompts = copy.json("config_sentence_transformers.json");
  prompts["model_type"] = "SentenceTransformer";
  prompts["__version__"] = {
      {"sentence_transformers", "5.2.0"}, {"transformers", "4.57.0.dev0"}, {"pytorch", "2.8.0+cu128"}};
  prompts["prompts"]["BitextMining"] = "task: search result | query: ";
  prompts["prompts"]["STS"] = "task: sentence similarity | query: ";
  copy.write("config_sentence_transformers.json", prompts.dump(2));
  copy.write("sentence_bert_config.json", R"({"max_seq_length": 70, "do_lower_case": false})");
  fs::create_directories(copy.path / "4_Normalize");
  copy.add_others(
      {"README.md", "added_tokens.json", "generation_config.json", "special_tokens_map.json", "tokenizer.model"});

  const auto golden = nlohmann::json::parse(read_file((kData / "encoders/gemma_embed.json").string()));
  const auto embedder = Embedder::open(open_checkpoint(copy.path.string()), {.backend = {.device = "ref"}}, nullptr);
  const std::vector<std::vector<int32_t>> ids = golden["ids"];
  const std::vector<float> rows = embedder->embed(ids);
  const auto expected = golden["embeddings"]["plain"].get<std::vector<std::vector<float>>>();
  ASSERT_EQ(rows.size(), expected.size() * embedder->dim());
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i], expected[i / embedder->dim()][i % embedder->dim()], 1e-4) << i;
  EXPECT_EQ(open_checkpoint(copy.path.string())->tokenizer()->encode(golden["texts"][0].get<std::string>()), ids[0]);
}

// bge-reranker: XLM-RoBERTa as saved by older versions, with position ids among its tensors.
TEST(Published, BgeReranker) {
  const RepositoryCopy copy("rankers/xlm_roberta");
  Json config = copy.json("config.json");
  for (const char* key : {"dtype", "is_decoder", "add_cross_attention", "tie_word_embeddings"}) config.erase(key);
  config.update(Json{{"_name_or_path", "BAAI/bge-reranker-base"},
                     {"output_past", true},
                     {"position_embedding_type", "absolute"},
                     {"torch_dtype", "float32"},
                     {"transformers_version", "4.38.1"}});
  copy.write("config.json", config.dump(2));
  RawTensors tensors = take_safetensors(copy.path);
  std::vector<int64_t> positions(config["max_position_embeddings"].get<size_t>());
  std::iota(positions.begin(), positions.end(), 0);
  tensors["roberta.embeddings.position_ids"] =
      raw_tensor("I64", {1, static_cast<int64_t>(positions.size())}, positions);
  copy.write("model.safetensors", safetensors_of(tensors));
  copy.add_others({"README.md", "special_tokens_map.json", "sentencepiece.bpe.model", "pytorch_model.bin"});

  const auto golden = nlohmann::json::parse(read_file((kData / "rankers/xlm_roberta.json").string()));
  const auto embedder = Embedder::open(open_checkpoint(copy.path.string()), {.backend = {.device = "ref"}}, nullptr);
  ASSERT_TRUE(embedder->ranks());
  const auto documents = golden["documents"].get<std::vector<std::string>>();
  const auto scores = embedder->score(golden["query"].get<std::string>(), documents, true).values;
  for (size_t i = 0; i < documents.size(); ++i)
    EXPECT_NEAR(scores.at(i), golden["scores"][i].get<double>(), 1e-4) << documents[i];
}

}  // namespace
}  // namespace ingot
