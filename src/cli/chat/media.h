// The images and recordings of `run` and `chat`: in messages they are parts {"type": "image_url"} with a data URL, or
// {"type": "input_audio"} with Base64, so that a saved conversation has them.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/chat/generate.h"
#include "model/loader.h"

namespace ingot {

// A user's message: the images and recordings, then the text.
nlohmann::ordered_json user_message(const std::string& text, const std::vector<MediaFile>& files);

// The text of a message, without its images and recordings.
std::string text_of_message(const nlohmann::ordered_json& message);
std::vector<MediaFile> media_of_message(const nlohmann::ordered_json& message);
// Whether a part of a saved message is an image or a recording.
bool is_media_part(const nlohmann::ordered_json& part);

// A conversation as the model gets it.
struct TalkPrompt {
  std::vector<int32_t> tokens;
  std::vector<PromptMedia> media;
};
// cache: null for a model that reads text only. Throws Error.
TalkPrompt encode_talk(const LoadedModel& model, MediaCache* cache, const nlohmann::ordered_json& messages,
                       const nlohmann::ordered_json& tools);
// The vectors of the prompt's images and recordings: runs the towers. Throws Error if the prompt does not fit the
// context.
std::vector<PromptEmbedding> encode_talk_media(const LoadedModel& model, MediaCache* cache, TalkPrompt& prompt);

// Throws Error if the model does not read files of this kind. cache: as above.
void need_sense(const MediaCache* cache, MediaKind kind);

// ", 512 of them for 2 images", of the prompt's tokens; empty without images and recordings.
std::string media_tokens_text(const TalkPrompt& prompt);

// "2 images took 512 tokens, encoded in 345 ms"; empty without images and recordings.
std::string media_line(const TalkPrompt& prompt, const MediaFigures& before, const MediaFigures& after);

}  // namespace ingot
