// Importance matrices in both of llama.cpp's formats, valid and invalid. The bytes are built here, in the layout of
// llama.cpp's sources.
#include "io/gguf/imatrix.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/gguf/writer.h"
#include "io/refused.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

class ImatrixTest : public testing::Test {
 protected:
  ImatrixTest()
      : path_((fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name()).string()) {
  }
  ~ImatrixTest() override { fs::remove(path_); }

  void write(std::string_view bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string refused(std::string_view bytes) const {
    write(bytes);
    return refusal([&] { ImportanceMatrix::read(path_); });
  }
  std::string refused(const GgufWriter& writer) const {
    writer.write(path_);
    return refusal([&] { ImportanceMatrix::read(path_); });
  }

  const std::string path_;
};

void put(std::string& out, int32_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

void put_entry(std::string& out, const std::string& name, int32_t calls, const std::vector<float>& sums) {
  put(out, static_cast<int32_t>(name.size()));
  out += name;
  put(out, calls);
  put(out, static_cast<int32_t>(sums.size()));
  out.append(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(float));
}

std::string legacy() {
  std::string bytes;
  put(bytes, 2);
  put_entry(bytes, "blk.0.attn_q.weight", 4, {4, 8, 0, 16});
  put_entry(bytes, "blk.0.ffn_up.weight", 0, {1, 2});
  return bytes;
}

std::vector<uint8_t> floats(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void add(GgufWriter& writer, const char* name, std::vector<uint64_t> shape, const std::vector<float>& values) {
  writer.add_tensor(name, 0, std::move(shape), floats(values));
}

TEST_F(ImatrixTest, ReadsTheLegacyForm) {
  std::string bytes = legacy();
  put(bytes, 37);
  put(bytes, 4);
  bytes += "wiki";
  write(bytes);
  const ImportanceMatrix matrix = ImportanceMatrix::read(path_);
  EXPECT_EQ(matrix.size(), 2u);
  EXPECT_THAT(matrix.names(), ElementsAre("blk.0.attn_q.weight", "blk.0.ffn_up.weight"));
  EXPECT_THAT(matrix.find("blk.0.attn_q.weight"),
              ElementsAre(1, 2, FloatEq(1.75e-5f), 4));  // columns without data get almost no weight
  EXPECT_THAT(matrix.find("blk.0.ffn_up.weight"), ElementsAre(1, 2));
  EXPECT_TRUE(matrix.find("blk.1.ffn_up.weight").empty());
  EXPECT_EQ(matrix.n_chunks(), 37u);
  EXPECT_EQ(matrix.dataset(), "wiki");
}

TEST_F(ImatrixTest, ReadsTheGgufForm) {
  GgufWriter writer;
  writer.set("general.type", std::string("imatrix"));
  writer.set("imatrix.datasets", std::vector<std::string>{"calibration.txt"});
  writer.set("imatrix.chunk_count", uint32_t{12});
  writer.set("imatrix.chunk_size", uint32_t{512});
  add(writer, "blk.0.ffn_down_exps.weight.in_sum2", {2, 3}, {2, 4, 30, 60, 5, 5});
  add(writer, "blk.0.ffn_down_exps.weight.counts", {1, 3}, {2, 10, 0});  // the third expert was never chosen
  writer.write(path_);
  const ImportanceMatrix matrix = ImportanceMatrix::read(path_);
  EXPECT_THAT(matrix.find("blk.0.ffn_down_exps.weight"), ElementsAre(1, 2, 3, 6, 1, 1));
  EXPECT_EQ(matrix.n_chunks(), 12u);
  EXPECT_EQ(matrix.dataset(), "calibration.txt");
}

TEST_F(ImatrixTest, AllZerosAreAllAlike) {
  std::string bytes;
  put(bytes, 1);
  put_entry(bytes, "a", 1, {0, 0, 0});
  write(bytes);
  EXPECT_THAT(ImportanceMatrix::read(path_).find("a"), ElementsAre(1, 1, 1));
}

TEST_F(ImatrixTest, RefusesWhatIsNone) {
  EXPECT_THAT(refused(""), HasSubstr("is not an importance matrix but an empty file"));
  EXPECT_THAT(refused("<!doctype html><title>404</title>"), HasSubstr("a web page"));
  GgufWriter model;
  add(model, "token_embd.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(refused(model), HasSubstr("(is it a model?)"));
  std::string bytes;
  put(bytes, 1);
  put_entry(bytes, "a", 1, {1, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(refused(bytes), HasSubstr("entry 'a' has the value nan"));
  bytes.clear();
  put(bytes, 1);
  put_entry(bytes, "a", 1, {1, -1});
  EXPECT_THAT(refused(bytes), HasSubstr("entry 'a' has the value -1"));
  bytes.clear();
  put(bytes, 2);
  put_entry(bytes, "a", 1, {1});
  put_entry(bytes, "a", 1, {1});
  EXPECT_THAT(refused(bytes), HasSubstr("entry 'a' occurs twice"));
}

TEST_F(ImatrixTest, RefusesGgufFormsThatContradictThemselves) {
  GgufWriter no_counts;
  add(no_counts, "a.in_sum2", {2}, {1, 2});
  EXPECT_THAT(refused(no_counts), HasSubstr("tensor 'a.counts' is missing"));
  GgufWriter uneven;
  add(uneven, "a.in_sum2", {5}, {1, 2, 3, 4, 5});
  add(uneven, "a.counts", {2}, {1, 1});
  EXPECT_THAT(refused(uneven), HasSubstr("'a.in_sum2' has 5 values for 2 counts"));
  GgufWriter halves;
  halves.add_tensor("a.in_sum2", 1, {2}, std::vector<uint8_t>(4));
  add(halves, "a.counts", {1}, {1});
  EXPECT_THAT(refused(halves), HasSubstr("'a.in_sum2' is F16"));
}

// A file with a cut at any place, or with any one byte changed, is either refused or read.
TEST_F(ImatrixTest, EveryTruncationIsRefused) {
  const std::string whole = legacy();
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_THAT(refused(whole.substr(0, n)), HasSubstr(path_)) << n;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char c : {'\0', '\x7f', '\x80', '\xff'}) {
      std::string changed = whole;
      changed[i] = c;
      write(changed);
      try {
        ImportanceMatrix::read(path_);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(path_));
      }
    }
  }
}

}  // namespace
}  // namespace ingot
