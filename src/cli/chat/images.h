// The images of `run` and `chat`: in messages they are parts {"type": "image_url"} with a data URL, so that a saved
// conversation has them.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/chat/generate.h"
#include "model/loader.h"

namespace ingot {

// A user's message: the images, then the text.
nlohmann::ordered_json user_message(const std::string& text, const std::vector<ImageFile>& images);

// The text of a message, without its images.
std::string text_of_message(const nlohmann::ordered_json& message);
std::vector<ImageFile> images_of_message(const nlohmann::ordered_json& message);

// A conversation as the model gets it.
struct TalkPrompt {
  std::vector<int32_t> tokens;
  std::vector<PromptImage> images;
};
// images: null for a model that reads text only. Throws Error.
TalkPrompt encode_talk(const LoadedModel& model, ImageCache* images, const nlohmann::ordered_json& messages,
                       const nlohmann::ordered_json& tools);
// The vectors of the prompt's images: runs the tower. Throws Error if the prompt does not fit the context.
std::vector<PromptEmbedding> encode_talk_images(const LoadedModel& model, ImageCache* images, TalkPrompt& prompt);

// "2 images took 512 tokens, encoded in 345 ms"; empty without images.
std::string image_line(const TalkPrompt& prompt, const ImageFigures& before, const ImageFigures& after);

}  // namespace ingot
