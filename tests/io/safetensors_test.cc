// Safetensors files written by the reference package (tests/data/hf, tools/goldens/make_models.py), single and sharded.
#include "io/huggingface/safetensors.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "io/refused.h"
#include "io/safetensors_bytes.h"
#include "io/walk_safetensors.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kHfModels = fs::path(INGOT_TEST_DATA) / "hf";

// A separate directory for each test, which is removed afterwards.
class SafetensorsDirectory : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::path(testing::TempDir()) / (std::string("safetensors_") + test->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  // A shard with one tensor of four bytes.
  void write_shard(const std::string& name, const std::string& tensor) {
    write(name,
          safetensors_bytes(fmt::format(R"({{"{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}})", tensor), 4));
  }
  void write_index(const std::string& weight_map, const std::string& metadata = R"({"total_size":8})") {
    write("model.safetensors.index.json", fmt::format(R"({{"metadata":{},"weight_map":{}}})", metadata, weight_map));
  }
  Safetensors open() { return Safetensors::open_directory(directory_.string()); }
  std::string refused() {
    return refusal([&] { open(); });
  }

  fs::path directory_;
};

TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  const Safetensors model = Safetensors::open_directory((kHfModels / "llama").string());
  EXPECT_EQ(model.n_files(), 1u);
  EXPECT_EQ(model.tensors().size(), 21u);
  EXPECT_THAT(model.warnings(), IsEmpty());
  EXPECT_THAT(model.metadata(), ElementsAre(std::pair<std::string, std::string>("format", "pt")));
  const SafeTensor* tensor = model.find("model.layers.0.mlp.down_proj.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_STREQ(tensor->dtype->name, "F32");
  EXPECT_THAT(tensor->dims(), ElementsAre(32, 96));
  EXPECT_EQ(tensor->n_bytes, 32u * 96 * 4);
  EXPECT_EQ(model.find("model.layers.2.mlp.down_proj.weight"), nullptr);
  EXPECT_GT(walk(model), 0u);
}

TEST(Safetensors, ReadsShards) {
  const Safetensors model = Safetensors::open_directory((kHfModels / "llama_bf16").string());
  EXPECT_EQ(model.n_files(), 3u);
  EXPECT_EQ(model.tensors().size(), 30u);
  EXPECT_THAT(model.warnings(), IsEmpty());
  EXPECT_STREQ(model.find("lm_head.weight")->dtype->name, "BF16");
  EXPECT_GT(walk(model), 0u);
}

TEST(Safetensors, AcceptsWhatIsOddButRight) {
  const std::string scalar = R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})";
  for (const std::string& header :
       {scalar, " \n\t" + scalar + " \r\n   ",
        std::string(R"({"__metadata__":{},"z":{"shape":[3,0],"data_offsets":[0,0],"dtype":"F32"},)") +
            scalar.substr(1)}) {
    const std::string bytes = safetensors_bytes(header, 8);
    const Safetensors model = Safetensors::parse(span_of(bytes), "m");
    ASSERT_NE(model.find("s"), nullptr);
    EXPECT_EQ(model.find("s")->n_elements(), 1);
    EXPECT_EQ(model.data(*model.find("s"))[7], 7);
    walk(model);
  }
  const std::string nothing = safetensors_bytes("{}", 0), null = safetensors_bytes(R"({"__metadata__":null})", 0);
  EXPECT_THAT(Safetensors::parse(span_of(nothing), "m").tensors(), IsEmpty());
  EXPECT_THAT(Safetensors::parse(span_of(null), "m").metadata(), IsEmpty());  // as safetensors 0.8 does
}

TEST(Safetensors, KnowsEveryType) {
  const std::pair<const char*, int> types[] = {
      {"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},
      {"U32", 32},    {"F32", 32},    {"I64", 64}, {"U64", 64},    {"F64", 64},    {"C64", 64}};
  for (const auto& [name, bits] : types) {
    const std::string bytes = safetensors_bytes(
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}}}})", name, bits), bits);
    EXPECT_EQ(Safetensors::parse(span_of(bytes), "m").tensors()[0].n_bytes, static_cast<uint64_t>(bits));
  }
}

TEST_F(SafetensorsDirectory, NeedsWeights) { EXPECT_THAT(refused(), HasSubstr("neither model.safetensors nor")); }

TEST_F(SafetensorsDirectory, ShardsMayBeInTheHubsCache) {  // S12
  const fs::path snapshot = directory_ / "snapshots" / "abc", blobs = directory_ / "blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  write_shard("blobs/1111", "a");
  fs::create_symlink("../../blobs/1111", snapshot / "x.safetensors");
  write("snapshots/abc/model.safetensors.index.json", R"({"weight_map":{"a":"x.safetensors"}})");
  EXPECT_EQ(Safetensors::open_directory(snapshot.string()).tensors().size(), 1u);
}

