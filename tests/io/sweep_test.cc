// Every truncation and every value of every byte, for a small file of each kind that is read, except weights of
// safetensors (safetensors_hostile_test, quantized_hostile_test) and config.json (hf_config_test). The kinds are: GGUF
// files of both versions, a part of a split model, a GGUF file with a vocabulary, shard indices, tokenizers, sampling
// defaults, pooling, importance matrices, answers of a Hub.
#include "io/sweep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "io/gguf/imatrix.h"
#include "io/gguf/split.h"
#include "io/gguf/tokenizer.h"
#include "io/gguf/writer.h"
#include "io/gguf_bytes.h"
#include "io/hub/api.h"
#include "io/hub/name.h"
#include "io/huggingface/generation_config.h"
#include "io/huggingface/modules.h"
#include "io/huggingface/tokenizer.h"
#include "io/safetensors_bytes.h"
#include "io/walk.h"
#include "io/walk_safetensors.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// A folder for the running test.
class Folder {
 public:
  Folder()
      : path_(fs::path(testing::TempDir()) /
              fmt::format("sweep_{}_{}", ::getpid(), testing::UnitTest::GetInstance()->random_seed())) {
    fs::create_directories(path_ / "1_Pooling");
  }
  ~Folder() { fs::remove_all(path_); }

  std::string path(const std::string& file = "") const {
    return file.empty() ? path_.string() : (path_ / file).string();
  }
  void write_once(const std::string& file, const std::string& bytes) const {
    if (!fs::exists(path(file))) write(file, bytes);
  }
  // There are 100,000 files, so a file of the same size is overwritten, without write_file's wait for the disk.
  void write(const std::string& file, const std::string& bytes) const {
    std::error_code none;
    const bool same_size = fs::file_size(path(file), none) == bytes.size() && !none;
    std::fstream(path(file), std::ios::binary | std::ios::out | (same_size ? std::ios::in : std::ios::trunc)) << bytes;
  }

 private:
  const fs::path path_;
};

