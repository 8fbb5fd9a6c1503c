// FileWriter: a file is written completely or not at all, and a process that mapped the old file keeps the old bytes.
// Changes to a mapped file by other processes are detected.
#include "base/file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class FileWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              fmt::format("file_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  long n_files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  fs::path folder_;
};

TEST_F(FileWriterTest, CommitsTheWhole) {
  FileWriter file(path("a"));
  file.write(bytes_of("one "));
  file.write(bytes_of("two"));
  EXPECT_FALSE(fs::exists(path("a")));
  file.commit();
  EXPECT_EQ(read_file(path("a")), "one two");
  EXPECT_EQ(n_files(), 1);
}

uint32_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

// A new file has the permissions that the umask leaves, a replaced file keeps its own, and a private one is private.
TEST_F(FileWriterTest, SetsPermissions) {
  for (const mode_t mask : {0022, 0027, 0077, 0002}) {
    const mode_t before = ::umask(mask);
    const std::string name = path(fmt::format("m{:o}", mask).c_str());
    write_file(name, bytes_of("new"));
    EXPECT_EQ(mode_of(name), 0666 & ~mask);
    for (const uint32_t mode : {0640u, 0600u, 0755u, 0444u}) {
      fs::permissions(name, static_cast<fs::perms>(mode));
      write_file(name, bytes_of("replaced"));
      EXPECT_EQ(mode_of(name), mode) << mask;
    }
    write_file(name, bytes_of("private"), FileReaders::kOwner);
    EXPECT_EQ(mode_of(name), 0600u) << mask;
    write_file(name + ".new", bytes_of("private"), FileReaders::kOwner);
    EXPECT_EQ(mode_of(name + ".new"), 0600u) << mask;
    ::umask(before);
  }
}

TEST_F(FileWriterTest, LeavesNothingWithoutCommit) {
  write_file(path("a"), bytes_of("old"));
  {
    FileWriter file(path("a"));
    file.write(bytes_of("new"));
  }
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_EQ(n_files(), 1);
}

TEST_F(FileWriterTest, KeepsTheOldFileForThoseWhoHaveItMapped) {
  const std::string old(100'000, 'x');
  write_file(path("a"), bytes_of(old));
  const MappedFile mapped(path("a"));
  FileWriter file(path("a"));
  file.write(mapped.bytes().subspan(50'000));
  file.commit();
  EXPECT_EQ(mapped.bytes().size(), old.size());
  EXPECT_EQ(mapped.bytes().back(), 'x');
  EXPECT_EQ(read_file(path("a")).size(), 50'000u);
}

#if defined(__linux__)
// The bytes of a mapping that are in this process's memory; nothing if the system does not say.
std::optional<size_t> resident(const uint8_t* mapping) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(mapping));
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(begin)) {}
  while (std::getline(maps, line))
    if (line.starts_with("Rss:")) return std::stoul(line.substr(4)) * 1024;
  return std::nullopt;
}

TEST_F(FileWriterTest, GivesBackPagesOfAMappedFile) {
  const std::string text(1 << 20, 'x');
  write_file(path("a"), bytes_of(text));
  const MappedFile mapped(path("a"));
  const auto all_x = [&] { return std::ranges::count(mapped.bytes(), 'x') == std::ssize(text); };
  ASSERT_TRUE(all_x());
  if (!resident(mapped.bytes().data())) GTEST_SKIP() << "the system does not say which pages are in memory";
  EXPECT_EQ(resident(mapped.bytes().data()), text.size());
  const std::vector<uint8_t> elsewhere(1 << 16, 'y');
  give_back_mapped(elsewhere);
  EXPECT_EQ(std::ranges::count(elsewhere, 'y'), 1 << 16);
  give_back_mapped(mapped.bytes().subspan(100, 1 << 19));  // whole pages only
  EXPECT_LE(*resident(mapped.bytes().data()), (1u << 19) + (1u << 16));
  give_back_mapped(mapped.bytes());
  EXPECT_EQ(resident(mapped.bytes().data()), 0u);
  EXPECT_TRUE(all_x());
}
#endif

TEST_F(FileWriterTest, RefusesAtOnce) {
  const auto refused = [](const std::string& path) -> std::string {
    try {
      FileWriter file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused(path("no/such/folder")), HasSubstr("No such file"));
  EXPECT_THAT(refused(folder_.string()), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(path("pipe")), HasSubstr("not a regular file"));
  EXPECT_THAT(refused("/dev/null"), HasSubstr("not a regular file"));
}

TEST_F(FileWriterTest, ReplacingAMappedFileIsNoChange) {
  write_file(path("a"), bytes_of("old"));
  const MappedFile mapped(path("a"));
  write_file(path("a"), bytes_of("newer"));
  fs::remove(path("a"));
  EXPECT_EQ(changed_mapped_file(), "");
  EXPECT_EQ(std::string(mapped.bytes().begin(), mapped.bytes().end()), "old");
}

TEST_F(FileWriterTest, WritingToAMappedFileIsNoticedWhileItIsMapped) {
  for (const char* name : {"a", "b", "c"}) write_file(path(name), bytes_of("0123456789"));
  const MappedFile a(path("a"));
  {
    const MappedFile b(path("b"));
    MappedFile c(path("c"));
    const MappedFile moved = std::move(c);
    EXPECT_EQ(changed_mapped_file(), "");
    fs::resize_file(path("c"), 5);
    EXPECT_EQ(changed_mapped_file(), path("c"));
    std::fstream(path("b"), std::ios::in | std::ios::out) << 'x';
    fs::last_write_time(path("b"),
                        fs::last_write_time(path("b")) + std::chrono::seconds(1));  // file times are coarse
    EXPECT_EQ(changed_mapped_file(), path("b"));
  }
  EXPECT_EQ(changed_mapped_file(), "");
}

}  // namespace
}  // namespace ingot
