// Writes the seeds of the tokenizer.json fuzzer into the folder given as the first argument: every tokenizer of the
// tests, of each model and with each kind of step. Vocabularies are shortened, so that a change of one byte is likely
// to have an effect.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/file.h"
#include "base/json.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr size_t kMaxTokens = 40, kMaxMerges = 12;

std::pair<std::string, std::string> parts_of(const Json& merge) {
  if (merge.is_array()) return {merge[0], merge[1]};
  const std::string text = merge;
  return {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
}

// Keeps the first tokens, those in `wanted` and all byte tokens, in the model's own form: an object of ids, or pairs of
// token and score. Returns the ids of the kept tokens.
std::map<std::string, size_t> cut_vocabulary(Json& vocab, const std::set<std::string>& wanted) {
  std::map<std::string, size_t> ids;
  size_t n_first = 0;
  Json kept = vocab.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : vocab.items()) {
    const std::string token = vocab.is_array() ? value[0].get<std::string>() : key;
    if (!token.starts_with("<0x") && !wanted.contains(token) && ++n_first > kMaxTokens) continue;
    if (vocab.is_array()) {
      kept.push_back(value);
    } else {
      kept[token] = ids.size();
    }
    ids.emplace(token, ids.size());
  }
  vocab = kept;
  return ids;
}

// Gives the added tokens the ids after the vocabulary, and updates the ids in the post-processor.
void renumber(Json& json, std::map<std::string, size_t> ids) {
  for (Json& token : json["added_tokens"]) token["id"] = ids.try_emplace(token["content"], ids.size()).first->second;
  auto fit = [&](Json& step) {
    if (step.contains("special_tokens"))
      for (auto& [name, token] : step["special_tokens"].items()) token["ids"] = {ids.at(name)};
    for (const char* key : {"cls", "sep"})
      if (step.contains(key)) step[key][1] = ids.at(step[key][0]);
  };
  Json& processor = json["post_processor"];
  if (processor.is_object()) fit(processor);
  if (processor.is_object() && processor.contains("processors"))
    for (Json& step : processor["processors"]) fit(step);
}

void cut(Json& json) {
  Json& model = json["model"];
  std::set<std::string> wanted;
  Json merges = Json::array();
  for (size_t i = 0; model.contains("merges") && i < std::min(kMaxMerges, model["merges"].size()); ++i) {
    const auto [left, right] = parts_of(model["merges"][i]);
    wanted.insert({left, right, left + right});
    merges.push_back(model["merges"][i]);
  }
  if (model.contains("merges")) model["merges"] = merges;
  renumber(json, cut_vocabulary(model["vocab"], wanted));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_hf_tokenizer FOLDER\n", stderr);
    return 2;
  }
  fs::create_directories(argv[1]);
  for (const auto& entry : fs::recursive_directory_iterator(INGOT_TOKENIZERS)) {
    if (entry.path().filename() != "tokenizer.json") continue;
    Json json = Json::parse(ingot::read_file(entry.path().string()));
    cut(json);
    const std::string text = json.dump();
    ingot::write_file(std::string(argv[1]) + "/" + entry.path().parent_path().filename().string(),
                      {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
}