struct Kind {
  const char* name;
  std::string bytes;
  std::function<void(const Folder&, const std::string& bytes)> use;
  size_t least_refused = 8;  // refused values of a byte, on average; a number in the data may have any value
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

// ---- GGUF ----

std::string file_of(const GgufWriter& writer) {
  const auto bytes = writer.to_bytes();
  return {bytes.begin(), bytes.end()};
}

// A tensor that needs no padding at the end of the file. A file cut within such padding would lose nothing, and could
// be read.
void add_last(GgufWriter& w, const char* name = "t") { w.add_tensor(name, 24, {32}, std::vector<uint8_t>(32, 5)); }

std::string scalars(uint32_t version) {
  GgufWriter w(version);
  w.set("u8", uint8_t{1});
  w.set("i16", int16_t{-1});
  w.set("u64", uint64_t{1});
  w.set("f64", 1.0);
  w.set("b", true);
  w.set("s", "text");
  w.add_tensor("t", 0, {4, 2}, std::vector<uint8_t>(32, 1));
  return file_of(w);
}

std::string arrays() {
  GgufWriter w;
  w.set("f", std::vector<float>{0.5f});
  w.set("s", std::vector<std::string>{"", "ab"});
  w.set("n", std::vector<std::vector<uint16_t>>{{1, 2}, {}});
  add_last(w);
  return file_of(w);
}

std::string blocks(uint32_t alignment) {
  GgufWriter w;
  w.set("general.alignment", alignment);
  w.add_tensor("q4_0", 2, {64}, std::vector<uint8_t>(36, 3));
  w.add_tensor("f16", 1, {8, 1, 4, 1}, std::vector<uint8_t>(64, 2));
  return file_of(w);
}

std::string vocabulary() {
  GgufWriter w;
  w.set("tokenizer.ggml.model", "llama");
  w.set("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "a", "b", "ab"});
  w.set("tokenizer.ggml.scores", std::vector<float>{0, -1, -2, -3});
  w.set("tokenizer.ggml.token_type", std::vector<int32_t>{2, 1, 1, 1});
  w.set("tokenizer.ggml.unknown_token_id", uint32_t{0});
  w.set("tokenizer.ggml.add_bos_token", false);
  add_last(w);
  return file_of(w);
}

std::string sampling() {
  GgufWriter w;
  w.set("general.sampling.top_k", int32_t{20});
  w.set("general.sampling.top_p", 0.5f);
  w.set("general.sampling.temp", 0.7f);
  add_last(w);
  return file_of(w);
}

std::string part(uint16_t number) {
  GgufWriter w;
  w.set("split.no", number);
  w.set("split.count", uint16_t{2});
  w.set("split.tensors.count", int32_t{2});
  add_last(w, number == 0 ? "a" : "b");
  return file_of(w);
}

std::string gguf_imatrix() {
  GgufWriter w;
  w.set("imatrix.datasets", std::vector<std::string>{"d"});
  w.set("imatrix.chunk_count", uint32_t{2});
  const float sums[] = {1, 2}, counts[] = {2};
  auto data = [](const float* values, size_t n) {
    return std::vector<uint8_t>(reinterpret_cast<const uint8_t*>(values), reinterpret_cast<const uint8_t*>(values + n));
  };
  w.add_tensor("m.in_sum2", 0, {2, 1}, data(sums, 2));
  w.add_tensor("m.counts", 0, {1, 1}, data(counts, 1));
  add_last(w);
  return file_of(w);
}

std::string old_imatrix() {
  GgufBytes b;
  b.u32(1).u32(1).raw("m").u32(2).u32(3);
  for (const float sum : {1.0f, 0.0f, 2.0f}) b.put(sum);
  return {reinterpret_cast<const char*>(b.span().data()), b.size()};
}

void use_gguf(const Folder&, const std::string& bytes) { walk(Gguf::parse(span_of(bytes), "m.gguf")); }

// A vocabulary may be refused when the tokenizer is created; a tokenizer that was created works.
void use_vocabulary(const TokenizerSpec& spec) {
  const auto tokenizer = Tokenizer::create(spec);
  for (const int32_t id : tokenizer->encode("ab a", {.parse_special = true}))
    ensure(id >= 0 && id < tokenizer->n_vocab(), "ids are tokens");
}

void use_imatrix(const Folder& folder, const std::string& bytes) {
  folder.write("imatrix", bytes);
  const auto matrix = ImportanceMatrix::read(folder.path("imatrix"));
  ensure(matrix.size() > 0, "an importance matrix has entries");
  for (const std::string& name : matrix.names())
    for (const float value : matrix.find(name)) ensure(value > 0, "importance is above 0");
}

// Reads the two parts of a model like Gguf::open, but without files; `bytes` is the part with this number.
void use_part(const std::string& bytes, int number) {
  static const std::string kParts[] = {part(0), part(1)};
  const std::string& first = number == 0 ? bytes : kParts[0];
  const std::string& second = number == 1 ? bytes : kParts[1];
  const GgufFile files[] = {parse_gguf_file(span_of(first), "first"), parse_gguf_file(span_of(second), "second")};
  const uint32_t n_parts = split_count(files[0].metadata);
  for (uint32_t i = 0; i < 2; ++i) {
    check_part(files[0].metadata, files[i].metadata, i, n_parts);
    for (const TensorInfo& tensor : files[i].tensors)
      ensure(tensor.offset + tensor.n_bytes <= (i == 0 ? first : second).size(), "the data is there");
  }
}

// ---- JSON ----

const std::string kShard = safetensors_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", 8);

void use_index(const Folder& folder, const std::string& bytes) {
  folder.write_once("s.safetensors", kShard);
  folder.write("model.safetensors.index.json", bytes);
  walk(Safetensors::open_directory(folder.path()));
}

void use_tokenizer(const Folder& folder, const std::string& bytes) {
  folder.write("tokenizer.json", bytes);
  use_vocabulary(read_hf_tokenizer(HfDirectory(folder.path()), {})->spec);
}

void use_generation_config(const Folder& folder, const std::string& bytes) {
  folder.write("generation_config.json", bytes);
  const GenerationConfig config = read_generation_config(HfDirectory(folder.path()));
  ensure(config.temperature.value_or(0) >= 0 && config.top_k.value_or(0) >= 0 && config.top_p.value_or(0) <= 1,
         "defaults are in range");
}

const std::string kEncoderModules = R"([{"path":"","type":"sentence_transformers.models.Transformer"},)"
                                    R"({"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}])";
const std::string kPooling =
    R"({"word_embedding_dimension":8,"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})";

void use_pooling(const Folder& folder, const std::string& bytes) {
  folder.write_once("modules.json", kEncoderModules);
  folder.write("1_Pooling/config.json", bytes);
  ensure(read_hf_modules(HfDirectory(folder.path())).pooling.has_value(), "there is one");
}

