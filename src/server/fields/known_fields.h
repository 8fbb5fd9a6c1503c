// The table of known request fields for each route. A field is honoured, ignored because it does not change the answer,
// or refused by name because it would change the answer and is not supported. Unknown fields are ignored, because
// clients send many.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "server/requests/fields.h"

namespace ingot {

// Bits, because a row may apply to several routes.
enum ApiRoute : uint32_t {
  kChat = 1,         // /v1/chat/completions
  kCompletions = 2,  // /v1/completions
  kResponses = 4,    // /v1/responses
  kMessages = 8,     // /v1/messages
  kCountTokens = 16,
  kEmbeddings = 32,
  kRerank = 64,
  kTokenize = 128,
  kDetokenize = 256,
  kTemplate = 512,            // /apply-template
  kOllamaChat = 1024,         // /api/chat
  kOllamaGenerate = 2048,     // /api/generate
  kOllamaEmbed = 4096,        // /api/embed
  kOllamaEmbeddings = 8192,   // /api/embeddings
  kOllamaModel = 16384,       // /api/show, /api/pull
  kLlamaCompletion = 32768,   // /completion
  kLlamaInfill = 65536,       // /infill
  kModelName = 131072,        // /models/load, /models/unload
  kSlot = 262144,             // /slots/ID
  kAudio = 524288,            // /v1/audio/transcriptions, /v1/audio/translations; values are texts
  kInference = 1048576,       // /inference; values are texts
};

// Bits, because a field may have several types. Any field may be null, which means absent.
enum FieldType : uint8_t { kString = 1, kNumber = 2, kInteger = 4, kBool = 8, kArray = 16, kObject = 32, kAny = 64 };

enum class FieldUse { kHonoured, kIgnored, kRefused };

struct KnownField {
  std::string_view name;  // "text.format" is the member `format` of the object `text`
  uint32_t routes;        // bits of ApiRoute
  uint8_t types;          // bits of FieldType
  FieldUse use = FieldUse::kHonoured;
  const char* harmless =
      "";                // of a refused field: the one value, as JSON, that is accepted; "": false, 0, [] or {}
  const char* why = "";  // the message after a refused field's name; "": "is not supported by this server"
};

std::span<const KnownField> known_fields();

// Throws ApiError if a known field of the route has the wrong type or is refused.
void check_fields(ApiRoute route, const JsonValue& body);

}  // namespace ingot
