#include "cli/chat/images.h"

#include <fmt/format.h>

#include "base/base64.h"
#include "base/error.h"
#include "text/chat_encode.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr std::string_view kDataHead = ";base64,";

// Nothing but the content says the type, so the URL names none.
std::string data_url_of(const ImageFile& image) {
  const auto& bytes = *image.bytes;
  return "data:" + std::string(kDataHead) + to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

ImageFile image_of_part(const JsonValue& part, const std::string& where) {
  const JsonValue image = part.value("image_url", JsonValue::object());
  const JsonValue url = image.is_object() ? image.value("url", JsonValue()) : image;
  const std::string text = url.is_string() ? url.get<std::string>() : "";
  const size_t head = text.find(kDataHead);
  auto bytes = text.starts_with("data:") && head != text.npos
                   ? from_base64(std::string_view(text).substr(head + kDataHead.size()))
                   : std::nullopt;
  if (!bytes) throw Error("{}: an image must be a data URL in Base64", where);
  return {.bytes = std::make_shared<const std::vector<std::byte>>(std::move(*bytes)), .where = where};
}

bool is_image_url(const JsonValue& part) { return part.is_object() && part.value("type", "") == "image_url"; }

// Takes the images out of the messages: the parts become {"type": "image"}.
std::vector<ImageFile> take_talk_images(JsonValue& messages) {
  std::vector<ImageFile> files;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].contains("content") || !messages[i]["content"].is_array()) continue;
    for (JsonValue& part : messages[i]["content"]) {
      if (!is_image_url(part)) continue;
      files.push_back(image_of_part(part, fmt::format("image {}", files.size() + 1)));
      part = {{"type", "image"}};
    }
  }
  return files;
}

}  // namespace

JsonValue user_message(const std::string& text, const std::vector<ImageFile>& images) {
  if (images.empty()) return {{"role", "user"}, {"content", text}};
  JsonValue parts = JsonValue::array();
  for (const ImageFile& image : images)
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", data_url_of(image)}}}});
  if (!text.empty()) parts.push_back({{"type", "text"}, {"text", text}});
  return {{"role", "user"}, {"content", std::move(parts)}};
}

std::string text_of_message(const JsonValue& message) {
  const JsonValue content = message.value("content", JsonValue());
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (content.is_array())
    for (const JsonValue& part : content)
      if (part.is_object() && part.value("type", "") == "text") text += part.value("text", "");
  return text;
}

std::vector<ImageFile> images_of_message(const JsonValue& message) {
  JsonValue one = JsonValue::array({message});
  return take_talk_images(one);
}

TalkPrompt encode_talk(const LoadedModel& model, ImageCache* images, const JsonValue& messages,
                       const JsonValue& tools) {
  JsonValue shown = messages;
  std::vector<ImageFile> files = take_talk_images(shown);
  if (files.empty()) return {encode_chat(*model.tokenizer, *model.chat, shown, tools, JsonValue::object()), {}};
  if (images == nullptr)
    throw Error("the model reads text only: use one with a vision tower, such as demo-vision, or --mmproj FILE");
  TalkPrompt prompt{.tokens = {}, .images = images->prepare(std::move(files))};
  prompt.tokens = encode_chat_with_images(*model.tokenizer, *model.chat, shown, tools, JsonValue::object(),
                                          ChatEnd::kAnswer, images->vision(), prompt.images);
  return prompt;
}

std::vector<PromptEmbedding> encode_talk_images(const LoadedModel& model, ImageCache* images, TalkPrompt& prompt) {
  if (prompt.images.empty()) return {};
  const int n_ctx = context_limit(model.runner->info());
  if (static_cast<int>(prompt.tokens.size()) >= n_ctx)
    throw Error("the prompt has {} tokens, {} of them of images, but the context has {}: give fewer images or -c N",
                prompt.tokens.size(), image_tokens(prompt.images), n_ctx);
  return images->encode(prompt.images, prompt.tokens);
}

std::string image_line(const TalkPrompt& prompt, const ImageFigures& before, const ImageFigures& after) {
  if (prompt.images.empty()) return "";
  const size_t n = prompt.images.size();
  std::string line = fmt::format("{} image{} took {} tokens", n, n == 1 ? "" : "s", image_tokens(prompt.images));
  if (after.n_encoded > before.n_encoded)
    line += fmt::format(", encoded in {:.0f} ms", after.encode_ms - before.encode_ms);
  return line;
}

}  // namespace ingot
