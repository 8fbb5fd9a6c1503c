// CacheFolder returns exactly the stored bytes. It returns nothing if the file is cut, changed, replaced by the file of
// another key, unreadable, or a folder. If the folder cannot be written, store() throws; with an empty path, store()
// does nothing.
#include "base/cache_folder.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "test_seed.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

class CacheFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            fmt::format("cache_{}_{}", ::getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string path() const { return (root_ / "deep" / "folder").string(); }
  static std::string text_in(const std::string& file) { return read_file(file); }
  static void write(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

  fs::path root_;
};

Bytes random_bytes(std::mt19937_64& random, size_t n) {
  Bytes bytes(n);
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

TEST_F(CacheFolderTest, FindsWhatWasStored) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const CacheFolder cache(path());
  EXPECT_EQ(cache.find("a"), std::nullopt);  // the folder does not exist yet
  const Bytes a = random_bytes(random, 1 + random() % 100000), b = random_bytes(random, 100),
              changed = random_bytes(random, 3);
  cache.store("a", a);
  cache.store("b", b);
  cache.store("nothing", {});
  EXPECT_EQ(cache.find("a"), a);
  EXPECT_EQ(CacheFolder(path()).find("b"), b);
  EXPECT_EQ(cache.find("nothing"), Bytes());
  EXPECT_EQ(cache.find("c"), std::nullopt);
  EXPECT_EQ(cache.find(""), std::nullopt);
  cache.store("a", changed);
  EXPECT_EQ(cache.find("a"), changed);
}

TEST_F(CacheFolderTest, DamagedFilesCountAsNone) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const CacheFolder cache(path());
  const Bytes bytes = random_bytes(random, 500);
  cache.store("a", bytes);
  const std::string file = cache.file_of("a"), whole = text_in(file);
  ASSERT_EQ(cache.find("a"), bytes);
  for (size_t size = 0; size < whole.size(); size += 1 + random() % 20) {  // cut
    write(file, whole.substr(0, size));
    ASSERT_EQ(cache.find("a"), std::nullopt) << size;
  }
  write(file, whole + "x");
  EXPECT_EQ(cache.find("a"), std::nullopt);
  for (size_t i = 0; i < whole.size(); ++i) {  // one bit changed
    std::string other = whole;
    other[i] = static_cast<char>(other[i] ^ 1 << random() % 8);
    write(file, other);
    ASSERT_EQ(cache.find("a"), std::nullopt) << "byte " << i;
  }
  cache.store("b", random_bytes(random, 500));
  fs::copy_file(cache.file_of("b"), file, fs::copy_options::overwrite_existing);  // undamaged, but of another key
  EXPECT_EQ(cache.find("a"), std::nullopt);
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(cache.find("a"), std::nullopt);
  fs::remove(file);
  cache.store("a", bytes);  // storing again repairs the entry
  EXPECT_EQ(cache.find("a"), bytes);
}

TEST_F(CacheFolderTest, NothingIsKeptWhereNothingCanBeWritten) {
  fs::create_directories(root_);
  write((root_ / "file").string(), "");
  const CacheFolder in_a_file((root_ / "file" / "folder").string()), nowhere("");
  EXPECT_THROW(in_a_file.store("a", Bytes(3)), Error);
  EXPECT_EQ(in_a_file.find("a"), std::nullopt);
  nowhere.store("a", Bytes(3));
  EXPECT_EQ(nowhere.find("a"), std::nullopt);
  if (::geteuid() == 0) return;  // root may write anywhere
  const CacheFolder closed(path());
  closed.store("a", Bytes(3));
  fs::permissions(path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(closed.store("b", Bytes(3)), Error);
  EXPECT_EQ(closed.find("b"), std::nullopt);
  EXPECT_EQ(closed.find("a"), Bytes(3));
  fs::permissions(path(), fs::perms::owner_all);
}

TEST_F(CacheFolderTest, TheOldestGiveWay) {
  const CacheFolder cache(path(), 20);
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 20; ++i) {
    cache.store(std::to_string(i), Bytes(1));
    fs::last_write_time(cache.file_of(std::to_string(i)), now - std::chrono::hours(100 - i));
  }
  EXPECT_TRUE(cache.find("0"));  // finding an entry makes it the newest
  cache.store("new", Bytes(1));
  EXPECT_TRUE(cache.find("0"));
  EXPECT_TRUE(cache.find("new"));
  EXPECT_TRUE(cache.find("19"));
  EXPECT_FALSE(cache.find("1"));
  EXPECT_LE(std::distance(fs::directory_iterator(path()), fs::directory_iterator()), 20);
}

// Simulates programs that start at the same time.
TEST_F(CacheFolderTest, SeveralMayWriteAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const CacheFolder cache(path());
      for (int i = 0; i < 20; ++i) {
        const std::string name = std::to_string(i % 5);
        cache.store(name, Bytes(1000, name[0]));
        const auto found = cache.find(name);
        EXPECT_TRUE(found && *found == Bytes(1000, name[0]));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(CacheHome, FollowsTheEnvironment) {
  const auto with = [](const char* cache, const char* home) {
    cache != nullptr ? ::setenv("XDG_CACHE_HOME", cache, 1) : ::unsetenv("XDG_CACHE_HOME");
    home != nullptr ? ::setenv("HOME", home, 1) : ::unsetenv("HOME");
    return cache_home();
  };
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const std::string old_cache = cache ? cache : "", old_home = home ? home : "";
  EXPECT_EQ(with("/c", "/h"), "/c/ingot");
  EXPECT_EQ(with(nullptr, "/h"), "/h/.cache/ingot");
  EXPECT_EQ(with("", "/h"), "/h/.cache/ingot");
  EXPECT_EQ(with("relative", "/h"), "/h/.cache/ingot");  // the XDG specification ignores relative paths
  EXPECT_EQ(with(nullptr, nullptr), "");
  with(cache ? old_cache.c_str() : nullptr, home ? old_home.c_str() : nullptr);
}

}  // namespace
}  // namespace ingot
