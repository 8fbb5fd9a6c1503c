// Models in several files: written by the `gguf` package, written by ingot, and wrong in each way (G38, G39).
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "io/refused.h"
#include "io/walk.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Part {
  uint16_t number = 0;
  uint16_t count = 3;
  int32_t n_tensors = 3;
  std::string tensor = "t0";
  std::string model = "m";
};

class SplitTest : public testing::Test {
 protected:
  SplitTest() : folder_(testing::TempDir() + "/gguf_split_" + std::to_string(::getpid())) {
    fs::create_directories(folder_);
  }
  ~SplitTest() override { fs::remove_all(folder_); }

  std::string path(int number, const std::string& name = "model") const {
    return fmt::format("{}/{}-{:05}-of-00003.gguf", folder_, name, number);
  }
  void write(const std::string& to, const Part& part) const {
    GgufWriter writer;
    writer.set("general.name", part.model);
    writer.set("split.no", part.number);
    writer.set("split.count", part.count);
    writer.set("split.tensors.count", part.n_tensors);
    writer.add_tensor(part.tensor, 0, {8}, std::vector<uint8_t>(32, static_cast<uint8_t>(part.number)));
    writer.write(to);
  }
  // Writes a valid model, which the tests then damage.
  void write_all() const {
    for (uint16_t i = 0; i < 3; ++i) write(path(i + 1), {.number = i, .tensor = fmt::format("t{}", i)});
  }
  std::string fault() const {
    return refusal([&] { Gguf::open(path(1)); });
  }

  const std::string folder_;
};

TEST_F(SplitTest, AnyPartOfTheOutsideWritersModelOpensAll) {
  for (int part = 1; part <= 3; ++part) {
    const Gguf model = Gguf::open(fmt::format("{}/gguf/split-{:05}-of-00003.gguf", INGOT_TEST_DATA, part));
    EXPECT_EQ(model.n_files(), 3u);
    ASSERT_EQ(model.tensors().size(), 5u);
    EXPECT_EQ(model.metadata().get_u32("test.block_count"), 5u) << "the first part's metadata";
    for (int i = 0; i < 5; ++i) {
      const TensorInfo* tensor = model.find(fmt::format("blk.{}.weight", i));
      ASSERT_NE(tensor, nullptr);
      float value = -1;
      std::memcpy(&value, model.data(*tensor).data() + tensor->n_bytes - 4, 4);
      EXPECT_EQ(value, static_cast<float>(i));
    }
    EXPECT_NO_THROW(walk(model));
  }
}

TEST_F(SplitTest, OpensFromTheCurrentFolder) {
  write_all();
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(Gguf::open("model-00002-of-00003.gguf").tensors().size(), 3u);
  fs::current_path(before);
}

TEST_F(SplitTest, AMissingPartIsNamed) {
  write_all();
  fs::remove(path(2));
  EXPECT_THAT(fault(),
              testing::AllOf(HasSubstr("part 2 of 3 of the model is missing"), HasSubstr("model-00002-of-00003.gguf")));
}

TEST_F(SplitTest, SwappedPartsAreNamed) {
  write_all();
  fs::rename(path(2), path(9));
  fs::rename(path(3), path(2));
  fs::rename(path(9), path(3));
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00002-of-00003.gguf: "), HasSubstr("'split.no': expected 1"),
                                      HasSubstr("got 2")));
}

TEST_F(SplitTest, ADuplicatePartIsNamed) {
  write_all();
  write(path(3), {.number = 1, .tensor = "t2"});
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00003-of-00003.gguf: "), HasSubstr("'split.no': expected 2")));
}

TEST_F(SplitTest, AWrongCountIsNamed) {
  write_all();
  write(path(3), {.number = 2, .count = 4, .tensor = "t2"});
  EXPECT_THAT(fault(),
              testing::AllOf(HasSubstr("model-00003-of-00003.gguf: "), HasSubstr("'split.count': expected 3, got 4")));
}

