// Completeness of the table of fields: it must have every field of OpenAI's and Anthropic's clients
// (tools/api_fields/make.py), and every field of openapi.json with the same type.
#include "server/fields/known_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/json.h"
#include "server/requests/http.h"

namespace ingot {
namespace {

const std::map<std::string, ApiRoute> kRoutes = {{"/v1/chat/completions", kChat},
                                                 {"/v1/completions", kCompletions},
                                                 {"/v1/responses", kResponses},
                                                 {"/v1/messages", kMessages},
                                                 {"/v1/messages/count_tokens", kCountTokens},
                                                 {"/v1/embeddings", kEmbeddings},
                                                 {"/v1/rerank", kRerank},
                                                 {"/tokenize", kTokenize},
                                                 {"/detokenize", kDetokenize},
                                                 {"/apply-template", kTemplate},
                                                 {"/completion", kLlamaCompletion},
                                                 {"/infill", kLlamaInfill},
                                                 {"/v1/audio/transcriptions", kAudio},
                                                 {"/v1/audio/translations", kAudio},
                                                 {"/inference", kInference},
                                                 {"/models/load", kModelName},
                                                 {"/slots/{id}", kSlot},
                                                 {"/models/unload", kModelName},
                                                 {"/api/chat", kOllamaChat},
                                                 {"/api/generate", kOllamaGenerate},
                                                 {"/api/embed", kOllamaEmbed},
                                                 {"/api/embeddings", kOllamaEmbeddings},
                                                 {"/api/show", kOllamaModel},
                                                 {"/api/pull", kOllamaModel}};

JsonValue json_of(const std::string& path) {
  std::ifstream file(std::string(INGOT_TEST_DATA) + "/" + path);
  return JsonValue::parse(file);
}

const KnownField* find(ApiRoute route, std::string_view name) {
  for (const KnownField& field : known_fields())
    if (field.routes & route && field.name == name) return &field;
  return nullptr;
}

// "" if the body is accepted, otherwise the refused field.
std::string refused(ApiRoute route, const JsonValue& body) {
  try {
    check_fields(route, body);
    return "";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_TRUE(std::string_view(error.what()).starts_with(error.param())) << error.what();
    return error.param();
  }
}

JsonValue object_of(std::string_view name, const JsonValue& value) {
  JsonValue object = JsonValue::object();
  object[std::string(name)] = value;
  return object;
}

JsonValue body_with(std::string_view name, const JsonValue& value) {
  const size_t dot = name.find('.');
  if (dot == name.npos) return object_of(name, value);
  return object_of(name.substr(0, dot), object_of(name.substr(dot + 1), value));
}

TEST(KnownFields, HaveARowForEachFieldOfTheClients) {
  const JsonValue golden = json_of("api/fields.json");
  size_t n = 0;
  for (const auto& [path, names] : golden["fields"].items()) {
    for (const JsonValue& name : names)
      EXPECT_TRUE(find(kRoutes.at(path), name.get<std::string>())) << path << ": " << name;
    n += names.size();
  }
  EXPECT_GE(n, 150u);
}

TEST(KnownFields, HaveOneRowForEachRouteAndName) {
  for (const auto& [path, route] : kRoutes) {
    std::set<std::string_view> names;
    for (const KnownField& field : known_fields())
      if (field.routes & route) {
        EXPECT_TRUE(names.insert(field.name).second) << path << ": " << field.name;
        const size_t dot = field.name.find('.');
        const std::string_view parent = field.name.substr(0, dot);
        EXPECT_TRUE(names.contains(parent)) << path << ": " << field.name;
      }
  }
}

// ---- openapi.json ----

const JsonValue& resolved(const JsonValue& api, const JsonValue& schema) {
  const auto ref = schema.find("$ref");
  if (ref == schema.end()) return schema;
  return resolved(api, api.at(JsonValue::json_pointer(ref->get<std::string>().substr(1))));
}

uint8_t types_of(const JsonValue& api, const JsonValue& given) {
  const std::map<std::string, uint8_t> bits = {{"string", kString}, {"number", kNumber}, {"integer", kInteger},
                                               {"boolean", kBool},  {"array", kArray},   {"object", kObject}};
  const JsonValue& schema = resolved(api, given);
  uint8_t types = 0;
  for (const char* alternatives : {"oneOf", "anyOf"})
    if (schema.contains(alternatives))
      for (const JsonValue& one : schema[alternatives]) types |= types_of(api, one);
  if (!schema.contains("type")) return types;
  for (const JsonValue& type : schema["type"].is_array() ? schema["type"] : JsonValue::array({schema["type"]}))
    if (type != "null") types |= bits.at(type.get<std::string>());
  return types;
}

TEST(KnownFields, AgreeWithTheDescription) {
  const JsonValue api = json_of("../../src/server/web/openapi.json");
  size_t n = 0;
  for (const auto& [path, route] : kRoutes) {
    const JsonValue& content = api["paths"][path]["post"]["requestBody"]["content"];
    const JsonValue& body = content.front()["schema"];  // of JSON or of a form
    for (const auto& [name, schema] : resolved(api, body)["properties"].items()) {
      const KnownField* field = find(route, name);
      ASSERT_TRUE(field) << path << ": " << name;
      const uint8_t types = types_of(api, schema);
      EXPECT_TRUE(types != 0 && (types & ~field->types) == 0) << path << ": " << name;
      ++n;
    }
  }
  EXPECT_GT(n, 120u);
}

// ---- each row ----

JsonValue example(FieldType type) {
  switch (type) {
    case kString: return "x";
    case kNumber: return 0.5;
    case kInteger: return 7;
    case kBool: return true;
    case kArray: return JsonValue::array({1});
    default: return object_of("a", 1);
  }
}

constexpr FieldType kTypes[] = {kString, kNumber, kInteger, kBool, kArray, kObject};

TEST(KnownFields, AreOfTheirTypesAndRefusedByName) {
  for (const auto& [path, route] : kRoutes) {
    for (const KnownField& field : known_fields()) {
      if (!(field.routes & route)) continue;
      const std::string name(field.name);
      SCOPED_TRACE(path + ": " + name);
      EXPECT_EQ(refused(route, body_with(name, nullptr)), "");
      for (const FieldType type : kTypes) {
        const uint8_t of = type == kNumber || type == kInteger ? kNumber | kInteger : type;
        const bool fits = field.types == kAny || field.types & of;
        const bool is_true = type == kBool && std::string_view(field.harmless) == "true";
        const bool taken = fits && (field.use != FieldUse::kRefused || is_true);
        EXPECT_EQ(refused(route, body_with(name, example(type))), taken ? "" : name) << example(type);
      }
      const JsonValue harmless = JsonValue::parse(field.harmless, nullptr, false);
      const bool has_one = field.use == FieldUse::kRefused && !harmless.is_discarded();
      EXPECT_EQ(refused(route, body_with(name, has_one ? harmless : JsonValue())), "");
    }
  }
}

TEST(KnownFields, OthersArePassedOver) {
  for (const auto& [path, route] : kRoutes)
    for (const FieldType type : kTypes)
      EXPECT_EQ(refused(route, object_of("of_another_server", example(type))), "") << path;
  EXPECT_EQ(refused(kChat, {{"use_beam_search", true}, {"xtc_probability", 0.0}, {"bad_words", JsonValue::array()}}),
            "");
  EXPECT_EQ(refused(kChat, {{"bad_words", JsonValue::array({"a"})}}), "bad_words");
  EXPECT_EQ(refused(kResponses, {{"include", JsonValue::array()}}), "");
  const auto edits = JsonValue::parse(R"({"edits": [{"keep": "all", "type": "clear_thinking_20251015"}]})");
  EXPECT_EQ(refused(kMessages, {{"context_management", edits}}), "") << "the order of members says nothing";
  EXPECT_EQ(refused(kChat, {{"web_search_options", JsonValue::object()}}), "web_search_options");
}

}  // namespace
}  // namespace ingot
