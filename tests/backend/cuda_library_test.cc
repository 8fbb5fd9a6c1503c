// libingot-cuda.so is opened at run time. Fake libraries stand for it, because most machines have no GPU.
#include "backend/cuda_library.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend/blocks/embed.h"
#include "backend/blocks/plain_layers.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kFakes = INGOT_FAKE_LIBRARIES;

std::string fake(const std::string& name) { return kFakes + "/lib" + name + ".so"; }

TEST(CudaLibrary, TheFirstFileThatExistsIsOpened) {
  const CudaLibrary library = open_cuda_library({"/absent/a.so", fake("fake_cuda"), fake("fake_cuda_other")}, {});
  ASSERT_NE(library.entry, nullptr) << library.why_none;
  EXPECT_EQ(library.path, fake("fake_cuda"));
  EXPECT_EQ(library.entry->why_none(), "");
  EXPECT_EQ(library.entry->create({.device = "cuda"})->name(), "ref");
}

TEST(CudaLibrary, ItsErrorsAreThisProgramsErrors) {
  const CudaLibrary library = open_cuda_library({fake("fake_cuda")}, {});
  ASSERT_NE(library.entry, nullptr) << library.why_none;
  try {
    library.entry->create({.device = "cuda:7"});
    FAIL() << "there is no GPU 7";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "the library has no GPU 7");
  }
}

// Each side has its own copy of the code of blocks. A kind that only one of them knows would silently lose fast paths.
TEST(CudaLibrary, ItKnowsTheKindsOfThisProgramsBlocks) {
  const CudaLibrary library = open_cuda_library({fake("fake_cuda")}, {});
  ASSERT_NE(library.entry, nullptr) << library.why_none;
  const auto sees =
      reinterpret_cast<bool (*)(const Block&)>(function_of(open_library(library.path), "ingot_fake_sees_plain_layers"));
  ASSERT_NE(sees, nullptr);
  EXPECT_TRUE(sees(Block(PlainLayersBlock())));
  EXPECT_FALSE(sees(Block(EmbedBlock())));
}

TEST(CudaLibrary, ItsLogLinesFollowThisProgramsLevel) {
  const CudaLibrary library = open_cuda_library({fake("fake_cuda")}, {});
  ASSERT_NE(library.entry, nullptr) << library.why_none;
  for (const auto& [level, n] : {std::pair{LogLevel::kDebug, 2}, {LogLevel::kInfo, 1}, {LogLevel::kWarn, 0}}) {
    std::vector<std::string> lines;
    set_log_level(level);
    set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
    library.entry->create({.device = "cuda:1"});
    set_log_sink({});
    set_log_level(LogLevel::kWarn);
    ASSERT_EQ(lines.size(), static_cast<size_t>(n));
    if (n > 0) {
      EXPECT_EQ(lines.back(), "the library creates cuda:1");
    }
  }
}

TEST(CudaLibrary, AMissingLibraryOfNvidiaIsFoundInTheFolders) {
  const std::vector<std::string> files = {fake("fake_cuda_lacking")};
  const CudaLibrary none = open_cuda_library(files, {"/absent", kFakes});
  EXPECT_EQ(none.entry, nullptr);
  EXPECT_THAT(none.why_none, AllOf(HasSubstr("needs libfake_nvidia.so, which is not found"), HasSubstr("pip install")));
  const CudaLibrary library = open_cuda_library(files, {"/absent", kFakes + "/nvidia"});
  ASSERT_NE(library.entry, nullptr) << library.why_none;
  EXPECT_EQ(library.entry->why_none(), "");
}

TEST(CudaLibrary, WhatIsNoLibraryOfThisBuildIsRefused) {
  EXPECT_THAT(open_cuda_library({}, {}).why_none, HasSubstr("this installation has no CUDA"));
  EXPECT_THAT(open_cuda_library({"/absent/a.so"}, {}).why_none, HasSubstr("make cuda"));
  EXPECT_THAT(open_cuda_library({fake("fake_cuda_other")}, {}).why_none, HasSubstr("is of another build (ingot 9"));
  EXPECT_THAT(open_cuda_library({fake("fake_cuda_without_entry")}, {}).why_none,
              HasSubstr("is not ingot's CUDA library"));
  const std::string text = (fs::temp_directory_path() / fmt::format("no-library-{}.so", getpid())).string();
  std::ofstream(text) << "this is no library";
  const CudaLibrary library = open_cuda_library({text}, {});
  fs::remove(text);
  EXPECT_EQ(library.entry, nullptr);
  EXPECT_THAT(library.why_none, AllOf(HasSubstr("cannot be opened"), HasSubstr("no-library")));
}

TEST(CudaLibrary, IsLookedForBesideTheProgramAndWhereItIsInstalled) {
  const std::vector<std::string> files = cuda_library_files();
  const std::string program = fs::read_symlink("/proc/self/exe").parent_path();
  ASSERT_GE(files.size(), 2u);
  EXPECT_EQ(files[0], program + "/libingot-cuda.so");
  EXPECT_EQ(files[1], (fs::path(program).parent_path() / "lib/ingot/libingot-cuda.so").string());
}

}  // namespace
}  // namespace ingot
