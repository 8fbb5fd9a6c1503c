// ingot pull: downloads a model from the Hugging Face Hub into the cache, and prints its path.
#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/options/commands.h"
#include "cli/options/hub.h"
#include "text/json_value.h"

namespace ingot {
namespace {

struct PullOptions {
  std::string model, log_level = "warn";
  HubFlags hub;
  bool json = false;
};

void print_json(const HubModel& model) {
  JsonValue json = {{"repo", model.repo}, {"commit", model.commit}, {"label", model.label}, {"path", model.path},
               {"downloaded_bytes", model.downloaded_bytes}, {"files", JsonValue::array()}};
  for (const HubFile& file : model.files) {
    JsonValue entry = {{"path", file.path}, {"bytes", file.n_bytes}};
    if (!file.hash.empty()) entry[file.hash.size() == 64 ? "sha256" : "git_sha1"] = file.hash;
    json["files"].push_back(entry);
  }
  fmt::print("{}\n", json.dump(2, ' ', false, JsonValue::error_handler_t::replace));
}

void pull(PullOptions& o) {
  set_log_level(parse_log_level(o.log_level));
  const HubName name = require_hub_name(o.model);
  const HubOptions options = hub_options(o.hub);
  const HubModel model = with_hub_events(name, [&](const HubEvents& events) {
    return options.offline ? cached_model(name, options) : pull_model(name, options, events);
  });
  if (o.json) {
    print_json(model);
  } else {
    fmt::print("{}\n", model.path);
  }
}

}  // namespace

void add_pull(CLI::App& app) {
  auto o = std::make_shared<PullOptions>();
  CLI::App* command = app.add_subcommand("pull", "Download a model from the Hugging Face Hub");
  command
      ->add_option("MODEL,-m,--model,--hf-repo", o->model,
                   "model to download: ORG/REPO[:QUANT]; QUANT selects one of several GGUF models, by default Q4_K_M "
                   "if there is one (also -hf)")
      ->required();
  add_hub_options(*command, o->hub);
  command->add_flag("--json", o->json, "print one JSON object instead of the path");
  command
      ->add_option("--log-level", o->log_level,
                   "log level: debug, info, warn, error or off; info reports each interrupted download")
      ->capture_default_str();
  command->footer(
      "An interrupted download continues where it stopped. Files are checked against their hashes, and shared with\n"
      "other programs that use the Hugging Face cache.\n"
      "Examples:\n  ingot pull ORG/REPO:Q8_0\n  ingot pull ORG/REPO --revision v1.0\n  ingot run \"$(ingot pull "
      "ORG/REPO)\" -p Hello");
  command->callback([o] { pull(*o); });
}

}  // namespace ingot