TEST_F(SplitTest, APartWithoutSplitKeysIsNamed) {
  write_all();
  GgufWriter().write(path(2));
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00002-of-00003.gguf: "), HasSubstr("'split.no' is missing")));
}

TEST_F(SplitTest, APartOfAnotherModelIsNamed) {
  write_all();
  write(path(3), {.number = 2, .tensor = "t2", .model = "other"});
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00003-of-00003.gguf: "),
                                      HasSubstr("'general.name': \"other\" here"), HasSubstr("different models")));
}

TEST_F(SplitTest, ATensorInTwoPartsIsNamed) {
  write_all();
  write(path(3), {.number = 2, .tensor = "t0"});
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00003-of-00003.gguf: "),
                                      HasSubstr("tensor 't0' is already in an earlier part")));
}

TEST_F(SplitTest, AWrongTensorCountIsNamed) {
  for (uint16_t i = 0; i < 3; ++i) write(path(i + 1), {.number = i, .n_tensors = 4, .tensor = fmt::format("t{}", i)});
  EXPECT_THAT(fault(), HasSubstr("'split.tensors.count': 4 tensors, but the 3 parts hold 3"));
}

TEST_F(SplitTest, ADamagedPartIsNamed) {
  write_all();
  fs::resize_file(path(3), fs::file_size(path(3)) - 1);
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00003-of-00003.gguf: tensor 't2': "),
                                      HasSubstr("truncated: need 32 bytes, have 31")));
}

TEST_F(SplitTest, ANameThatDoesNotFollowThePatternIsRefused) {
  for (const char* name : {"model.gguf", "model-00001-of-00002.gguf", "-00001-of-00003.gguf.gguf",
                           "model-0001-of-00003.gguf", "model-000x1-of-00003.gguf"}) {
    const std::string renamed = folder_ + "/" + name;
    write(renamed, {});
    EXPECT_THAT(refusal([&] { Gguf::open(renamed); }), HasSubstr("its name must end in '-00001-of-00003.gguf'"))
        << name;
  }
}

TEST_F(SplitTest, AMergedFileIsWhole) {
  write(folder_ + "/merged.gguf", {.count = 0, .n_tensors = 1});  // left over from a merge
  write(folder_ + "/single.gguf", {.count = 1, .n_tensors = 1});
  EXPECT_EQ(Gguf::open(folder_ + "/merged.gguf").tensors().size(), 1u);
  EXPECT_EQ(Gguf::open(folder_ + "/single.gguf").tensors().size(), 1u);
}

TEST_F(SplitTest, LinksMayNotLeadOutOfTheFolder) {  // G39
  write_all();
  fs::create_directories(folder_ + "/elsewhere");
  fs::rename(path(2), folder_ + "/elsewhere/two");
  fs::create_symlink(folder_ + "/elsewhere/two", path(2));
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("model-00002-of-00003.gguf: "),
                                      HasSubstr("a link that leads out of its folder")));
}

TEST_F(SplitTest, ADownloadCacheOfLinksOpens) {  // all parts are links into one folder of blobs
  write_all();
  const std::string blobs = folder_ + "/blobs";
  fs::create_directories(blobs);
  for (int i = 1; i <= 3; ++i) {
    fs::rename(path(i), fmt::format("{}/{:x}", blobs, i * 0xabcdef));
    fs::create_symlink(fmt::format("{}/{:x}", blobs, i * 0xabcdef), path(i));
  }
  EXPECT_EQ(Gguf::open(path(3)).tensors().size(), 3u);
}

TEST_F(SplitTest, OnePartInMemoryIsRefused) {
  write_all();
  const MappedFile part(path(1));
  EXPECT_THAT(refusal([&] { Gguf::parse(part.bytes(), "m"); }), HasSubstr("one part of a model split into 3 files"));
}

}  // namespace
}  // namespace ingot
