// Golden models divided among ranks, for the tests of both ways to divide experts.
#pragma once
#include <memory>
#include <string>

#include "base/json.h"
#include "golden_models.h"
#include "model/devices/parallel.h"
#include "model/files/checkpoint.h"

namespace ingot {

inline RunnerOptions rank_options(const std::string& name, const std::string& device, int n_ranks, bool whole_experts) {
  RunnerOptions options{.backend = {.device = device, .n_threads = n_ranks, .deterministic = device == "cpu"},
                        .n_ctx = n_ctx_of(name),
                        .max_batch_tokens = 512,
                        .max_logits = 512,
                        .kv_dtype = DType::kF32};
  options.parallel.n_ranks = n_ranks;
  options.parallel.whole_experts = whole_experts && n_ranks > 1;
  return options;
}

inline std::unique_ptr<Ranks> start_ranks_of(const fs::path& path, const RunnerOptions& options) {
  const auto checkpoint = open_checkpoint(path.string());
  return start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
}

// Two stages, each divided between two ranks.
inline std::unique_ptr<Ranks> start_stages_of_ranks(const std::string& name, bool whole_experts) {
  const fs::path path = kModels / (name + ".gguf");
  const int n_layers = open_checkpoint(path.string())->config().n_layers;
  RunnerOptions options = rank_options(name, "ref", 2, whole_experts);
  options.parallel.devices = {"ref,ref", "ref,ref"};
  options.layers_on.layers_of_device = {n_layers / 2, n_layers - n_layers / 2};
  return start_ranks_of(path, options);
}

// The CPU multiplies the weights of a golden model by activations that it does not round.
inline bool keeps_activations(const std::string& name) {
  const auto json = nlohmann::json::parse(read_file((kModels / (name + ".json")).string()));
  const std::string type = json["types"].value("*", "");
  return json["types"].size() == 1 && (type == "F32" || type == "F16");
}

}  // namespace ingot
