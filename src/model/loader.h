// Loading: makes a tokenizer, a chat template and a runner from a checkpoint. The program's commands and the server
// start here.
#pragma once
#include <memory>
#include <optional>

#include "model/devices/ranks.h"
#include "model/ears/ear_model.h"
#include "model/files/checkpoint.h"
#include "model/vision/vision_model.h"
#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

struct LoadedModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;  // nothing if the checkpoint has no chat template
  std::unique_ptr<Ranks> runner;
  std::unique_ptr<VisionModel> vision;  // null: the model reads no images
  std::unique_ptr<EarModel> ears;       // null: the model reads no recordings
  double load_ms = 0;
};

// The Jinja source of the checkpoint's chat template; nothing if it has none. Some checkpoints only name a template that
// ingot has.
std::optional<std::string> chat_template_source(const Checkpoint& checkpoint);
// The template itself.
std::optional<ChatTemplate> load_chat_template(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

// The options of towers that run on the first device of the runner. If no projector (mmproj) is named, it is the one
// beside the model's file, or the towers of the model's directory; then a tower that cannot be loaded costs only a
// warning.
VisionOptions vision_options(const Checkpoint& checkpoint, const RunnerOptions& runner, const std::string& mmproj);

// Makes the chat template also place images and recordings, if the model has towers. Call again for another template.
void place_media(const LoadedModel& model, ChatTemplate& chat);

// Makes the model use this template, in Jinja or the name chatml. Throws Error if the template does not parse.
void use_chat_template(LoadedModel& model, const std::string& source);

// Loads everything. Throws Error with the file's name for every fault of the checkpoint. towers: how the vision tower
// and the ears are loaded, if the model has them; nothing: they are not.
LoadedModel load_model(std::shared_ptr<const Checkpoint> checkpoint, const RunnerOptions& options,
                       const LoadProgress& progress, const std::optional<VisionOptions>& towers = std::nullopt);

}  // namespace ingot
