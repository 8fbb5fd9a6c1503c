// Directories with different settings for texts, pooling, pairs and attention, against the results of
// sentence-transformers and transformers: tools/goldens/make_variants.py. And refused contents of modules.json.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "model/embedders.h"
#include "model/loader.h"
#include "model/export/gguf_export.h"
#include "model/export/quantize.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using Object = nlohmann::ordered_json;

Object read_json(const fs::path& path) { return Object::parse(read_file(path.string())); }

// The directory of a row; removed after the test.
class VariantCopy {
 public:
  explicit VariantCopy(const Object& row) {
    fs::remove_all(path);
    fs::copy(kData / row["base"].get<std::string>(), path, fs::copy_options::recursive);
    const Object moves = row.value("moves", Object::array()), files = row.value("files", Object::object()),
                 set = row.value("set", Object::object());
    for (const Object& move : moves) {
      const fs::path target = path / move[1].get<std::string>();
      fs::create_directories(target.parent_path());
      fs::rename(path / move[0].get<std::string>(), target);
    }
    for (const auto& [name, value] : files.items()) write(name, value);
    for (const auto& [name, keys] : set.items()) {
      Object value = read_json(path / name);
      for (const auto& [key, to] : keys.items()) to.is_null() ? void(value.erase(key)) : void(value[key] = to);
      write(name, value);
    }
  }
  ~VariantCopy() { fs::remove_all(path); }
  void write(const std::string& name, const Object& value) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << value.dump();
  }
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("variant_{}", ::getpid());
};

void expect_near(std::span<const float> a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-4) << what << " " << i;
}

// Scaled to length 1, as an Embedder returns vectors for any setting of modules.json.
std::vector<float> unit(std::vector<float> row) {
  double squares = 0;
  for (const float x : row) squares += double{x} * x;
  for (float& x : row) x = static_cast<float>(squares > 0 ? x / std::sqrt(squares) : 0);
  return row;
}

std::vector<float> vector_of(Embedder& embedder, const std::string& prompt, const std::string& text) {
  const std::vector<std::vector<int32_t>> tokens = {embedder.cut(embedder.tokenizer().encode(prompt + text))};
  return embedder.embed(tokens, std::vector<int>{embedder.prompt_tokens(prompt)});
}

struct VariantRow {
  std::shared_ptr<const Object> file;
  size_t index;
  const Object& golden() const { return *file; }
  const Object& row() const { return (*file)["rows"][index]; }
  friend void PrintTo(const VariantRow& r, std::ostream* out) { *out << r.row()["name"]; }
};

std::vector<VariantRow> rows_of(const char* name) {
  const auto file = std::make_shared<const Object>(read_json(kData / "variants" / name));
  std::vector<VariantRow> out;
  for (size_t i = 0; i < (*file)["rows"].size(); ++i) out.push_back({file, i});
  return out;
}

std::string name_of(const testing::TestParamInfo<VariantRow>& i) { return i.param.row()["name"]; }

// ---- vectors

class EncoderVariants : public testing::TestWithParam<VariantRow> {
 protected:
  void check(Embedder& embedder, const std::string& prompt_name, const std::string& prompt) {
    const Object &golden = GetParam().golden(), &row = GetParam().row();
    for (size_t i = 0; i < golden["texts"].size(); ++i)
      expect_near(vector_of(embedder, prompt, golden["texts"][i]), unit(row["vectors"][prompt_name][i]),
                  fmt::format("{} {}", prompt_name, i));
  }
};

TEST_P(EncoderVariants, EqualSentenceTransformers) {
  const VariantCopy copy(GetParam().row());
  const auto embedder = open_embedder(copy.path);
  EXPECT_EQ(embedder->max_tokens(), GetParam().row()["max_tokens"].get<int>());
  for (const std::string prompt : {"", "query"})
    check(*embedder, prompt, embedder->facts().find_prompt(prompt).value());
}

// A converted GGUF file gives the same result, or the conversion is refused.
TEST_P(EncoderVariants, EqualWhenConverted) {
  const VariantCopy copy(GetParam().row());
  const auto before = open_embedder(copy.path);
  const fs::path file = copy.path / "converted.gguf";
  try {
    write_gguf(gguf_export(open_checkpoint(copy.path.string())), {}, file.string());
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("GGUF cannot store"));
    return;
  }
  const auto after = open_embedder(file, {.backend = {.device = "ref"}, .n_ctx = before->max_tokens()});
  check(*after, "", before->facts().find_prompt("").value());
}

