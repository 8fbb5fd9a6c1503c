// Answers of the Hub and their parsing: JSON, headers, refusals; hashes; locks; and the allowed addresses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>

#include "io/digest.h"
#include "io/hub/cache.h"
#include "io/hub/http.h"
#include "io/refused.h"

namespace ingot {
namespace {

const std::string kSha1(40, 'a'), kSha256(64, 'b');

std::vector<HubFile> tree(const std::string& body) {
  std::vector<HubFile> files;
  parse_tree(body, "tree", files);
  return files;
}

TEST(HubApi, Revision) {
  EXPECT_EQ(parse_revision(R"({"id":"a/b","sha":")" + kSha1 + R"(","siblings":[]})", "r"), kSha1);
  for (const char* body : {"", "[]", "{}", R"({"sha":null})", R"({"sha":7})", R"({"sha":"main"})", R"({"sha":"A"})",
                           "nul", "{\"sha\":\"\xff\"}"})
    EXPECT_NE(refusal([&] { parse_revision(body, "the revision"); }).find("the revision"), std::string::npos) << body;
}

TEST(HubApi, Tree) {
  const auto files =
      tree(R"([{"type":"directory","path":"x","oid":"","size":0},{"type":"file","path":"x/c.json","oid":")" + kSha1 +
           R"(","size":12},{"type":"file","path":"m.gguf","oid":")" + kSha1 + R"(","size":5,"lfs":{"oid":"sha256:)" +
           kSha256 + R"(","size":1099511627776,"pointerSize":134},"xetHash":"x"}])");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "x/c.json");
  EXPECT_EQ(files[0].hash, kSha1);
  EXPECT_EQ(files[0].n_bytes, 12u);
  EXPECT_EQ(files[1].hash, kSha256);
  EXPECT_EQ(files[1].n_bytes, uint64_t{1} << 40);
  auto file = [&](const std::string& path, const std::string& oid, const std::string& size) {
    return R"([{"type":"file","path":")" + path + R"(","oid":")" + oid + R"(","size":)" + size + "}]";
  };
  EXPECT_EQ(tree(file("a", kSha1, "0")).size(), 1u);
  for (const auto& body :
       {file("../a", kSha1, "1"), file("a", kSha256, "1"), file("a", "..", "1"), file("a", kSha1, "-1"),
        file("a", kSha1, "1e300"), file("a", kSha1, "null"), file("a\\u0000", kSha1, "1"), std::string("{}"),
        std::string(R"([[]])"), std::string(R"([{"type":"file"}])")})
    refusal([&] { tree(body); });
}

TEST(HubApi, NextPage) {
  EXPECT_EQ(next_page(R"(<https://h/x?cursor=a,b>; rel="next")"), "https://h/x?cursor=a,b");
  EXPECT_EQ(next_page(R"(<https://h/1>; rel="prev", <https://h/2>; rel="next")"), "https://h/2");
  EXPECT_EQ(next_page(R"(<<https://h/2>; rel="next")"), "https://h/2");
  for (const char* header : {"", "<", ">", "<x>", R"(<x>; rel="prev")", R"(x; rel="next")", "><", "<<<"})
    EXPECT_FALSE(next_page(header)) << header;
}

TEST(HubApi, ContentRange) {
  const auto range = parse_content_range(" bytes 100-199/200 ");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, 100u);
  EXPECT_EQ(range->total, 200u);
  EXPECT_FALSE(parse_content_range("bytes 1-2/*")->total);
  EXPECT_FALSE(parse_content_range("bytes */5")->begin);
  for (const char* header : {"", "bytes", "bytes ", "bytes /", "bytes 1/2", "bytes 1-/2", "bytes -1/2", "bytes 1-2/x",
                             "octets 1-2/3", "bytes 1-2/-3", "bytes 1-99999999999999999999/2"})
    EXPECT_FALSE(parse_content_range(header)) << header;
}

TEST(HubApi, FileHeaders) {
  const HubFile file{.path = "m.gguf", .n_bytes = 10, .hash = kSha256};
  auto check = [&](int status, std::map<std::string, std::string> headers) {
    check_file_headers({.status = status, .headers = std::move(headers)}, file, kSha1);
  };
  check(200, {});
  check(200, {{"x-repo-commit", kSha1},
              {"x-linked-etag", "\"" + kSha256 + "\""},
              {"x-linked-size", "10"},
              {"content-length", "10"},
              {"etag", "\"other\""}});
  check(200, {{"x-linked-etag", "W/\"" + kSha256 + "\""}});
  check(206, {{"content-range", "bytes 4-9/10"}, {"content-length", "6"}});
  using Headers = std::map<std::string, std::string>;
  for (const Headers& headers :
       {Headers{{"x-repo-commit", kSha256}}, Headers{{"x-linked-etag", "x"}}, Headers{{"x-linked-size", "9"}},
        Headers{{"content-length", "11"}}, Headers{{"content-range", "bytes 0-8/9"}}})
    EXPECT_NE(refusal([&] { check(200, headers); }).find("m.gguf"), std::string::npos);
}

