// One table of what a request of each route may say: the fields that are honoured, those that change nothing and are
// passed over, and those that would change the answer and cannot be honoured, which are refused by name. Fields that no
// row has are passed over: clients send many.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "server/api/fields.h"

namespace ingot {

// Bits: a row may be of several routes.
enum ApiRoute : uint16_t {
  kChat = 1,         // /v1/chat/completions
  kCompletions = 2,  // /v1/completions
  kResponses = 4,    // /v1/responses
  kMessages = 8,     // /v1/messages
  kCountTokens = 16,
  kEmbeddings = 32,
  kRerank = 64,
  kTokenize = 128,
  kDetokenize = 256,
  kTemplate = 512,  // /apply-template
};

// Bits: a field may have several types; null is one of all, and means that it is absent.
enum FieldType : uint8_t { kString = 1, kNumber = 2, kInteger = 4, kBool = 8, kArray = 16, kObject = 32, kAny = 64 };

enum class FieldUse { kHonoured, kIgnored, kRefused };

struct KnownField {
  std::string_view name;  // "text.format" is a member of the object text
  uint16_t routes;        // of ApiRoute
  uint8_t types;          // of FieldType
  FieldUse use = FieldUse::kHonoured;
  const char* harmless =
      "";                // of a refused field: the one value, in JSON, that asks for nothing; "": false, 0, [] or {}
  const char* why = "";  // what stands behind the name of a refused field; "": "is not supported by this server"
};

std::span<const KnownField> known_fields();

// Throws ApiError for a field of the route that has another type, or is refused.
void check_fields(ApiRoute route, const JsonValue& body);

}  // namespace ingot
