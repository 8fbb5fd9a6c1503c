// A request has several sequences, and the engine refuses one of them. The others are cancelled, and their slots are
// free again.
#include "base/device_lost.h"
#include "server/rig.h"

namespace ingot {
namespace {

// Whether all slots of the model become free.
bool frees_slots(ServedModel& model) {
  const auto is_busy = [&] {
    const std::vector<bool> busy = model.slots().busy();
    return std::ranges::find(busy, true) != busy.end();
  };
  for (int i = 0; i < 20000 && is_busy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return !is_busy();
}

// Writes nothing.
class SilentWriter final : public AnswerWriter {
 public:
  void begin(const Totals&, std::string&) override {}
  void delta(int, const Delta&, std::string&) override {}
  void choice_end(int, const ChoiceEnd&, std::string&) override {}
  void end(const Totals&, std::string&) override {}
  std::string whole(const std::vector<ChoiceResult>&, const Totals&) override { return "{}"; }
};

TEST(RefusedSequence, AtItsStartFreesTheSlotsOfTheOthers) {
  Rig rig({.step_us = 200});
  Workers workers(2);
  Pacer pacer(workers, std::chrono::milliseconds(1));
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 20; ++round) {
    GenerationSpec spec{.max_tokens = 200, .ignore_eos = true, .n = random.integer(1, 3)};
    for (int i = random.integer(0, 3); i > 0; --i) spec.prompts.push_back({1, 2, random.integer(0, 258)});
    spec.prompts.emplace_back(static_cast<size_t>(rig.model->n_ctx()) + 1, 65);
    for (int i = random.integer(0, 2); i > 0; --i) spec.prompts.push_back({3});
    auto ticket = rig.model->admit(spec.n_choices());
    ASSERT_TRUE(ticket);
    const auto recorder = std::make_shared<Recorder>();
    EXPECT_THROW(GenerationRun::start(rig.model, std::move(*ticket), std::move(spec), pacer,
                                      std::make_unique<SilentWriter>(), recorder),
                 ApiError);
    EXPECT_TRUE(frees_slots(*rig.model));
    EXPECT_TRUE(rig.wait_idle());
  }
  workers.stop();
}

// The fresh engine is smaller, so it refuses the longest of the prompts.
TEST(RefusedSequence, AtItsReplayFreesTheSlotsOfTheOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> n_engines{0};
    const FakeOptions options{.step_us = 100};
    Rig rig(options, 64, {},
            [&](ServedModelParts& parts) {
              FakeOptions own = options;
              own.info.n_vocab = 259;
              if (n_engines++ == 0)
                own.before_forward = [](int64_t step) {
                  if (step == 12) throw DeviceLost("an illegal memory access");
                };
              else
                own.info.n_ctx = 64;
              parts.runner = std::make_unique<FakeRunner>(own);
            },
            {.replaces_lost = true});
    std::vector<std::vector<int32_t>> prompts;
    for (int i = random.integer(0, 3); i > 0; --i) prompts.push_back({1, 2, random.integer(0, 258)});
    prompts.emplace_back(100, 65);
    for (int i = random.integer(0, 2); i > 0; --i) prompts.push_back({3});
    const auto got = rig.post("/v1/completions", {{"prompt", prompts}, {"max_tokens", 50}, {"ignore_eos", true}});
    ASSERT_TRUE(got->wait());
    EXPECT_EQ(got->status(), 503) << got->body();
    EXPECT_EQ(n_engines, 2);
    const auto fresh = rig.app.models()[0];
    EXPECT_TRUE(frees_slots(*fresh));
    for (int i = 0; i < 20000 && fresh->n_taken() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(fresh->n_taken(), 0);
    fresh->stop();
  }
}

}  // namespace
}  // namespace ingot