INSTANTIATE_TEST_SUITE_P(, EncoderVariants, testing::ValuesIn(rows_of("encoders.json")), name_of);

// ---- scores

class RankerVariants : public testing::TestWithParam<VariantRow> {
 protected:
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
};

TEST_P(RankerVariants, AsSentenceTransformers) {
  const Object &golden = GetParam().golden(), &row = GetParam().row();
  const VariantCopy copy(row);
  const auto scores = open_embedder(copy.path)->score(golden["query"].get<std::string>(),
                                                      golden["documents"].get<std::vector<std::string>>(), true);
  expect_near(scores.values, row["scores"], "score");
}

TEST_P(RankerVariants, EqualWhenConverted) {
  const Object &golden = GetParam().golden(), &row = GetParam().row();
  const VariantCopy copy(row);
  const fs::path file = copy.path / "converted.gguf";
  write_gguf(gguf_export(open_checkpoint(copy.path.string())), {}, file.string());
  const auto before = open_embedder(copy.path),
             after = open_embedder(file, {.backend = {.device = "ref"}, .n_ctx = before->max_tokens()});
  const auto scores =
      after->score(golden["query"].get<std::string>(), golden["documents"].get<std::vector<std::string>>(), true);
  std::vector<float> expected = row["scores"];  // a GGUF file's scores are from 0 to 1
  if (row["base"] == "rankers/bert") std::ranges::transform(expected, expected.begin(), sigmoid);
  expect_near(scores.values, expected, "score");
}

INSTANTIATE_TEST_SUITE_P(, RankerVariants, testing::ValuesIn(rows_of("rankers.json")), name_of);

// ---- decoders with attention in both directions

class Bidirectional : public testing::TestWithParam<VariantRow> {
 protected:
  static Object as_variant(const std::string& name) {
    return {{"base", "hf/" + name}, {"set", {{"config.json", {{"is_causal", false}}}}}};
  }
};

TEST_P(Bidirectional, EqualTransformers) {
  const Object& row = GetParam().row();
  const VariantCopy copy(as_variant(row["name"]));
  const EmbedOptions options{
      .backend = {.device = "ref"}, .n_ctx = n_ctx_of(row["name"]), .pooling = "mean", .normalize = false};
  const std::vector<std::vector<int32_t>> sequence = {row["sequence"]};
  expect_near(open_embedder(copy.path, options)->embed(sequence), row["mean"], "mean");
  EXPECT_THAT([&] { load_model(open_checkpoint(copy.path.string()), {.backend = {.device = "ref"}}, nullptr); },
              testing::ThrowsMessage<Error>(HasSubstr("use `ingot embed`")));
  const fs::path file = copy.path / "converted.gguf";
  try {
    write_gguf(gguf_export(open_checkpoint(copy.path.string())), {}, file.string());
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("GGUF cannot store"));
    return;
  }
  expect_near(open_embedder(file, options)->embed(sequence), row["mean"], "converted");
}

INSTANTIATE_TEST_SUITE_P(, Bidirectional, testing::ValuesIn(rows_of("bidirectional.json")), name_of);

// ---- refused input

std::string variant_refusal(const Object& row) {
  const VariantCopy copy(row);
  try {
    open_embedder(copy.path);
  } catch (const Error& error) {
    return error.what();
  }
  return "was accepted";
}

std::string with_file(const std::string& name, const Object& value, const std::string& base = "encoders/bert") {
  return variant_refusal({{"base", base}, {"files", {{name, value}}}});
}

Object module(const std::string& kind, const std::string& path = "") {
  return {{"idx", 0}, {"name", "0"}, {"path", path}, {"type", "sentence_transformers.models." + kind}};
}