// Every refusal names the repository, and is one line for any answer of the server.
TEST(HubApi, Refusals) {
  for (int status : {400, 401, 403, 404, 410, 418, 429, 500, 503}) {
    for (const char* code : {"", "RepoNotFound", "GatedRepo", "RevisionNotFound", "EntryNotFound", "\x1b[31m"}) {
      for (const char* file : {"", "x\n.gguf"}) {
        const HubRequest request{.repo = "org/repo",
                                 .revision = "v\x07",
                                 .endpoint = "https://h",
                                 .file = file,
                                 .has_token = status % 2 == 0};
        const HubResponse response{.status = status,
                                   .headers = {{"x-error-code", code}, {"x-error-message", "a\nb\x1b"}}};
        const std::string message = refusal([&] { throw hub_refusal(request, response); });
        EXPECT_NE(message.find("org/repo"), message.npos) << message;
        EXPECT_NE(message.find(std::to_string(status)), message.npos) << message;
      }
    }
  }
}

TEST(HubApi, UrlEncode) {
  EXPECT_EQ(url_encode("a b/c%d?e#f\xc3\xa9~-._", "/"), "a%20b/c%25d%3Fe%23f%C3%A9~-._");
  EXPECT_EQ(url_encode("refs/pr/1", ""), "refs%2Fpr%2F1");
}

// From FIPS 180-4 and from git.
TEST(Digest, KnownValues) {
  auto bytes = [](std::string_view text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  Digest abc = Digest::sha256();
  abc.update(bytes("a"));
  abc.update(bytes("bc"));
  EXPECT_EQ(abc.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Digest::sha256().finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Digest::git_blob(0).finish(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  Digest hello = Digest::git_blob(6);
  hello.update(bytes("hello\n"));
  EXPECT_EQ(hello.finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(HubHttp, OnlyHttpsFromAnHttpsEndpoint) {
  HubHttp https({.endpoint = "https://127.0.0.1:1"});
  EXPECT_NE(refusal([&] { https.get("http://127.0.0.1:1/x", 1); }).find("only https"), std::string::npos);
  HubHttp http({.endpoint = "http://127.0.0.1:1/"});
  EXPECT_EQ(http.options().endpoint, "http://127.0.0.1:1");
  EXPECT_NE(refusal([&] { http.get("file:///etc/passwd", 1); }).find("only https"), std::string::npos);
  for (const char* endpoint : {"", "x", "ftp://x", "file:///", "https://", "https://a b"})
    refusal([&] { HubHttp({.endpoint = endpoint}); });
  for (const char* token : {"a b", "a\r\nX: y", "\x7f"})
    refusal([&] { HubHttp({.endpoint = "https://x", .token = token}); });
}

TEST(HubHttp, StopsWhenAsked) {
  bool stop = false;
  HubHttp http({.endpoint = "http://127.0.0.1:1", .stopped = [&] { return stop; }});
  EXPECT_THROW(http.get("http://127.0.0.1:1/", 1), HubCut);
  stop = true;
  EXPECT_THROW(http.get("http://127.0.0.1:1/", 1), HubInterrupted);
}

class Locks : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = testing::TempDir() + "hub_locks_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/deep/x.lock";
};

TEST_F(Locks, OneHolderAtATime) {
  auto first = std::make_unique<HubLock>(path_, [] {});
  EXPECT_TRUE(HubLock::is_held(path_));
  int asked = 0;
  EXPECT_THROW(HubLock(path_, [&] {
                 if (++asked == 3) throw Error("enough");
               }),
               Error);
  EXPECT_EQ(asked, 3);
  first.reset();
  EXPECT_FALSE(HubLock::is_held(path_));
  const HubLock again(path_, [] { FAIL() << "nobody has it"; });
}

// Some programs remove the lock's file when they finish; a lock on a removed file does not protect anything.
TEST_F(Locks, FileRemovedWhileWaiting) {
  auto first = std::make_unique<HubLock>(path_, [] {});
  std::promise<void> waiting;
  bool told = false;
  auto second = std::async(std::launch::async, [&] {
    return std::make_unique<HubLock>(path_, [&] {
      if (!told) waiting.set_value();
      told = true;
    });
  });
  waiting.get_future().wait();
  std::filesystem::remove(path_);
  first.reset();
  const auto lock = second.get();
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(HubLock::is_held(path_));
}

TEST(HubCache, Refs) {
  const std::string root = testing::TempDir() + "hub_refs_" + std::to_string(::getpid());
  const HubCache cache(root, "org/repo");
  EXPECT_FALSE(cache.commit_of("main"));
  cache.write_ref("refs/pr/1", kSha1);
  EXPECT_EQ(cache.commit_of("refs/pr/1"), kSha1);
  EXPECT_EQ(cache.commit_of(kSha1), kSha1);
  EXPECT_FALSE(cache.commit_of("../refs/pr/1"));
  std::ofstream(root + "/models--org--repo/refs/bad") << "../../x";
  EXPECT_NE(refusal([&] { cache.commit_of("bad"); }).find("remove that file"), std::string::npos);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace ingot
