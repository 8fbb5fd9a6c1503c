// Helpers for engine tests on the tiny models of tests/data/models: their goldens, which are from transformers, and
// requests for greedy answers.
#pragma once
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "collector.h"
#include "devices.h"
#include "engine/engine.h"
#include "io/gguf/gguf.h"
#include "model/ranks.h"

namespace ingot {

using Tokens = std::vector<int32_t>;

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

inline void run(Engine& engine) {
  while (engine.step()) {
  }
}

inline Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace ingot
