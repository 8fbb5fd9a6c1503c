// Images in messages. Each API has its own form; all become OpenAI's, and then the form that chat templates read.
#pragma once
#include "model/vision/image_cache.h"
#include "server/answers/api_call.h"

namespace ingot {

// A prompt of a chat, with its images if it has some.
struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<PromptImage> images = {};
};

// A part in OpenAI's form: {"type": "image_url", "image_url": {"url", "detail"}}. where: the part in the request.
JsonValue image_part(const std::string& url, const std::string& where, const std::string& detail = "");
// The same for image data without the head of a data URL.
JsonValue image_data_part(const std::string& base64, const std::string& where);

// OpenAI's content of a message: a string if there are no images; otherwise parts, in which neighbouring texts are one.
// text_types: types of parts with a text. Images are OpenAI's input_image and Anthropic's image.
JsonValue content_with_images(const JsonValue& content, const std::string& where,
                              std::initializer_list<const char*> text_types);
// Anthropic's block {"type": "image", "source": {...}}, or OpenAI's {"type": "input_image", ...}, as an image part.
JsonValue part_of_block(const JsonValue& block, const std::string& where);

// Takes the images out of messages in OpenAI's form: {"type": "image"} stays in the place of each. Loads the images:
// slow. Throws ApiError.
std::vector<ImageFile> take_images(const ApiCall& call, JsonValue& messages);

// Whether a request has images, so that a worker for images must run it.
bool has_images(const JsonValue& body);

// The vectors of the prompt's images. Call after check_prompt(), because this is slow. Throws ApiError.
void encode_images(const ApiCall& call, ChatPrompt& prompt, GenerationSpec& spec);

}  // namespace ingot
