// ingot rm: removes models from the Hugging Face cache.
#include <fmt/format.h>

#include <iostream>

#include "base/error.h"
#include "base/system.h"
#include "cli/options/commands.h"
#include "cli/options/hub.h"
#include "cli/terminal/terminal.h"
#include "io/hub/list.h"

namespace ingot {
namespace {

struct RmOptions {
  HubFlags hub;
  std::vector<std::string> models;
  bool yes = false;
};

bool confirmed(const std::string& question) {
  if (!stdin_is_terminal())
    throw UsageError("{} The answer needs a terminal: give --yes to remove without asking", question);
  fmt::print(stderr, "{} [y/N] ", question);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void rm(const RmOptions& o) {
  const std::string cache = hub_options(o.hub).cache;
  for (const std::string& model : o.models) {
    const HubName name = require_hub_name(model);
    const HubRemoval removal = plan_removal(cache, name, o.hub.revision);
    const std::string what = name.repo + (name.tag.empty() ? "" : ":" + name.tag) +
                             (o.hub.revision.empty() ? "" : " at " + printable(o.hub.revision));
    if (!o.yes && !confirmed(fmt::format("Remove {} ({})?", what, human_bytes(removal.freed_bytes)))) continue;
    remove(removal);
    fmt::print("removed {}, {} freed\n", what, human_bytes(removal.freed_bytes));
  }
}

}  // namespace

void add_rm(CLI::App& app) {
  auto o = std::make_shared<RmOptions>();
  CLI::App* command = app.add_subcommand("rm", "Remove downloaded models");
  command->add_option("MODEL", o->models, "ORG/REPO for the whole repository, or ORG/REPO:QUANT for one of its models")
      ->required();
  command->add_option("--revision", o->hub.revision, "remove only models of this branch, tag or commit");
  command->add_flag("-y,--yes", o->yes, "remove without asking");
  add_hub_cache_option(*command, o->hub);
  command->footer(
      "Files that another revision or model needs are kept.\n"
      "Examples:\n  ingot rm ORG/REPO:Q8_0\n  ingot rm ORG/REPO --yes");
  command->callback([o] { rm(*o); });
}

}  // namespace ingot
