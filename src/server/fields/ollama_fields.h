// Shared by the routes of Ollama's API: the names of fields, times, and the facts of a model.
#pragma once

#include "base/json.h"
#include "server/answers/api_call.h"
#include "server/requests/fields.h"

namespace ingot {

// The version of Ollama whose API these routes follow; some clients refuse older ones.
inline constexpr const char* kOllamaVersion = "0.12.11";

// Fields with Ollama's names: the sampling and the length of the answer are in "options".
Fields ollama_fields(const JsonValue& body);

// Ollama's messages in OpenAI's form, with their images.
JsonValue openai_messages(const JsonValue& messages);
// Puts images before the content of a message in OpenAI's form.
void add_ollama_images(const JsonValue& images, const std::string& where, JsonValue& message);
// Adds Ollama's `think` to a chat request in OpenAI's form. Throws ApiError if the model cannot think.
void read_think(const Fields& fields, const ServedModel& model, JsonValue& chat);
// Ollama's `format`: "json" or a schema.
void read_ollama_format(const Fields& fields, GenerationSpec& spec);
// Ollama's `keep_alive`: how long the model stays loaded when it is idle. Returns true if the model must be unloaded at
// once.
bool read_keep_alive(const ApiCall& call, const Fields& fields);

std::string ollama_name(const std::string& id);  // "demo:latest"
std::string ollama_time(std::chrono::system_clock::time_point time);  // "2026-11-23T05:00:00.123456789Z"
// {"format", "family", "families", "parameter_size", "quantization_level"}
JsonValue ollama_details(const ServedModel& model);
bool can_think(const ServedModel& model);

}  // namespace ingot
