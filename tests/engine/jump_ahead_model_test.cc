// Forced text with the demo model. Tokens after forced text are the model's tokens for that history. A preempted
// request has the same answer. The answer follows the schema in fewer steps.
#include <gtest/gtest.h>

#include "base/json.h"
#include "collector.h"
#include "engine/engine.h"
#include "engine/jump_ahead.h"
#include "model/loader.h"
#include "model/devices/score.h"
#include "text/chat_encode.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/masks/model_grammars.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAnimalSchema = R"({"type": "object", "additionalProperties": false,
  "properties": {"name_of_the_animal": {"type": "string", "maxLength": 12}, "is_it_awake_at_night": {"type": "boolean"},
                 "favourite_food": {"enum": ["berries and honey", "fish"]}},
  "required": ["name_of_the_animal", "is_it_awake_at_night", "favourite_food"]})";

struct Subject {
  Subject(int n_ctx, int n_kv_tokens)
      : model(load_model(
            open_checkpoint(std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf"),
            {.n_ctx = n_ctx, .max_batch_tokens = 64, .max_seqs = 4, .max_logits = 64, .n_kv_tokens = n_kv_tokens},
            nullptr)),
        constraint(
            std::make_shared<Constraint>(compile_schema(kAnimalSchema, {}, {.is_compact = true}),
                                         make_grammar_vocabulary(*model.tokenizer, model.runner->info().n_vocab))) {}

  Request request(const char* question) const {
    const Json messages = {{{"role", "user"}, {"content", question}}};
    return {.prompt = encode_chat(*model.tokenizer, *model.chat, messages, nullptr, nullptr),
            .sampling = {.temperature = 0},
            .max_tokens = 100,
            .stop_tokens = model.tokenizer->end_tokens(),
            .constraint = constraint};
  }

  LoadedModel model;
  std::shared_ptr<Constraint> constraint;
};

std::vector<std::shared_ptr<Collector>> answers(Engine& engine, const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (Request request : requests) {
    request.sink = sinks.emplace_back(std::make_shared<Collector>());
    engine.submit(std::move(request));
  }
  while (engine.step()) {}
  return sinks;
}

// Checks that each token is forced or the likeliest allowed token. Returns the number of forced tokens.
int check_tokens(Subject& subject, const Request& request, const std::vector<int32_t>& answer) {
  std::vector<int32_t> all = request.prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  std::vector<std::vector<float>> logits;
  const int first = static_cast<int>(request.prompt.size()) - 1;
  for_each_logits(*subject.model.runner, all, 64, first,
                  [&](int, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); });
  AnswerConstraint constraint(request.constraint, {});
  std::vector<int32_t> forced;
  size_t forced_end = 0;
  int n_forced = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    const auto output = std::span(answer).first(i);
    if (i >= forced_end && i > 0) {
      forced = forced_tokens(constraint, output);
      forced_end = i + forced.size();
    }
    if (i < forced_end) {
      EXPECT_EQ(answer[i], forced[forced.size() - (forced_end - i)]);
      ++n_forced;
    } else {
      const auto mask = constraint.mask();
      int32_t best = -1;
      for (int32_t token = 0; token < subject.model.runner->info().n_vocab; ++token)
        if (allows_token(*mask, token) && (best < 0 || logits[i][token] > logits[i][best])) best = token;
      EXPECT_EQ(answer[i], best) << "token " << i;
    }
    EXPECT_TRUE(constraint.accept(answer[i]));
    if (i + 1 == forced_end) forced_end = 0;
  }
  return n_forced;
}

TEST(JumpAheadModel, SaysWhatTheModelSays) {
  const std::vector<const char*> questions = {"Tell me about a fox.", "What is your name?", "Which owl lives here?",
                                              "Who sleeps in the snow?"};
  Subject subject(256, 0), little(160, 160);
  std::vector<Request> requests, same;
  for (const char* question : questions) {
    requests.push_back(subject.request(question));
    same.push_back(little.request(question));
  }
  // No prefix cache, because check_tokens writes to the blocks of the same runner.
  Engine engine(*subject.model.runner, {.prefix_cache = false}),
      drawing(*subject.model.runner, {.prefix_cache = false, .jump_ahead = false}), crowded(*little.model.runner);
  int n_forced = 0, n_preempted = 0;
  const auto among = answers(crowded, same);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = answers(engine, {requests[i]})[0], drawn = answers(drawing, {requests[i]})[0];
    for (const auto& sink : {alone, drawn}) {
      ASSERT_EQ(sink->finish->reason, FinishReason::kStop) << subject.model.tokenizer->decode(sink->tokens);
      const Json answer = Json::parse(subject.model.tokenizer->decode(sink->tokens));
      EXPECT_EQ(answer.size(), 3u);
      EXPECT_TRUE(answer["name_of_the_animal"].is_string() && answer["is_it_awake_at_night"].is_boolean());
    }
    n_forced += check_tokens(subject, requests[i], alone->tokens);
    EXPECT_EQ(among[i]->tokens, alone->tokens);
    n_preempted += among[i]->finish->usage.preemptions;
  }
  EXPECT_GT(n_preempted, 0);
  EXPECT_EQ(engine.gauges().n_forced_tokens, n_forced);
  EXPECT_GT(n_forced, 10);
  EXPECT_LT(engine.gauges().n_steps, drawing.gauges().n_steps);
}

}  // namespace
}  // namespace ingot
