// Files written by the `gguf` package of llama.cpp (tools/gguf_fixtures/make.py) are read correctly, and ingot writes
// the same bytes as that package.
#include "io/gguf/gguf.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>

#include "base/cpu_time.h"
#include "io/gguf/ggml_type.h"
#include "io/gguf/writer.h"
#include "io/gguf_bytes.h"
#include "io/refused.h"
#include "io/walk.h"
#include "test_seed.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fixture(const std::string& name) { return std::string(INGOT_TEST_DATA) + "/gguf/" + name; }

template <class T>
std::vector<T> values(const Gguf& model, std::string_view name) {
  const TensorInfo* tensor = model.find(name);
  if (tensor == nullptr) return {};
  std::vector<T> out(tensor->n_bytes / sizeof(T));
  std::memcpy(out.data(), model.data(*tensor).data(), tensor->n_bytes);
  return out;
}

template <class T>
std::vector<T> counting(size_t n, T from = 0) {
  std::vector<T> out(n);
  std::iota(out.begin(), out.end(), from);
  return out;
}

template <class T>
std::vector<uint8_t> raw(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

TEST(Gguf, ReadsEveryScalarOfAnOutsideWriter) {
  const Gguf model = Gguf::open(fixture("all_types.gguf"));
  const Metadata& m = model.metadata();
  EXPECT_EQ(model.version(), 3u);
  EXPECT_EQ(m.get_string("general.architecture"), "test");
  EXPECT_EQ(m.get_u32("scalar.u8"), 255u);
  EXPECT_EQ(m.find_i32("scalar.i8").value(), -128);
  EXPECT_EQ(m.get_u32("scalar.u16"), 65535u);
  EXPECT_EQ(m.find_i32("scalar.i16").value(), -32768);
  EXPECT_EQ(m.get_u32("scalar.u32"), 4294967295u);
  EXPECT_EQ(m.find_i32("scalar.i32").value(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(m.find_u64("scalar.u64").value(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(m.find_i64("scalar.i64").value(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(m.get_f32("scalar.f32"), 0.15625f);
  EXPECT_EQ(m.find("scalar.f64")->as<double>(), 1e300);
  EXPECT_TRUE(m.find_bool("scalar.true").value());
  EXPECT_FALSE(m.find_bool("scalar.false").value());
  EXPECT_EQ(m.get_string("scalar.str"), "héllo 🙂");
}

TEST(Gguf, ReadsEveryArrayOfAnOutsideWriter) {
  const Gguf model = Gguf::open(fixture("all_types.gguf"));
  const Metadata& m = model.metadata();
  EXPECT_THAT(m.get_u32s("array.u8"), ElementsAre(1u, 255u));
  EXPECT_THAT(m.find_i32s("array.i8").value(), ElementsAre(-1, 127));
  EXPECT_THAT(m.get_u32s("array.u16"), ElementsAre(1u, 65535u));
  EXPECT_THAT(m.find_i32s("array.i16").value(), ElementsAre(-1, 32767));
  EXPECT_THAT(m.get_u32s("array.u32"), ElementsAre(1u, 4294967295u));
  EXPECT_THAT(m.find_i32s("array.i32").value(), ElementsAre(-1, 2147483647));
  EXPECT_EQ(render(*m.find("array.u64")), "[1, 18446744073709551615]");
  EXPECT_EQ(render(*m.find("array.i64")), "[-1, 9223372036854775807]");
  EXPECT_THAT(m.find_f32s("array.f32").value(), ElementsAre(0.5f, -2.0f));
  EXPECT_THAT(m.find_f32s("array.f64").value(), ElementsAre(0.5f, -2.0f));
  EXPECT_THAT(m.find_bool_per_layer("array.bool", 3).value(), ElementsAre(true, false, true));
  EXPECT_THAT(m.get_strings("array.str"), ElementsAre("", "a", "漢字"));
  EXPECT_EQ(render(*m.find("array.nested")), "[[1, 2, 3], [-4]]");
  EXPECT_EQ(render(*m.find("array.nested_str")), "[[\"x\"], [\"y\", \"z\"]]");
}

TEST(Gguf, ReadsTheTensorsOfAnOutsideWriter) {
  const Gguf model = Gguf::open(fixture("all_types.gguf"));
  EXPECT_EQ(values<float>(model, "one"), counting<float>(5));
  EXPECT_THAT(model.find("two.f16")->dims(), ElementsAre(3, 2));
  EXPECT_EQ(model.find("two.f16")->format, Format::F16);
  EXPECT_EQ(values<int32_t>(model, "three.i32"), counting<int32_t>(24));
  EXPECT_THAT(model.find("three.i32")->shape, ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(model.find("three.i32")->format, std::nullopt) << "listed, though not computed with";
  EXPECT_THAT(model.find("four")->dims(), ElementsAre(4, 1, 2, 1));
  EXPECT_EQ(values<float>(model, "four"), counting<float>(8));
  EXPECT_EQ(model.find("q8")->format, Format::Q8_0);
  EXPECT_THAT(model.find("q8")->dims(), ElementsAre(64, 2));
  EXPECT_EQ(model.find("q8")->n_bytes, 4 * 34u);
  EXPECT_EQ(model.find("iq2")->format, Format::IQ2_XXS);
  EXPECT_EQ(values<uint8_t>(model, "iq2"), counting<uint8_t>(66));
  EXPECT_EQ(model.find("absent"), nullptr);
  EXPECT_THAT(model.warnings(), testing::IsEmpty());
}

TEST(Gguf, ReadsVersion2AndItsOwnAlignment) {
  const Gguf model = Gguf::open(fixture("aligned.gguf"));
  EXPECT_EQ(model.version(), 2u);
  EXPECT_EQ(model.alignment(), 64u);
  EXPECT_EQ(model.find("b")->offset % 64, 0u);
  EXPECT_EQ(values<float>(model, "a"), counting<float>(3));
  EXPECT_EQ(values<float>(model, "b"), counting<float>(17, 3));
}

TEST(Gguf, ReadsAFileOfNoTensors) {
  const Gguf model = Gguf::open(fixture("vocab_only.gguf"));
  EXPECT_EQ(model.tensors().size(), 0u);
  EXPECT_THAT(model.metadata().get_strings("tokenizer.ggml.tokens"), ElementsAre("<s>", "a", "b", "ab"));
}

TEST(Gguf, RefusesBigEndianByName) {  // G04
  EXPECT_THAT(refusal([] { Gguf::open(fixture("big_endian.gguf")); }), HasSubstr("is big-endian"));
}

TEST(Gguf, SurvivesBeingMoved) {
  Gguf first = Gguf::open(fixture("aligned.gguf"));
  const Gguf second = std::move(first);
  EXPECT_EQ(values<float>(second, "b"), counting<float>(17, 3));
  EXPECT_EQ(second.metadata().get_u32("general.alignment"), 64u);
}

TEST(GgmlType, AgreesWithTheGgufPackage) {
  std::ifstream table(fixture("ggml_types.txt"));
  uint32_t id = 0, block_size = 0, block_bytes = 0;
  std::string name;
  int n = 0;
  for (; table >> id >> name >> block_size >> block_bytes; ++n) {
    const auto type = ggml_type(id);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(type->name, name);
    EXPECT_EQ(type->block_size, block_size) << name;
    EXPECT_EQ(type->block_bytes, block_bytes) << name;
  }
  EXPECT_GE(n, 34);
}

TEST(GgufWriter, WritesTheBytesOfTheOutsideWriter) {
  const Gguf outside = Gguf::open(fixture("all_types.gguf"));
  GgufWriter writer;
  writer.set("general.architecture", "test");
  writer.set("scalar.u8", uint8_t{255});
  writer.set("scalar.i8", int8_t{-128});
  writer.set("scalar.u16", uint16_t{65535});
  writer.set("scalar.i16", int16_t{-32768});
  writer.set("scalar.u32", uint32_t{4294967295});
  writer.set("scalar.i32", std::numeric_limits<int32_t>::min());
  writer.set("scalar.u64", std::numeric_limits<uint64_t>::max());
  writer.set("scalar.i64", std::numeric_limits<int64_t>::min());
  writer.set("scalar.f32", 0.15625f);
  writer.set("scalar.f64", 1e300);
  writer.set("scalar.true", true);
  writer.set("scalar.false", false);
  writer.set("scalar.str", std::string("héllo 🙂"));
  writer.set("array.u8", std::vector<uint8_t>{1, 255});
  writer.set("array.i8", std::vector<int8_t>{-1, 127});
  writer.set("array.u16", std::vector<uint16_t>{1, 65535});
  writer.set("array.i16", std::vector<int16_t>{-1, 32767});
  writer.set("array.u32", std::vector<uint32_t>{1, 4294967295});
  writer.set("array.i32", std::vector<int32_t>{-1, 2147483647});
  writer.set("array.u64", std::vector<uint64_t>{1, std::numeric_limits<uint64_t>::max()});
  writer.set("array.i64", std::vector<int64_t>{-1, std::numeric_limits<int64_t>::max()});
  writer.set("array.f32", std::vector<float>{0.5f, -2.0f});
  writer.set("array.f64", std::vector<double>{0.5, -2.0});
  writer.set("array.bool", std::vector<bool>{true, false, true});
  writer.set("array.str", std::vector<std::string_view>{"", "a", "漢字"});
  writer.set("array.nested", std::vector<std::vector<int32_t>>{{1, 2, 3}, {-4}});
  writer.set("array.nested_str", std::vector<std::vector<std::string>>{{"x"}, {"y", "z"}});
  writer.add_tensor("one", 0, {5}, raw(counting<float>(5)));
  writer.add_tensor("two.f16", 1, {3, 2}, raw(std::vector<uint16_t>{0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500}));
  writer.add_tensor("three.i32", 26, {4, 3, 2}, raw(counting<int32_t>(24)));
  writer.add_tensor("four", 0, {4, 1, 2, 1}, raw(counting<float>(8)));
  writer.add_tensor("q8", 8, {64, 2}, values<uint8_t>(outside, "q8"));
  writer.add_tensor("iq2", 16, {256, 1}, [] { return counting<uint8_t>(66); });
  const MappedFile expected(fixture("all_types.gguf"));
  EXPECT_EQ(writer.to_bytes(), std::vector<uint8_t>(expected.bytes().begin(), expected.bytes().end()));
}

TEST(GgufWriter, CopiesAnyFile) {
  for (const char* name : {"all_types.gguf", "aligned.gguf", "vocab_only.gguf"}) {
    const Gguf model = Gguf::open(fixture(name));
    GgufWriter writer(model.version());
    for (const auto& entry : model.metadata().entries()) writer.set(entry.key, entry.value);
    for (const TensorInfo& t : model.tensors()) {
      const auto data = model.data(t);
      writer.add_tensor(t.name, t.ggml_type, {t.dims().begin(), t.dims().end()}, {data.begin(), data.end()});
    }
    const MappedFile expected(fixture(name));
    EXPECT_EQ(writer.to_bytes(), std::vector<uint8_t>(expected.bytes().begin(), expected.bytes().end())) << name;
  }
}

TEST(GgufWriter, RefusesWhatTheFormatDoesNotAllow) {
  GgufWriter writer;
  writer.add_tensor("t", 0, {1}, std::vector<uint8_t>(4));
  EXPECT_THAT(refusal([&] { writer.set("", 1); }), HasSubstr("is empty"));
  EXPECT_THAT(refusal([&] { writer.set("\xff", 1); }), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal([&] { writer.set("general.alignment", uint32_t{48}); }), HasSubstr("power of two"));
  EXPECT_THAT(refusal([&] { writer.add_tensor("t", 0, {1}, std::vector<uint8_t>(4)); }), HasSubstr("twice"));
  EXPECT_THAT(refusal([&] { writer.add_tensor("u", 0, {2}, std::vector<uint8_t>(4)); }),
              HasSubstr("4 bytes of data for"));
  EXPECT_THAT(refusal([&] { writer.add_tensor("v", 2, {33}, std::vector<uint8_t>(18)); }), HasSubstr("not a multiple"));
  EXPECT_THAT(refusal([&] { writer.add_tensor("w", 0, {}, std::vector<uint8_t>(4)); }), HasSubstr("0 dimensions"));
  EXPECT_THAT(refusal([&] { writer.add_tensor("x", 5, {32}, std::vector<uint8_t>(4)); }), HasSubstr("removed"));
  EXPECT_THAT(refusal([&] { writer.add_tensor(std::string(64, 'x'), 0, {1}, std::vector<uint8_t>(4)); }),
              HasSubstr("long"));
}

// Random models are read back as they were written.
TEST(GgufWriter, RandomModelsRoundTrip) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int round = 0; round < 50; ++round) {
    GgufWriter writer(round % 2 ? 3 : 2);
    const uint32_t alignment = 1u << below(10);
    if (round % 3) writer.set("general.alignment", alignment);
    std::vector<std::string> texts;
    for (size_t i = below(20); i > 0; --i) {
      texts.emplace_back(below(50), '\0');
      for (char& c : texts.back()) c = static_cast<char>(below(256));
      writer.set(fmt::format("text.{}", texts.size()), texts.back());
    }
    writer.set("texts", texts);
    std::vector<std::vector<float>> tensors;
    for (size_t i = below(20); i > 0; --i) {
      const size_t rows = 1 + below(5), columns = 1 + below(40);
      tensors.emplace_back(rows * columns);
      for (float& x : tensors.back()) x = static_cast<float>(below(1000));
      writer.add_tensor(fmt::format("tensor.{}", tensors.size()), 0, {columns, rows}, raw(tensors.back()));
    }
    const std::vector<uint8_t> bytes = writer.to_bytes();
    const Gguf model = Gguf::parse(bytes, "random");
    EXPECT_EQ(model.alignment(), round % 3 ? alignment : 32u);
    EXPECT_EQ(model.metadata().get_strings("texts"), std::vector<std::string_view>(texts.begin(), texts.end()));
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(model.metadata().get_string(fmt::format("text.{}", i + 1)), texts[i]);
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(values<float>(model, fmt::format("tensor.{}", i + 1)), tensors[i]);
    EXPECT_THAT(model.warnings(), testing::IsEmpty());
    EXPECT_NO_THROW(walk(model));
  }
}

class GgufPath : public testing::Test {
 protected:
  GgufPath() : folder_(testing::TempDir() + "/gguf_path_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~GgufPath() override { std::filesystem::remove_all(folder_); }
  const std::string folder_;
};

TEST_F(GgufPath, OnlyRegularFilesAreOpened) {  // G40, G42
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string socket = folder_ + "/socket";
  ASSERT_EQ(::mknod(socket.c_str(), S_IFSOCK | 0600, 0), 0);
  for (const std::string& path : {folder_, fifo, socket, std::string("/dev/zero"), std::string("/dev/random"),
                                  folder_ + "/no\nfile", folder_ + "/" + std::string(4096, 'x')}) {
    const CpuTimer timer;
    const std::string message = refusal([&] { Gguf::open(path); });
    EXPECT_LT(timer.seconds(), 0.1) << message;
  }
}

TEST_F(GgufPath, ASparseFileOfOneTebibyteIsNotRead) {  // G41
  const std::string path = folder_ + "/sparse.gguf";
  GgufWriter writer;
  writer.add_tensor("t", 0, {8}, raw(counting<float>(8)));
  writer.write(path);
  if (::truncate(path.c_str(), off_t{1} << 40) != 0) GTEST_SKIP() << "this file system has no sparse files of 1 TiB";
  const CpuTimer timer;
  const Gguf model = Gguf::open(path);
  EXPECT_LT(timer.seconds(), 0.2);
  ASSERT_EQ(model.warnings().size(), 1u);
  EXPECT_THAT(model.warnings()[0], HasSubstr("belong to no tensor"));
}

TEST_F(GgufPath, AStringOfOneGibibyteIsRefusedThoughItIsThere) {
  const std::string path = folder_ + "/long.gguf";
  for (const uint64_t length : {Reader::kMaxStringBytes, Reader::kMaxStringBytes - 1}) {
    const GgufBytes bytes = GgufBytes().header(0, 1).str("k").u32(8).u64(length);
    write_file(path, bytes.span());
    if (::truncate(path.c_str(), off_t{1} << 31) != 0) GTEST_SKIP() << "this file system has no sparse files of 2 GiB";
    if (length < Reader::kMaxStringBytes) {
      EXPECT_EQ(Gguf::open(path).metadata().get_string("k").size(), length);
    } else {
      EXPECT_THAT(refusal([&] { Gguf::open(path); }),
                  HasSubstr("a string of 1073741824 bytes; the limit is 1073741823"));
    }
  }
}

TEST_F(GgufPath, WritesAFileThatOpens) {
  const std::string path = folder_ + "/model.gguf";
  GgufWriter writer;
  writer.set("name", "a model");
  writer.add_tensor("t", 0, {8}, raw(counting<float>(8)));
  writer.write(path);
  const Gguf model = Gguf::open(path);
  EXPECT_EQ(model.path(), path);
  EXPECT_EQ(model.file_bytes(), std::filesystem::file_size(path));
  EXPECT_EQ(values<float>(model, "t"), counting<float>(8));
}

}  // namespace
}  // namespace ingot
