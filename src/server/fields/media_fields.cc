#include "server/fields/media_fields.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "server/requests/fields.h"

namespace ingot {
namespace {

// The settings of OpenAI's `detail`.
ImageSettings settings_of(const std::string& detail, const std::string& where, const VisionModel& vision) {
  if (detail == "low") return low_detail(vision);
  if (detail != "" && detail != "auto" && detail != "high" && detail != "original")
    refuse_value(where + ".detail", "must be low, high or auto");
  return {};
}

// The place of a part in the request, which differs from its place in the messages if these were converted.
std::string place_of(const JsonValue& part, std::string otherwise) {
  const JsonValue* place = part.is_object() ? find_member(part, "where") : nullptr;
  return place && place->is_string() ? printable(place->get<std::string>()) : std::move(otherwise);
}

// The kind of a part of a request; nothing: it is text, or of an unknown type.
std::optional<MediaKind> kind_of_type(const JsonValue& type) {
  if (type == "image_url" || type == "image" || type == "input_image") return MediaKind::kImage;
  if (type == "audio_url" || type == "input_audio") return MediaKind::kSound;
  return std::nullopt;
}

// A part with a URL, in OpenAI's form or, for recordings, in vLLM's.
MediaFile load_part(const ApiCall& call, const JsonValue& part, const std::string& where) {
  MediaKind kind = *kind_of_type(part["type"]);
  const char* const name = kind == MediaKind::kImage ? "image_url" : "audio_url";
  const JsonValue* url = find_member(part, name);
  std::string detail;
  if (url && url->is_object()) {
    detail = Fields(*url, fmt::format("{}.{}.", where, name)).string("detail", 64).value_or("");
    url = find_member(*url, "url");
  }
  if (!url || !url->is_string()) refuse_value(fmt::format("{}.{}.url", where, name), "must be a string");
  const MediaLimits& limits = call.model->media()->limits();
  const uint64_t max_bytes = kind == MediaKind::kImage ? limits.images.max_bytes : limits.sounds.max_bytes;
  const bool is_data = find_member(part, "is_data") != nullptr;
  auto bytes = load_media_source(url->get_ref<const std::string&>(), is_data, where, call.media, kind, max_bytes);
  return {.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes)),
          .kind = kind,
          .settings = kind == MediaKind::kImage ? settings_of(detail, where, call.model->vision()) : ImageSettings(),
          .where = where};
}

bool has_media_block(const JsonValue& json, int depth) {
  if (depth == 0 || !json.is_structured()) return false;
  if (json.is_object()) {
    const auto type = json.find("type");
    if (type != json.end() && kind_of_type(*type)) return true;
    const auto images = json.find("images");
    if (images != json.end() && images->is_array() && !images->empty()) return true;
  }
  return std::ranges::any_of(json, [&](const JsonValue& item) { return has_media_block(item, depth - 1); });
}

}  // namespace

JsonValue image_part(const std::string& url, const std::string& where, const std::string& detail) {
  return {{"type", "image_url"}, {"image_url", {{"url", url}, {"detail", detail}}}, {"where", where}};
}

JsonValue image_data_part(const std::string& base64, const std::string& where) {
  JsonValue part = image_part(base64, where);
  part["is_data"] = true;
  return part;
}

JsonValue recording_part(const std::string& base64, const std::string& where) {
  return {{"type", "audio_url"}, {"audio_url", {{"url", base64}}}, {"where", where}, {"is_data", true}};
}

JsonValue part_of_block(const JsonValue& block, const std::string& where) {
  if (block["type"] == "input_audio") {
    const JsonValue* audio = find_member(block, "input_audio");
    if (!audio || !audio->is_object()) refuse_value(where + ".input_audio", "must be an object");
    return recording_part(string_member(*audio, "data", where + ".input_audio"), where);
  }
  if (block["type"] == "input_image") {
    if (const JsonValue* id = find_member(block, "file_id"); id && !block.contains("image_url"))
      refuse_value(where + ".file_id", "is not supported: this server stores no files, so send image_url");
    return image_part(string_member(block, "image_url", where), where,
                      Fields(block, where + ".").string("detail", 64).value_or(""));
  }
  const JsonValue* source = find_member(block, "source");
  if (!source || !source->is_object()) refuse_value(where + ".source", "must be an object");
  const std::string inside = where + ".source";
  const std::string& type = string_member(*source, "type", inside);
  if (type == "base64") return image_data_part(string_member(*source, "data", inside), where);
  if (type == "url") return image_part(string_member(*source, "url", inside), where);
  refuse_value(inside + ".type", "must be base64 or url");
}

