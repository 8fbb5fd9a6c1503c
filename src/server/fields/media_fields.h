// Images and recordings in messages. Each API has its own form; all become OpenAI's, and then the form that chat templates read.
#pragma once
#include "model/media/media_cache.h"
#include "server/answers/api_call.h"

namespace ingot {

// A prompt of a chat, with its images and recordings if it has some.
struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<PromptMedia> media = {};
};

// A part in OpenAI's form: {"type": "image_url", "image_url": {"url", "detail"}}. where: the part in the request.
JsonValue image_part(const std::string& url, const std::string& where, const std::string& detail = "");
// The same for image data without the head of a data URL.
JsonValue image_data_part(const std::string& base64, const std::string& where);

// A recording in Base64, as take_media() reads it.
JsonValue recording_part(const std::string& base64, const std::string& where);

// OpenAI's content of a message: a string if it is text only; otherwise parts, in which neighbouring texts are one.
// text_types: types of parts with a text. Images are OpenAI's input_image and Anthropic's image, recordings OpenAI's
// input_audio.
JsonValue content_with_media(const JsonValue& content, const std::string& where,
                             std::initializer_list<const char*> text_types);
// Anthropic's block {"type": "image", "source": {...}}, or OpenAI's {"type": "input_image", ...}, as an image part.
JsonValue part_of_block(const JsonValue& block, const std::string& where);

// Takes the images and recordings out of messages in OpenAI's form: {"type": "image"} or {"type": "audio"} stays in the
// place of each. Loads them: slow. Throws ApiError.
std::vector<MediaFile> take_media(const ApiCall& call, JsonValue& messages);

// Whether a request has images or recordings, so that a worker for these must run it.
bool has_media(const JsonValue& body);

// The vectors of the prompt's images and recordings. Call after check_prompt(), because this is slow. Throws ApiError.
void encode_media(const ApiCall& call, ChatPrompt& prompt, GenerationSpec& spec);

}  // namespace ingot