TEST(Modules, OrderAndKindMustBeKnown) {
  const auto modules = [](std::initializer_list<Object> list) {
    return with_file("modules.json", Object(std::vector<Object>(list)), "encoders/gemma_embed");
  };
  const Object first = module("Transformer"), pool = module("Pooling", "1_Pooling"), dense = module("Dense", "2_Dense"),
               unit = module("Normalize", "3_Normalize");
  EXPECT_EQ(modules({first, pool, unit, dense}), "was accepted");
  EXPECT_THAT(modules({first, unit, pool}), HasSubstr("'Normalize' is not supported at this place"));
  EXPECT_THAT(modules({first, dense, pool}), HasSubstr("'Dense' is not supported at this place"));
  EXPECT_THAT(modules({first, pool, pool}), HasSubstr("'Pooling' is not supported at this place"));
  EXPECT_THAT(modules({pool, first}), HasSubstr("a Transformer is supported as the first module"));
  EXPECT_THAT(modules({first, first, pool}), HasSubstr("a Transformer is supported as the first module"));
  EXPECT_THAT(modules({first, pool, module("LayerNorm", "2_LayerNorm")}),
              HasSubstr("'sentence_transformers.models.LayerNorm' is not supported"));
  Object other = first;
  other["type"] = "custom_st.Transformer";
  EXPECT_THAT(modules({other, pool}), HasSubstr("'custom_st.Transformer' is not supported"));
  EXPECT_THAT(modules({first, module("Pooling", "..")}), HasSubstr("not the name of a folder"));
  EXPECT_THAT(modules({module("Transformer", "/etc"), pool}), HasSubstr("not the name of a folder"));
  EXPECT_THAT(modules({}), HasSubstr("expected modules"));
}

TEST(Modules, OptionsMustBeKnown) {
  const auto options = [](const Object& value) { return with_file("sentence_bert_config.json", value); };
  EXPECT_EQ(
      options({{"max_seq_length", nullptr}, {"model_args", {{"torch_dtype", "bfloat16"}}}, {"query_length", nullptr}}),
      "was accepted");
  EXPECT_THAT(options({{"max_seq_length", 0}}), HasSubstr("'max_seq_length'"));
  EXPECT_THAT(options({{"query_length", 32}}), HasSubstr("'query_length'"));
  EXPECT_THAT(options({{"config_args", {{"is_causal", false}}}}), HasSubstr("'config_args.is_causal'"));
  EXPECT_THAT(options({{"modality_config", {{"image", Object::object()}}}}), HasSubstr("reading 'image'"));
  EXPECT_THAT(options({{"modality_config", {{"message", Object::object()}}}}), HasSubstr("reading 'message'"));
  EXPECT_THAT(options({{"module_output_name", "sentence_embedding"}}),
              HasSubstr("'sentence_embedding' is not supported"));
  EXPECT_THAT(options({{"new_option", true}}), HasSubstr("'new_option'"));
  EXPECT_THAT(
      with_file("config_sentence_transformers.json", {{"prompts", Object::object()}, {"default_prompt_name", "query"}}),
      HasSubstr("'query' is none of the prompts"));
}

// Token types that a pair cannot express are refused, and so are end tokens of a pair that a single text does not have.
TEST(Pairs, OtherFormsAreRefused) {
  const auto piece = [](const char* kind, const char* id, int type) {
    return Object{{kind, {{"id", id}, {"type_id", type}}}};
  };
  const auto score = [&](const Object& pair) {
    Object processor = read_json(kData / "rankers/bert/tokenizer.json")["post_processor"];
    processor["pair"] = pair;
    const VariantCopy copy({{"base", "rankers/bert"}, {"set", {{"tokenizer.json", {{"post_processor", processor}}}}}});
    try {
      const std::string document = "fox";
      open_embedder(copy.path)->score("the", {&document, 1});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("was accepted");
  };
  const Object a = piece("Sequence", "A", 0), b = piece("Sequence", "B", 1), cls = piece("SpecialToken", "[CLS]", 0),
               sep = piece("SpecialToken", "[SEP]", 0);
  EXPECT_EQ(score({cls, a, sep, b, piece("SpecialToken", "[SEP]", 1)}), "was accepted");
  EXPECT_THAT(score({cls, a, sep, b, sep}), HasSubstr("its token types are not 0"));
  EXPECT_THAT(score({cls, piece("Sequence", "A", 1), sep, b, sep}), HasSubstr("its token types are not 0"));
  EXPECT_THAT(score({a, sep, piece("Sequence", "B", 0), sep}), HasSubstr("its first and last tokens differ"));
  EXPECT_THAT(score({cls, piece("Sequence", "B", 0), sep, a, sep}), HasSubstr("texts other than A"));
}

}  // namespace
}  // namespace ingot
