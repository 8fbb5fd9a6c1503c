// Helpers for engine tests on the tiny models of tests/data/models: their goldens, which are from transformers, and
// requests for greedy answers.
#pragma once

#include "base/file.h"
#include "base/json.h"
#include "collector.h"
#include "devices.h"
#include "io/gguf/gguf.h"
#include "model/devices/ranks.h"

namespace ingot {

inline std::string path_of(const std::string& file) { return std::string(INGOT_TEST_DATA) + "/models/" + file; }

struct GreedyGolden {
  explicit GreedyGolden(const std::string& model) {
    const auto json = nlohmann::json::parse(read_file(path_of(model + ".json")));
    prompt = json["tokens"].get<Tokens>();
    greedy = json["greedy"].get<Tokens>();
  }
  Tokens prompt, greedy;
};

inline std::shared_ptr<Collector> submit(Engine& engine, const Tokens& prompt, int n) {
  const auto sink = std::make_shared<Collector>();
  engine.submit({.prompt = prompt, .sampling = {.temperature = 0, .n_logprobs = 0}, .max_tokens = n, .sink = sink});
  return sink;
}

}  // namespace ingot
