// Reads the small vocabularies and goldens of tests/data/tokenizers, which tools/tokenizer_goldens/make.py writes.
#pragma once
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizers/tokenizer_specs.h"

namespace ingot::testing {

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(file);
}

inline std::unique_ptr<OwnedSpec> spec_from_json(const nlohmann::json& json) {
  auto owned = std::make_unique<OwnedSpec>();
  TokenizerSpec& spec = owned->spec;
  spec.source = "fixture";
  spec.model = json.at("model");
  spec.pre = json.at("pre");
  owned->tokens = json.at("tokens").get<std::vector<std::string>>();
  owned->merges = json.value("merges", std::vector<std::string>{});
  spec.scores = json.value("scores", std::vector<float>{});
  spec.token_types = json.value("token_types", std::vector<int32_t>{});
  auto optional = [&]<class T>(const char* key, std::optional<T>& to) {
    if (json.contains(key)) to = json.at(key).get<T>();
  };
  optional("bos", spec.bos);
  optional("eos", spec.eos);
  optional("unk", spec.unk);
  optional("add_bos", spec.add_bos);
  optional("add_eos", spec.add_eos);
  optional("add_space_prefix", spec.add_space_prefix);
  return owned;
}

// tests/data/tokenizers/NAME.json: {"spec": ..., "cases": [{"text", "ids", "special": true for parse_special}]}
inline nlohmann::json fixture(const std::string& name) {
  return read_json(std::string(INGOT_TEST_DATA) + "/tokenizers/" + name + ".json");
}

inline std::unique_ptr<Tokenizer> fixture_tokenizer(const std::string& name) {
  return Tokenizer::create(spec_from_json(fixture(name).at("spec"))->view());
}

inline size_t n_characters(std::string_view text) {
  size_t n = 0;
  for (char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace ingot::testing
