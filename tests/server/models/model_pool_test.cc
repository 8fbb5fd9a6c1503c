// The pool of models with fakes: many requests share one load, the model idle longest is unloaded, busy and pinned
// models stay.
#include "server/models/model_pool.h"

#include <gtest/gtest.h>

#include "base/memory_error.h"
#include "engine/fake_runner.h"
#include "text/tokenizers/tokenizer_specs.h"

namespace ingot {
namespace {

struct Counters {
  std::atomic<int> loads{0};
};

ModelSource source(const std::string& id, Counters& counters, bool pinned = false, size_t bytes = 0) {
  return {.id = id,
          .aliases = {id + "-alias"},
          .load =
              [&counters, id, bytes] {
                ++counters.loads;
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                auto model = std::make_shared<ServedModel>(
                    ServedModelParts{.id = id,
                                     .tokenizer = Tokenizer::create(testing::byte_level_spec()->view()),
                                     .chat = ChatTemplate::chatml_default(),
                                     .runner = std::make_unique<FakeRunner>(),
                                     .facts = {.taken_bytes = bytes}});
                model->start();
                return model;
              },
          .pinned = pinned,
          .bytes = bytes / 2};  // the file's size; the loaded model takes more
}

ModelState state_of(const ModelPool& pool, const std::string& id) {
  for (const auto& row : pool.rows())
    if (row.id == id) return row.state;
  ADD_FAILURE() << "no " << id;
  return ModelState::kFailed;
}

TEST(ModelPool, ManyWhoAskHaveItLoadedOnce) {
  Counters a;
  ModelPool pool({source("a", a)}, {});
  std::atomic<int> n_ready{0};
  for (int i = 0; i < 50; ++i)
    pool.acquire(i % 2 ? "a" : "a-alias", [&](std::shared_ptr<ServedModel> model, const std::string&) {
      EXPECT_TRUE(model);
      ++n_ready;
    });
  EXPECT_TRUE(pool.load_now(""));
  EXPECT_EQ(n_ready, 50);
  EXPECT_EQ(a.loads, 1);
  EXPECT_TRUE(pool.knows("a-alias"));
  EXPECT_FALSE(pool.knows("b"));
}

TEST(ModelPool, TheOneIdleLongestMakesRoom) {
  Counters a, b, c;
  ModelPool pool({source("a", a), source("b", b), source("c", c)}, {.max_loaded = 2});
  pool.load_now("a");
  pool.load_now("b");
  pool.load_now("a");  // b is now the one idle longest
  pool.load_now("c");
  EXPECT_EQ(state_of(pool, "a"), ModelState::kLoaded);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kUnloaded);
  EXPECT_EQ(state_of(pool, "c"), ModelState::kLoaded);
  pool.load_now("b");
  EXPECT_EQ(b.loads, 2);
  EXPECT_EQ(state_of(pool, "a"), ModelState::kUnloaded);
}

TEST(ModelPool, MemoryTogetherIsBounded) {
  Counters a, b, c, d, e;
  ModelPool pool({source("a", a, false, 40), source("b", b, false, 50), source("c", c, false, 70),
                  source("d", d, false, 300), source("e", e, false, 150)},
                 {.max_bytes = 100});
  pool.fill();  // a, b; there would be no room for c
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded);
  EXPECT_EQ(state_of(pool, "c"), ModelState::kUnloaded);
  pool.load_now("a");
  pool.load_now("c");  // its file has 35 bytes, so b is unloaded; loaded it takes 70, so a is too
  EXPECT_EQ(state_of(pool, "a"), ModelState::kUnloaded);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kUnloaded);
  EXPECT_EQ(state_of(pool, "c"), ModelState::kLoaded);
  pool.load_now("b");
  EXPECT_EQ(state_of(pool, "c"), ModelState::kUnloaded);
  pool.load_now("a");
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded) << "both are known to fit";
  EXPECT_THROW(pool.load_now("d"), Error);  // 150 in its file alone
  EXPECT_EQ(d.loads, 0);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded) << "nobody goes in vain";
  EXPECT_THROW(pool.load_now("e"), Error);  // 75 in its file, and 150 when loaded
  EXPECT_EQ(state_of(pool, "e"), ModelState::kFailed);
}

// A device has 100 bytes. Only a load detects that there is too little memory.
TEST(ModelPool, WhoFindsTooLittleMemoryMakesOthersGo) {
  Counters counters;
  ModelPool* pool_of = nullptr;
  const auto on_device = [&](const std::string& id, size_t bytes, bool pinned = false) {
    ModelSource one = source(id, counters, pinned, bytes);
    one.bytes = 0;
    one.load = [&pool_of, load = one.load, bytes, id] {
      size_t taken = bytes;
      for (const auto& row : pool_of->rows())
        if (row.model && row.id != id) taken += row.model->facts().taken_bytes;
      if (taken > 100) throw MemoryError("{} of 100 bytes", taken);
      return load();
    };
    return one;
  };
  ModelPool pool(
      {on_device("a", 30), on_device("b", 30), on_device("c", 60), on_device("d", 120), on_device("e", 80, true)},
      {.patience = std::chrono::milliseconds(50)});
  pool_of = &pool;
  pool.fill();
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded);
  EXPECT_EQ(state_of(pool, "c"), ModelState::kUnloaded) << "what there is stays where it is at the start";
  pool.load_now("a");
  pool.load_now("c");
  EXPECT_EQ(state_of(pool, "a"), ModelState::kLoaded);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kUnloaded);
  pool.load_now("e");
  EXPECT_EQ(state_of(pool, "a"), ModelState::kUnloaded);
  EXPECT_EQ(state_of(pool, "c"), ModelState::kUnloaded);
  EXPECT_THROW(pool.load_now("a"), Error) << "e is pinned";
  EXPECT_THROW(pool.load_now("d"), Error);
  EXPECT_EQ(state_of(pool, "e"), ModelState::kLoaded);
}

