#include "cli/options/built_in.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/error.h"

#ifdef INGOT_DEMO
extern "C" {
extern const uint8_t ingot_demo_model_begin[], ingot_demo_model_end[];
extern const uint8_t ingot_demo_vision_begin[], ingot_demo_vision_end[];
extern const uint8_t ingot_demo_vision_tower_begin[], ingot_demo_vision_tower_end[];
}
#endif

namespace ingot {
namespace {

struct BuiltIn {
  std::string name, path;  // path: that of the checkpoint, for messages
  std::span<const uint8_t> model, tower;
};

const std::vector<BuiltIn>& built_in_models() {
  static const std::vector<BuiltIn> all = {
#ifdef INGOT_DEMO
      {kDemoModel, "the demo model", {ingot_demo_model_begin, ingot_demo_model_end}, {}},
      {kVisionDemo,
       "the vision demo",
       {ingot_demo_vision_begin, ingot_demo_vision_end},
       {ingot_demo_vision_tower_begin, ingot_demo_vision_tower_end}},
#endif
  };
  return all;
}

}  // namespace

std::string built_in_name(const std::string& given) {
  if (given.empty()) return kDemoModel;
  return (given == kDemoModel || given == kVisionDemo) && !std::filesystem::exists(given) ? given : "";
}

Gguf built_in_file(const std::string& name) {
  for (const BuiltIn& one : built_in_models())
    if (one.name == name) return Gguf::parse(one.model, one.path);
  throw UsageError("this program was built without the model '{}': name a GGUF file, a directory or ORG/REPO", name);
}

std::shared_ptr<const Gguf> tower_of_built_in(const Checkpoint& checkpoint) {
  for (const BuiltIn& one : built_in_models())
    if (one.path == checkpoint.path() && !one.tower.empty())
      return std::make_shared<const Gguf>(Gguf::parse(one.tower, "the tower of " + one.path));
  return nullptr;
}

}  // namespace ingot