JsonValue content_with_media(const JsonValue& content, const std::string& where,
                             std::initializer_list<const char*> text_types) {
  if (content.is_string()) return content;
  if (!content.is_array()) refuse_value(where, "must be a string or an array of parts");
  JsonValue parts = JsonValue::array();
  bool has_media = false;
  for (size_t i = 0; i < content.size(); ++i) {
    const JsonValue& part = content[i];
    const std::string here = place_of(part, fmt::format("{}[{}]", where, i));
    if (!part.is_object()) refuse_value(here, "must be an object");
    const std::string& type = string_member(part, "type", here);
    if (type == "image" || type == "input_image" || type == "input_audio") {
      has_media = true;
      parts.push_back(part_of_block(part, here));
      continue;
    }
    if (std::ranges::find(text_types, type) == text_types.end())
      refuse_value(here + ".type", fmt::format("must be {} or an image", fmt::join(text_types, ", ")));
    const std::string& text = string_member(part, "text", here);
    if (!parts.empty() && parts.back()["type"] == "text") {
      parts.back()["text"].get_ref<std::string&>().append("\n").append(text);  // no copy: there may be many parts
    } else {
      parts.push_back({{"type", "text"}, {"text", text}});
    }
  }
  if (has_media) return parts;
  return parts.empty() ? JsonValue("") : parts[0]["text"];
}

std::vector<MediaFile> take_media(const ApiCall& call, JsonValue& messages) {
  std::vector<MediaFile> files;
  if (!messages.is_array()) return files;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("content") || !messages[i]["content"].is_array()) continue;
    JsonValue& content = messages[i]["content"];
    for (size_t j = 0; j < content.size(); ++j) {
      JsonValue& part = content[j];
      const auto kind = part.is_object() && part.contains("type") ? kind_of_type(part["type"]) : std::nullopt;
      if (!kind) continue;
      const std::string where = place_of(part, fmt::format("messages[{}].content[{}]", i, j));
      // The reader of messages refuses the first fault, as in the C API. Only the place in a converted message differs.
      if (!call.model->reads(*kind) && !part.contains("where")) return {};
      if (!call.model->reads(*kind))
        throw ApiError(400, fmt::format("{}: {} are not supported by this model", where, facts_of(*kind).names), where);
      if (static_cast<int>(files.size()) >= call.media.max_files)
        throw ApiError(
            400, fmt::format("{}: the request has more than {} images and recordings", where, call.media.max_files),
            where, "too_many_images");
      if (part["type"] != "image_url" && part["type"] != "audio_url") part = part_of_block(part, where);
      files.push_back(load_part(call, part, where));
      part = {{"type", facts_of(*kind).part}};
    }
  }
  return files;
}

bool has_media(const JsonValue& body) {
  constexpr int kDepth = 8;  // messages, message, content, block, content, block
  for (const char* name : {"messages", "input"})
    if (const JsonValue* list = find_member(body, name); list && has_media_block(*list, kDepth)) return true;
  for (const char* name : {"images", "image_data"})
    if (const JsonValue* list = find_member(body, name); list && list->is_array() && !list->empty()) return true;
  const JsonValue* prompt = find_member(body, "prompt");
  return prompt && prompt->is_object();  // llama.cpp's prompts with images
}

void encode_media(const ApiCall& call, ChatPrompt& prompt, GenerationSpec& spec) {
  if (prompt.media.empty()) return;
  if (spec.prompts[0].size() != prompt.tokens.size())
    throw ApiError(400, "truncate_prompt_tokens cannot cut a prompt with images or recordings",
                   "truncate_prompt_tokens");
  spec.image_tokens = media_tokens(prompt.media, MediaKind::kImage);
  spec.audio_tokens = media_tokens(prompt.media, MediaKind::kSound);
  try {
    spec.embeddings = call.model->media()->encode(prompt.media, prompt.tokens);
  } catch (const Error& error) {
    throw ApiError(400, printable(error.what(), 1024), "messages");
  }
}

}  // namespace ingot
