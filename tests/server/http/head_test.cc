// Heads of requests as bytes: accepted heads, refused heads with their status, and random bytes.
#include "server/http/head.h"

#include <gtest/gtest.h>

#include <random>

#include "test_seed.h"

namespace ingot {
namespace {

// 0: more bytes are needed; 200: accepted; otherwise the status of the refusal.
int status_of(std::string_view bytes, const HttpLimits& limits = {}) {
  try {
    const auto length = head_length(bytes, limits);
    if (!length) return 0;
    parse_head(bytes.substr(0, *length), limits);
    return 200;
  } catch (const ApiError& error) {
    return error.status();
  }
}

const std::string kGood =
    "POST /v1/completions?x=1 HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 12\r\nX-Some: a b\tc\r\n\r\n";

TEST(HttpHead, ParsesARequest) {
  const HttpHead head = parse_head(kGood, {});
  EXPECT_EQ(head.request.method, "POST");
  EXPECT_EQ(head.request.path, "/v1/completions");
  EXPECT_EQ(head.request.query, "x=1");
  EXPECT_EQ(*head.request.header("x-some"), "a b\tc");
  EXPECT_EQ(head.body.length, 12u);
  EXPECT_FALSE(head.body.chunked);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_TRUE(parse_head("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", {}).is_head);
  EXPECT_FALSE(parse_head("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", {}).keep_alive);
  EXPECT_FALSE(parse_head("GET / HTTP/1.0\r\n\r\n", {}).keep_alive);
  EXPECT_TRUE(parse_head("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", {}).keep_alive);
  EXPECT_EQ(parse_head("GET /a/ HTTP/1.1\r\nHost: a\r\n\r\n", {}).request.path, "/a");
}

TEST(HttpHead, EscapesAreForNamesOnly) {
  const auto path_of = [](const std::string& target) {
    return parse_head("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n", {}).request.path;
  };
  EXPECT_EQ(path_of("/v1/models/org%2Frepo%3AQ4%20x"), "/v1/models/org/repo:Q4 x");
  for (const char* target :
       {"/v1/models/%0a", "/v1/models/%", "/v1/models/%4", "/v1/models/%zz", "/v1/models/%+1", "/v1/models/%-1"})
    EXPECT_EQ(status_of("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400) << target;
  for (const char* target : {"/v1%2Fmodels", "/v1/models%2Fx", "/%76%31/models", "/v1/models/..%2f"})
    EXPECT_EQ(status_of("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 404) << target;
}

TEST(HttpHead, EveryPrefixIsIncompleteOrRefused) {
  for (size_t n = 0; n < kGood.size(); ++n) EXPECT_EQ(status_of(std::string_view(kGood).substr(0, n)), 0) << n;
  EXPECT_EQ(status_of(kGood), 200);
}

TEST(HttpHead, LimitsHoldAtTheLimitAndOneBeyond) {
  const HttpLimits limits{.request_line_bytes = 100, .head_bytes = 300, .header_count = 4, .body_bytes = 50};
  const auto with_line = [](size_t n) {
    return "GET /" + std::string(n - 15, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };  // the line's CR counts
  EXPECT_EQ(status_of(with_line(100), limits), 200);
  EXPECT_EQ(status_of(with_line(101), limits), 414);
  const auto with_head = [](size_t n) {
    const std::string fixed = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    return fixed + std::string(n - fixed.size(), 'a') + "\r\n\r\n";
  };
  EXPECT_EQ(status_of(with_head(300), limits), 200);
  EXPECT_EQ(status_of(with_head(301), limits), 431);
  const auto with_headers = [](int n) {
    std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 1; i < n; ++i) head += "X: a\r\n";
    return head + "\r\n";
  };
  EXPECT_EQ(status_of(with_headers(4), limits), 200);
  EXPECT_EQ(status_of(with_headers(5), limits), 431);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n", limits), 200);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 51\r\n\r\n", limits), 413);
}

// After any change of bytes, a head is accepted as a whole or refused. Heads that allow request smuggling are never
// accepted.
TEST(HttpHead, RandomBytesAreTakenWholeOrRefused) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const std::string pieces[] = {"\r\n",
                                "\n",
                                "\r",
                                " ",
                                "\t",
                                ":",
                                "Content-Length: 5\r\n",
                                "Transfer-Encoding: chunked\r\n",
                                std::string(1, '\0'),
                                "\x80",
                                "%2e",
                                "//",
                                "Host: b\r\n",
                                "\r\n\r\n"};
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = kGood;
    for (int k = 1 + static_cast<int>(draw() % 3); k > 0; --k) {
      const size_t at = draw() % bytes.size();
      switch (draw() % 3) {
        case 0: bytes[at] = static_cast<char>(draw()); break;
        case 1: bytes.insert(at, pieces[draw() % std::size(pieces)]); break;
        default: bytes.erase(at, 1 + draw() % 5);
      }
      if (bytes.empty()) bytes = "x";
    }
    const int status = status_of(bytes);
    ASSERT_TRUE(status == 0 || status == 200 || (status >= 400 && status <= 505 && status != 500)) << status;
    if (status != 200) continue;
    const std::string_view head = std::string_view(bytes).substr(0, *head_length(bytes, {}));
    size_t n_lengths = 0;
    const HttpHead parsed = parse_head(head, {});
    for (const auto& [name, value] : parsed.request.headers)
      n_lengths += name == "content-length" || name == "transfer-encoding";
    EXPECT_LE(n_lengths, 1u) << head;
    EXPECT_EQ(head.find('\0'), head.npos);
    if (!parsed.request.path.starts_with("/v1/models/")) {
      EXPECT_EQ(parsed.request.path.find("//"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ingot