TEST_F(SafetensorsDirectory, RefusesNamesThatLeadElsewhere) {  // S12
  write_shard("x.safetensors", "a");
  for (const char* name :
       {R"("../x.safetensors")", R"("/etc/x.safetensors")", R"("a/x.safetensors")", R"("C:\\x.safetensors")",
        R"("x\u0000.safetensors")", R"("")", R"("..")", R"(".safetensors")", R"("/etc/passwd")", R"("config.json")"}) {
    write_index(fmt::format(R"({{"a":{}}})", name));
    EXPECT_THAT(refused(), testing::AllOf(HasSubstr("'weight_map.a' at offset"), HasSubstr("plain name"))) << name;
  }
  for (const char* other : {"7", "null", "[\"x.safetensors\"]"}) {
    write_index(fmt::format(R"({{"a":{}}})", other));
    EXPECT_THAT(refused(), HasSubstr("expected a string")) << other;
  }
  const fs::path elsewhere = fs::path(testing::TempDir()) / "elsewhere.safetensors";
  fs::copy_file(directory_ / "x.safetensors", elsewhere, fs::copy_options::overwrite_existing);
  fs::create_symlink(elsewhere, directory_ / "link.safetensors");
  write_index(R"({"a":"link.safetensors"})");
  EXPECT_THAT(refused(), HasSubstr("leads out of its directory"));
  fs::remove(elsewhere);
}

TEST_F(SafetensorsDirectory, IndexAndShardsMustAgree) {  // S13
  write_shard("x.safetensors", "a");
  write_shard("y.safetensors", "b");
  write_index(R"({"a":"x.safetensors","b":"y.safetensors"})");
  EXPECT_THAT(open().warnings(), IsEmpty());
  write_index(R"({"a":"x.safetensors","b":"y.safetensors"})", R"({"total_size":9})");
  EXPECT_THAT(open().warnings(), ElementsAre(HasSubstr("integer 9, but the tensors take 8 bytes")));
  write_index(R"({"a":"x.safetensors"})", "{}");
  EXPECT_THAT(open().warnings(), IsEmpty());
  write_index(R"({"a":"x.safetensors","b":"z.safetensors"})");
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr("'weight_map.b'"), HasSubstr("'z.safetensors' is missing")));
  write_index(R"({"a":"y.safetensors","b":"y.safetensors"})");
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr("tensor 'a' is not in "), HasSubstr("y.safetensors")));
  write_index(R"({"a":"y.safetensors","b":"x.safetensors"})");
  EXPECT_THAT(refused(), HasSubstr("tensor 'a' is not in "));
  write_index(R"({"c":"x.safetensors"})");
  EXPECT_THAT(refused(), HasSubstr("tensor 'c' is not in "));
  write_shard("y.safetensors", "a");
  write_index(R"({"a":"x.safetensors","b":"y.safetensors"})");
  EXPECT_THAT(refused(), HasSubstr("tensor 'a' is already in an earlier shard"));
  write_index("{}");
  EXPECT_THAT(refused(), HasSubstr("names no tensor"));
  write_index(R"({"a":"x.safetensors","a":"x.safetensors"})");
  EXPECT_THAT(refused(), HasSubstr("'a' occurs twice"));
  write("model.safetensors.index.json", R"({"metadata":{}})");
  EXPECT_THAT(refused(), HasSubstr("'weight_map' is missing"));
  write("model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(refused(), HasSubstr("Git LFS pointer"));
}

TEST_F(SafetensorsDirectory, ManyEntriesAreRead) {  // S13: the number of entries makes this slow
  std::string map = "{\"a\":\"x.safetensors\"";
  for (int i = 0; i < 100'000; ++i) map += fmt::format(",\"t{}\":\"x.safetensors\"", i);
  write_shard("x.safetensors", "a");
  write_index(map + "}");
  EXPECT_THAT(refused(), HasSubstr("tensor 't0' is not in"));
}

TEST_F(SafetensorsDirectory, ReadsThroughOneDescriptor) {  // S24: a file that is replaced later stays readable
  write_shard("model.safetensors", "a");
  const Safetensors model = open();
  write_shard("other", "b");
  fs::rename(directory_ / "other", directory_ / "model.safetensors");
  EXPECT_NE(model.find("a"), nullptr);
  EXPECT_EQ(model.data(*model.find("a"))[3], 3);
}

}  // namespace
}  // namespace ingot
