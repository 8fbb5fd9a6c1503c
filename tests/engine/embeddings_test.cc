// Embeddings in prompts: vectors in place of tokens work with chunks, preemption and the prefix cache like tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

using testing::HasSubstr;
constexpr int kDim = 3;

FakeOptions with_embeddings() {
  FakeOptions fake;
  fake.info = {.n_vocab = 100,
               .n_ctx = 128,
               .block_size = 4,
               .pools = {{.n_blocks = 100}},
               .max_batch_tokens = 32,
               .max_seqs = 8};
  fake.info.takes_embeddings = true;
  fake.info.embedding_dim = kDim;
  return fake;
}

// A prompt of n_prompt placeholders with these images.
Request image_request(int n_prompt, std::vector<PromptEmbedding> embeddings, int max_tokens = 6) {
  return {.prompt = std::vector<int32_t>(n_prompt, 7), .embeddings = std::move(embeddings), .max_tokens = max_tokens};
}

std::string embedding_error(const RunnerInfo& info, Request request) {
  request.sink = std::make_shared<Collector>();
  try {
    validate(request, info);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Embeddings, AreRefusedUnlessTheyFit) {
  const RunnerInfo info = with_embeddings().info, tokens_only = FakeOptions().info;
  EXPECT_EQ(embedding_error(info, image_request(10, {image(1, 2, 3, kDim), image(2, 5, 5, kDim)})), "");
  EXPECT_THAT(embedding_error(tokens_only, image_request(10, {image(1, 2, 3, kDim)})),
              HasSubstr("accepts only tokens"));
  EXPECT_THAT(embedding_error(info, image_request(10, {image(1, 8, 3, kDim)})), HasSubstr("within the 10 tokens"));
  EXPECT_THAT(embedding_error(info, image_request(10, {image(1, -1, 3, kDim)})), HasSubstr("from position -1"));
  EXPECT_THAT(embedding_error(info, image_request(10, {image(1, 2, 0, kDim)})), HasSubstr("has 0 rows"));
  EXPECT_THAT(embedding_error(info, image_request(10, {image(1, 2, 3, kDim), image(2, 4, 2, kDim)})),
              HasSubstr("embedding 1"));
  EXPECT_THAT(embedding_error(info, image_request(10, {image(1, 2, 3, kDim + 1)})),
              HasSubstr("12 floats: expected 3 rows of 3"));
  Request request = image_request(10, {image(1, 2, 3, kDim)});
  request.embeddings[0].rows = {};
  EXPECT_THAT(embedding_error(info, request), HasSubstr("0 floats"));
  request = image_request(10, {image(1, 2, 3, kDim)});
  request.embeddings[0].digest = {};
  EXPECT_THAT(embedding_error(info, request), HasSubstr("no digest"));
}

TEST(Embeddings, ChunksAndOtherRequestsChangeNothing) {
  const Request one = image_request(30, {image(1, 3, 9, kDim), image(2, 12, 5, kDim), image(1, 25, 5, kDim)});
  const Request other = image_request(17, {image(2, 0, 17, kDim)}), plain = image_request(30, {});
  std::vector<std::vector<int32_t>> outputs;
  for (int chunk = 1; chunk <= 32; ++chunk) {
    FakeRunner runner(with_embeddings());
    Engine engine(runner, {.chunk = chunk, .prefix_cache = false});
    for (const Request& request : {one, other, plain}) {
      const auto sink = submit(engine, request);
      if (chunk % 2 == 0) run(engine);
      outputs.push_back(expected_output(request, runner.info()).tokens);
      run(engine);
      EXPECT_EQ(sink->tokens, outputs.back());
    }
    EXPECT_EQ(runner.violations(), std::vector<std::string>());
  }
  EXPECT_NE(outputs[0], outputs[2]);  // the placeholders without images give another output
}

// The fake runner checks that a step has all tokens that its tokens see.
TEST(Embeddings, ThatSeeEachOtherAreInOneStep) {
  const auto whole = [](int id, int position, int n_rows) {
    PromptEmbedding e = image(id, position, n_rows, kDim);
    e.sees_all = true;
    return e;
  };
  const Request one = image_request(60, {whole(1, 3, 9), image(3, 12, 7, kDim), whole(2, 19, 25), whole(1, 50, 9)});
  const Request other = image_request(40, {whole(2, 0, 25)}), plain = image_request(70, {});
  for (int chunk = 1; chunk <= 32; ++chunk)
    for (const bool has_cache : {false, true}) {
      SCOPED_TRACE(chunk);
      FakeRunner runner(with_embeddings());
      Engine engine(runner, {.chunk = chunk, .prefix_cache = has_cache});
      std::vector<std::shared_ptr<Collector>> sinks;
      for (const Request* request : {&one, &other, &plain, &one}) {
        sinks.push_back(submit(engine, *request));
        if (chunk % 2 == 0) run(engine);
      }
      run(engine);
      const Request* requests[] = {&one, &other, &plain, &one};
      for (size_t i = 0; i < sinks.size(); ++i)
        EXPECT_EQ(sinks[i]->tokens, expected_output(*requests[i], runner.info()).tokens) << i;
      EXPECT_EQ(runner.violations(), std::vector<std::string>());
      EXPECT_GT(runner.n_seeing_later(), 9 + 25 + 9 + 25 - 8);
    }
  const RunnerInfo info = with_embeddings().info;  // 32 tokens a step, of which 7 may be other sequences'
  EXPECT_EQ(embedding_error(info, image_request(60, {whole(1, 0, 25)})), "");
  EXPECT_THAT(embedding_error(info, image_request(60, {whole(1, 0, 26)})), HasSubstr("a step has room for 25"));
}

TEST(Embeddings, AreComparedByTheirDigests) {
  FakeRunner runner(with_embeddings());
  Engine engine(runner);
  const auto cached_of = [&](const Request& request) {
    const auto sink = submit(engine, request);
    run(engine);
    EXPECT_EQ(sink->tokens, expected_output(request, runner.info()).tokens);
    return sink->finish->usage.cached_tokens;
  };
  EXPECT_EQ(cached_of(image_request(21, {image(1, 8, 6, kDim)})), 0);
  EXPECT_EQ(cached_of(image_request(21, {image(1, 8, 6, kDim)})), 20);
  EXPECT_EQ(cached_of(image_request(21, {image(2, 8, 6, kDim)})), 8);  // another image
  EXPECT_EQ(cached_of(image_request(21, {image(1, 9, 6, kDim)})), 8);  // the same image at another place
  EXPECT_EQ(cached_of(image_request(21, {})), 8);                      // placeholders used as plain tokens
  EXPECT_EQ(cached_of(image_request(21, {})), 20);
  EXPECT_EQ(cached_of(image_request(21, {image(1, 8, 5, kDim)})), 12);  // fewer rows of the image
  EXPECT_EQ(cached_of(image_request(21, {image(2, 8, 6, kDim)})), 20);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

// The same rows at other places of the rope have other keys.
TEST(Embeddings, AreComparedByTheirPlaces) {
  FakeOptions options = with_embeddings();
  options.info.n_rope_axes = kRopeAxes;
  FakeRunner runner(options);
  Engine engine(runner);
  const auto cached_of = [&](int n_columns) {
    PromptEmbedding rows = image(1, 8, 6, kDim);
    for (int32_t i = 0; i < 6; ++i) rows.places.push_back({0, i / n_columns, i % n_columns});
    rows.n_places = std::max(n_columns, 6 / n_columns);
    const auto sink = submit(engine, image_request(21, {rows}));
    run(engine);
    return sink->finish->usage.cached_tokens;
  };
  EXPECT_EQ(cached_of(3), 0);
  EXPECT_EQ(cached_of(3), 20);
  EXPECT_EQ(cached_of(2), 8);
  EXPECT_EQ(cached_of(6), 8);
  EXPECT_EQ(cached_of(2), 20);
  Request wrong = image_request(21, {image(1, 8, 6, kDim)});
  wrong.embeddings[0].places = {{0, 0, 0}};
  EXPECT_THAT(embedding_error(options.info, wrong), HasSubstr("1 places of 6: expected one for each of its 6 rows"));
  wrong.embeddings[0].places.assign(6, {0, 0, 6});
  EXPECT_THAT(embedding_error(options.info, wrong), HasSubstr("each from 0 to 5"));
  options.info.n_rope_axes = 1;
  EXPECT_THAT(embedding_error(options.info, wrong), HasSubstr("this model's rope has one"));
}

// Only a request with the same image gets the last, partly filled block.
TEST(Embeddings, AlsoInTheLastBlock) {
  FakeRunner runner(with_embeddings());
  for (const int other : {1, 2}) {
    Engine engine(runner);
    const Request first = image_request(6, {image(1, 3, 3, kDim)}, 1);
    submit(engine, first);
    run(engine);
    const Request next = image_request(12, {image(1, 3, 2, kDim), image(other, 5, 1, kDim)});
    const auto sink = submit(engine, next);
    run(engine);
    EXPECT_EQ(sink->tokens, expected_output(next, runner.info()).tokens);
    EXPECT_EQ(sink->finish->usage.cached_tokens, 5);  // row 0 of an image is not equal to row 2
    const Request same = image_request(12, {image(1, 3, 3, kDim)});
    const auto again = submit(engine, same);
    run(engine);
    EXPECT_EQ(again->tokens, expected_output(same, runner.info()).tokens);
    EXPECT_EQ(again->finish->usage.cached_tokens, 4);  // the request before took over the tail
  }
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

TEST(Embeddings, ComeBackAfterPreemption) {
  for (const bool overlaps : {false, true}) {
    for (const int n_states : {0, 12}) {
      FakeOptions fake = with_embeddings();
      fake.info.pools[0].n_blocks = 24;
      fake.info.overlaps = overlaps;
      fake.info.n_states = n_states;
      fake.info.max_logits = 16;
      FakeRunner runner(fake);
      Engine engine(runner);
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Collector>> sinks;
      for (int i = 0; i < 8; ++i) {
        requests.push_back(image_request(20, {image(i % 3, 2, 13, kDim)}, 30));
        if (i % 2 > 0) requests.back().proposer = fixed(right_drafts(requests.back(), fake.info, 3));
        sinks.push_back(submit(engine, requests.back()));
      }
      run(engine);
      for (size_t i = 0; i < sinks.size(); ++i)
        EXPECT_EQ(sinks[i]->tokens, expected_output(requests[i], fake.info).tokens);
      EXPECT_GT(engine.gauges().n_preemptions, 0);
      EXPECT_EQ(runner.violations(), std::vector<std::string>());
    }
  }
}

}  // namespace
}  // namespace ingot
