#include "cli/chat/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "text/chat_encode.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr std::string_view kDataHead = ";base64,";

std::string base64_of(const MediaFile& file) {
  const auto& bytes = *file.bytes;
  return to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Nothing but the content says the type, so the URL and the part name none.
JsonValue part_of(const MediaFile& file) {
  if (file.kind == MediaKind::kSound) return {{"type", "input_audio"}, {"input_audio", {{"data", base64_of(file)}}}};
  return {{"type", "image_url"}, {"image_url", {{"url", "data:" + std::string(kDataHead) + base64_of(file)}}}};
}

// The kind of a part of a saved message; nothing: it is text.
std::optional<MediaKind> kind_of_part(const JsonValue& part) {
  if (!part.is_object()) return std::nullopt;
  const std::string type = part.value("type", "");
  if (type == "image_url") return MediaKind::kImage;
  if (type == "input_audio") return MediaKind::kSound;
  return std::nullopt;
}

MediaFile file_of_part(const JsonValue& part, MediaKind kind, const std::string& where) {
  const auto member = [](const JsonValue& object, const char* name) {
    return object.is_object() ? object.value(name, JsonValue()) : object;
  };
  const JsonValue source = kind == MediaKind::kImage ? member(member(part, "image_url"), "url")
                                                     : member(member(part, "input_audio"), "data");
  std::string_view text = source.is_string() ? source.get_ref<const std::string&>() : std::string_view();
  std::optional<std::vector<std::byte>> bytes;
  if (kind == MediaKind::kSound) {
    bytes = from_base64(text);
  } else if (const size_t head = text.find(kDataHead); text.starts_with("data:") && head != text.npos) {
    bytes = from_base64(text.substr(head + kDataHead.size()));
  }
  if (!bytes)
    throw Error("{}: expected {}", where, kind == MediaKind::kImage ? "a data URL in Base64" : "data in Base64");
  return {.bytes = std::make_shared<const std::vector<std::byte>>(std::move(*bytes)), .kind = kind, .where = where};
}

// Takes the images and recordings out of the messages: {"type": "image"} or {"type": "audio"} stays.
std::vector<MediaFile> take_talk_media(JsonValue& messages) {
  std::vector<MediaFile> files;
  for (JsonValue& message : messages) {
    if (!message.contains("content") || !message["content"].is_array()) continue;
    for (JsonValue& part : message["content"]) {
      const auto kind = kind_of_part(part);
      if (!kind) continue;
      const auto n = std::ranges::count(files, *kind, &MediaFile::kind);
      files.push_back(file_of_part(part, *kind, fmt::format("{} {}", facts_of(*kind).name, n + 1)));
      part = {{"type", facts_of(*kind).part}};
    }
  }
  return files;
}

}  // namespace

bool is_media_part(const JsonValue& part) { return kind_of_part(part).has_value(); }

JsonValue user_message(const std::string& text, const std::vector<MediaFile>& files) {
  if (files.empty()) return {{"role", "user"}, {"content", text}};
  JsonValue parts = JsonValue::array();
  for (const MediaFile& file : files) parts.push_back(part_of(file));
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

std::vector<MediaFile> media_of_message(const JsonValue& message) {
  JsonValue one = JsonValue::array({message});
  return take_talk_media(one);
}

void need_sense(const MediaCache* cache, MediaKind kind) {
  if (cache != nullptr && cache->sense(kind) != nullptr) return;
  const char* reads = cache == nullptr                             ? "text only"
                      : cache->sense(MediaKind::kImage) != nullptr ? "text and images"
                                                                   : "text and recordings";
  if (kind == MediaKind::kImage)
    throw Error("the model reads {}: use one with a vision tower, such as demo-vision, or --mmproj FILE", reads);
  throw Error("the model reads {}: use one with ears, such as Voxtral, or --mmproj FILE", reads);
}

TalkPrompt encode_talk(const LoadedModel& model, MediaCache* cache, const JsonValue& messages, const JsonValue& tools) {
  JsonValue shown = messages;
  std::vector<MediaFile> files = take_talk_media(shown);
  if (files.empty()) return {encode_chat(*model.tokenizer, *model.chat, shown, tools, JsonValue::object()), {}};
  for (const MediaFile& file : files) need_sense(cache, file.kind);
  TalkPrompt prompt{.tokens = {}, .media = cache->prepare(std::move(files))};
  prompt.tokens = encode_chat_with_media(*model.tokenizer, *model.chat, shown, tools, JsonValue::object(),
                                         ChatEnd::kAnswer, *cache, prompt.media);
  return prompt;
}

std::vector<PromptEmbedding> encode_talk_media(const LoadedModel& model, MediaCache* cache, TalkPrompt& prompt) {
  if (prompt.media.empty()) return {};
  const int n_ctx = context_limit(model.runner->info());
  if (static_cast<int>(prompt.tokens.size()) >= n_ctx)
    throw Error("the prompt has {} tokens, {} of them for {}, but the context has {}: give fewer or -c N",
                prompt.tokens.size(), media_tokens(prompt.media), media_count(prompt.media), n_ctx);
  return cache->encode(prompt.media, prompt.tokens);
}

std::string media_tokens_text(const TalkPrompt& prompt) {
  if (prompt.media.empty()) return "";
  return fmt::format(", {} of them for {}", media_tokens(prompt.media), media_count(prompt.media));
}

std::string media_line(const TalkPrompt& prompt, const MediaFigures& before, const MediaFigures& after) {
  if (prompt.media.empty()) return "";
  std::string line = fmt::format("{} took {} tokens", media_count(prompt.media), media_tokens(prompt.media));
  if (after.n_encoded > before.n_encoded)
    line += fmt::format(", encoded in {:.0f} ms", after.encode_ms - before.encode_ms);
  return line;
}

}  // namespace ingot