TEST(ModelPool, TheBusyAndThePinnedStay) {
  Counters a, b, c;
  ModelPool pool({source("a", a, true), source("b", b), source("c", c)},
                 {.max_loaded = 2, .patience = std::chrono::milliseconds(50)});
  pool.load_now("a");
  std::shared_ptr<ServedModel> busy = pool.load_now("b");
  EXPECT_THROW(pool.load_now("c"), Error);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded);
  busy.reset();
  EXPECT_TRUE(pool.load_now("c"));
  EXPECT_EQ(state_of(pool, "a"), ModelState::kLoaded);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kUnloaded);
}

TEST(ModelPool, AFailureIsToldAndTriedAgain) {
  int n = 0;
  Counters a;
  ModelSource flaky = source("a", a);
  flaky.load = [&n, load = flaky.load] {
    if (n++ == 0) throw Error("the disk is away");
    return load();
  };
  ModelPool pool({flaky}, {});
  try {
    pool.load_now("a");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the disk is away");
  }
  EXPECT_EQ(state_of(pool, "a"), ModelState::kFailed);
  EXPECT_TRUE(pool.load_now("a"));
}

TEST(ModelPool, TheIdleGoAfterTheirTime) {
  Counters a, b;
  ModelPool pool({source("a", a), source("b", b, true)}, {.idle_ttl = std::chrono::seconds(1)});
  const auto begin = ModelPool::Clock::now();
  pool.load_now("a");
  pool.load_now("b");
  pool.tick();
  const ModelState at_once = state_of(pool, "a");
  if (ModelPool::Clock::now() - begin <
      std::chrono::seconds(1)) {  // otherwise the machine stalled, and `a` may be unloaded
    EXPECT_EQ(at_once, ModelState::kLoaded);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  pool.tick();
  EXPECT_EQ(state_of(pool, "a"), ModelState::kUnloaded);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded);
}

TEST(ModelPool, NamesMayEndInLatest) {
  Counters a, b;
  ModelPool pool({source("a", a), source("b:latest", b)}, {});
  EXPECT_TRUE(pool.knows("a:latest"));
  EXPECT_TRUE(pool.knows("a-alias:latest"));
  EXPECT_TRUE(pool.knows("b:latest"));
  EXPECT_FALSE(pool.knows("b"));
  EXPECT_FALSE(pool.knows("c:latest"));
  EXPECT_EQ(pool.load_now("b:latest")->id(), "b:latest");
}

TEST(ModelPool, AClientMayUnloadTheIdleOnly) {
  Counters a, b;
  ModelPool pool({source("a", a), source("b", b, true)}, {});
  EXPECT_EQ(pool.unload("a"), ModelPool::Unload::kNotLoaded);
  std::shared_ptr<ServedModel> busy = pool.load_now("a");
  pool.load_now("b");
  EXPECT_EQ(pool.unload("a"), ModelPool::Unload::kBusy);
  busy.reset();
  EXPECT_EQ(pool.unload("a-alias"), ModelPool::Unload::kDone);
  EXPECT_EQ(state_of(pool, "a"), ModelState::kUnloaded);
  EXPECT_EQ(pool.unload("b"), ModelPool::Unload::kPinned);
  EXPECT_TRUE(pool.load_now("a")) << "it can be loaded again";
}

TEST(ModelPool, ARequestSaysHowLongItsModelStays) {
  Counters a, b;
  ModelPool pool({source("a", a), source("b", b, true)}, {.idle_ttl = std::chrono::seconds(1)});
  const auto keep = [&](const std::string& name, int seconds) {
    pool.load_now(name);
    pool.keep(name, std::chrono::seconds(seconds));
  };
  keep("a", 0);
  keep("b", 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  pool.tick();
  EXPECT_EQ(state_of(pool, "a"), ModelState::kUnloaded);
  EXPECT_EQ(state_of(pool, "b"), ModelState::kLoaded) << "it is pinned";
  EXPECT_FALSE(pool.rows()[1].left);
  keep("a", -1);
  EXPECT_FALSE(pool.rows()[0].left);
  keep("a", 500);
  EXPECT_GT(pool.rows()[0].left, std::chrono::seconds(400));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  pool.tick();
  EXPECT_EQ(state_of(pool, "a"), ModelState::kLoaded) << "longer than idle_ttl";
  pool.load_now("a");  // a request without keep_alive
  EXPECT_LE(pool.rows()[0].left, std::chrono::seconds(1));
}

TEST(ModelPool, TwoOfOneNameAreRefused) {
  Counters a;
  EXPECT_THROW(ModelPool({source("a", a), source("a", a)}, {}), UsageError);
}

}  // namespace
}  // namespace ingot