void use_modules(const Folder& folder, const std::string& bytes) {
  folder.write("modules.json", bytes);
  folder.write_once("1_Pooling/config.json", kPooling);
  for (const HfModules::Step& step : read_hf_modules(HfDirectory(folder.path())).after)
    ensure(step.folder.find('/') == std::string::npos, "names stay inside");
}

void use_text_options(const Folder& folder, const std::string& bytes) {
  folder.write_once("modules.json", kEncoderModules);
  folder.write_once("1_Pooling/config.json", kPooling);
  folder.write("sentence_bert_config.json", bytes);
  ensure(read_hf_text_options(HfDirectory(folder.path())).max_tokens.value_or(1) > 0, "a length is one");
}

void use_tree(const Folder&, const std::string& bytes) {
  std::vector<HubFile> files;
  parse_tree(bytes, "tree", files);
  for (const HubFile& file : files)
    ensure(is_hub_path(file.path) && (is_hex(file.hash, 40) || is_hex(file.hash, 64)), "names stay inside");
}

const std::string kHash(40, 'a');

std::vector<Kind> kinds() {
  const std::string added = R"("added_tokens":[{"id":0,"content":"<unk>","special":true}])";
  return {
      {"gguf_v2", scalars(2), use_gguf},
      {"gguf_v3", scalars(3), use_gguf},
      {"gguf_arrays", arrays(), use_gguf},
      {"gguf_packed", blocks(1), use_gguf},
      {"gguf_aligned", blocks(64), use_gguf},
      {"gguf_vocabulary", vocabulary(),
       [](const Folder&, const std::string& bytes) {
         use_vocabulary(tokenizer_spec(Gguf::parse(span_of(bytes), "m")));
       }},
      {"gguf_sampling", sampling(),
       [](const Folder&, const std::string& bytes) {
         read_generation_config(Gguf::parse(span_of(bytes), "m").metadata());
       }},
      {"gguf_first_part", part(0), [](const Folder&, const std::string& bytes) { use_part(bytes, 0); }},
      {"gguf_second_part", part(1), [](const Folder&, const std::string& bytes) { use_part(bytes, 1); }},
      {"imatrix_gguf", gguf_imatrix(), use_imatrix},
      {"imatrix_dat", old_imatrix(), use_imatrix},
      {"index", R"({"metadata":{"total_size":8},"weight_map":{"a":"s.safetensors"}})", use_index, 100},
      {"tokenizer_unigram",
       R"({)" + added +
           R"(,"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581"},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1.5]]}})",
       use_tokenizer, 100},
      {"tokenizer_wordpiece",
       R"({)" + added +
           R"(,"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
           R"("model":{"type":"WordPiece","unk_token":"<unk>","vocab":{"<unk>":0,"a":1,"##b":2}}})",
       use_tokenizer, 100},
      {"generation_config", R"({"do_sample":true,"temperature":0.5,"top_k":20,"top_p":0.9,"repetition_penalty":1.1})",
       use_generation_config, 100},
      {"pooling", kPooling, use_pooling, 100},
      {"modules", kEncoderModules, use_modules, 100},
      {"text_options", R"({"max_seq_length":128,"do_lower_case":true,"query_length":null})", use_text_options, 100},
      {"hub_revision", R"({"id":"a/b","sha":")" + kHash + R"("})",
       [](const Folder&, const std::string& bytes) { ensure(is_commit(parse_revision(bytes, "r")), "a commit"); }, 100},
      {"hub_tree", R"([{"type":"file","path":"m.gguf","oid":")" + kHash + R"(","size":12}])", use_tree, 100},
  };
}

class Sweep : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }  // odd but harmless files cause 100,000 warnings
  void TearDown() override { set_log_level(LogLevel::kWarn); }
};

TEST_P(Sweep, EveryTruncation) {
  const Folder folder;
  expect_cuts_refused(GetParam().bytes, [&](const std::string& bytes) { GetParam().use(folder, bytes); });
}

TEST_P(Sweep, EveryValueOfEveryByte) {
  const Folder folder;
  const size_t n_refused =
      sweep_bytes(GetParam().bytes, [&](const std::string& bytes) { GetParam().use(folder, bytes); });
  EXPECT_GT(n_refused, GetParam().bytes.size() * GetParam().least_refused);
}

INSTANTIATE_TEST_SUITE_P(, Sweep, testing::ValuesIn(kinds()), [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace ingot
