#include "server/api/known_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/http/http.h"

namespace ingot {
namespace {

using enum FieldUse;

constexpr uint16_t kText = kChat | kCompletions | kResponses | kMessages;
constexpr uint16_t kOpenAi = kChat | kCompletions | kResponses;
constexpr uint16_t kTemplated = kChat | kTokenize | kTemplate;  // OpenAI's messages, for the template
constexpr uint16_t kAnthropic = kMessages | kCountTokens;
constexpr uint16_t kAll = 0xffff;

// Marks a field that is refused with any value. Not valid JSON on purpose.
constexpr const char* kNever = "-";

constexpr const char* kNoMemory =
    "is not supported: this server stores nothing, so send the whole conversation as input";
constexpr const char* kTextOnly = "is not supported: this server reads and writes text only";
constexpr const char* kNotNames = "is not supported: choose the text before each input with prompt_name";

constexpr KnownField kFields[] = {
    {"model", kAll, kString},
    // The prompt.
    {"messages", kTemplated | kAnthropic, kArray},
    {"prompt", kCompletions, kString | kArray},
    {"prompt", kTokenize, kString},
    {"content", kTokenize, kString},
    {"input", kResponses | kEmbeddings, kString | kArray},
    {"instructions", kResponses, kString},
    {"system", kAnthropic, kString | kArray},
    {"suffix", kCompletions, kString},
    {"tools", kTemplated | kResponses | kAnthropic, kArray},
    {"tool_choice", kTemplated | kResponses, kString | kObject},
    {"tool_choice", kAnthropic, kObject},
    {"parallel_tool_calls", kChat | kResponses, kBool},
    {"documents", kTemplated, kArray},
    {"chat_template_kwargs", kTemplated, kObject},
    {"reasoning_effort", kTemplated, kString},
    {"reasoning", kResponses, kObject},
    {"reasoning.effort", kResponses, kString},
    {"thinking", kAnthropic, kObject},
    {"thinking.type", kAnthropic, kString},
    {"output_config", kAnthropic, kObject},
    {"output_config.effort", kAnthropic, kString},
    {"add_generation_prompt", kTemplated, kBool},
    {"continue_final_message", kTemplated, kBool},
    {"add_special_tokens", kCompletions | kTokenize, kBool},
    {"add_special", kTokenize, kBool},
    {"parse_special", kTokenize, kBool},
    {"with_pieces", kTokenize, kBool},
    {"return_token_strs", kTokenize, kBool},
    {"tokens", kDetokenize, kArray},
    // The length of the answer, and what ends it.
    {"max_tokens", kChat | kCompletions | kMessages, kInteger},
    {"max_completion_tokens", kChat, kInteger},
    {"max_output_tokens", kResponses, kInteger},
    {"min_tokens", kText, kInteger},
    {"stop", kText, kString | kArray},
    {"stop_sequences", kMessages, kString | kArray},
    {"stop_token_ids", kText, kArray},
    {"ignore_eos", kText, kBool},
    {"include_stop_str_in_output", kText, kBool},
    {"skip_special_tokens", kText, kBool},
    // Sampling.
    {"temperature", kText, kNumber},
    {"top_p", kText, kNumber},
    {"top_k", kText, kInteger},
    {"min_p", kText, kNumber},
    {"typical_p", kText, kNumber},
    {"repetition_penalty", kText, kNumber},
    {"repeat_penalty", kText, kNumber},
    {"presence_penalty", kText, kNumber},
    {"frequency_penalty", kText, kNumber},
    {"repeat_last_n", kText, kInteger},
    {"seed", kText, kInteger},
    {"logit_bias", kText, kObject},
    {"n", kChat | kCompletions, kInteger},
    {"best_of", kText, kInteger},
    // The form of the answer.
    {"stream", kText, kBool},
    {"stream_options", kChat | kCompletions, kObject},
    {"stream_options", kResponses, kObject, kIgnored},
    {"stream_options.include_usage", kChat | kCompletions, kBool},
    {"stream_options.continuous_usage_stats", kChat | kCompletions, kBool},
    {"stream_options.include_obfuscation", kOpenAi, kBool, kIgnored},
    {"return_token_ids", kChat | kCompletions, kBool},
    {"timings_per_token", kChat | kCompletions, kBool},
    {"return_progress", kChat | kCompletions, kBool},
    {"prompt_logprobs", kChat | kCompletions, kInteger},
    {"logprobs", kChat, kBool},
    {"logprobs", kCompletions, kInteger},
    {"top_logprobs", kChat, kInteger},
    {"echo", kChat | kCompletions, kBool},
    {"reasoning_format", kChat, kString},
    {"metadata", kResponses, kObject},
    // Priority and cache sharing.
    {"priority", kText, kInteger},
    // How it comes faster.
    {"speculate", kText, kString},
    {"prediction", kChat | kCompletions, kObject},
    {"prediction.type", kChat | kCompletions, kString},
    {"prediction.content", kChat | kCompletions, kString | kArray},
    {"cache_salt", kText, kString},
    {"cache_prompt", kText, kBool},
    // Embeddings and reranking.
    {"encoding_format", kEmbeddings, kString},
    {"dimensions", kEmbeddings, kInteger},
    {"prompt_name", kEmbeddings, kString},
    {"truncate", kEmbeddings | kRerank, kBool},
    {"query", kRerank, kString},
    {"documents", kRerank, kArray},
    {"top_n", kRerank, kInteger},
    {"return_documents", kRerank, kBool},

    // Fields without effect here: accounts, storage and service levels of other servers.
    {"metadata", kChat | kMessages, kObject, kIgnored},
    {"user", kText | kEmbeddings | kRerank, kString, kIgnored},
    {"parallel_tool_calls", kTokenize | kTemplate, kBool, kIgnored},
    {"store", kOpenAi, kBool, kIgnored},
    {"service_tier", kText, kString, kIgnored},
    {"safety_identifier", kOpenAi, kString, kIgnored},
    {"prompt_cache_key", kOpenAi, kString, kIgnored},
    {"prompt_cache_retention", kOpenAi, kString, kIgnored},
    {"prompt_cache_options", kOpenAi, kObject, kIgnored},
    {"max_tool_calls", kResponses, kInteger, kIgnored},
    {"reasoning.summary", kResponses, kString, kIgnored},
    {"reasoning.generate_summary", kResponses, kString, kIgnored},
    {"access_programs", kResponses, kAny, kIgnored},
    {"background_options", kResponses, kObject, kIgnored},
    {"thinking.budget_tokens", kAnthropic, kInteger, kIgnored},
    {"thinking.display", kAnthropic, kString, kIgnored},
    {"cache_control", kAnthropic, kObject, kIgnored},
    {"speed", kAnthropic, kString, kIgnored},
    {"inference_geo", kMessages, kString, kIgnored},
    {"user_profile_id", kAnthropic, kString, kIgnored},
    {"workspace_id", kAnthropic, kString, kIgnored},
    {"diagnostics", kMessages, kObject, kIgnored},
    {"betas", kAnthropic, kArray, kIgnored},
    {"billing_policy", kMessages, kAny, kIgnored},
    {"fallback_credit_token", kMessages, kString, kIgnored},
    {"length_penalty", kText, kNumber, kIgnored},  // for beam search only
    {"request_id", kText, kString, kIgnored},
    {"id_slot", kText, kInteger, kIgnored},

    // Constraints.
    {"response_format", kText, kObject},
    {"output_config.format", kMessages, kObject},
    {"output_config.format", kCountTokens, kObject, kIgnored},
    {"output_format", kMessages, kObject},
    {"text", kResponses, kObject},
    {"text.format", kResponses, kObject},
    {"grammar", kText, kString},
    {"json_schema", kText, kObject | kBool | kString},
    {"guided_json", kText, kObject | kBool | kString},
    {"guided_regex", kText, kString},
    {"guided_choice", kText, kArray},
    {"guided_grammar", kText, kString},
    {"structured_outputs", kText, kObject},

    // Fields that would change the answer and are not supported.
    {"text.verbosity", kResponses, kString, kRefused, R"("medium")",
     "must be \"medium\": this server supports no other value"},
    {"verbosity", kChat, kString, kRefused, R"("medium")", "must be \"medium\": this server supports no other value"},
    {"guided_whitespace_pattern", kText, kString, kRefused},
    {"bad_words", kText, kAny, kRefused},
    {"allowed_token_ids", kText, kAny, kRefused},
    {"logits_processors", kText, kAny, kRefused},
    {"use_beam_search", kText, kBool, kRefused},
    {"samplers", kText, kAny, kRefused},
    {"mirostat", kText, kInteger, kRefused},
    {"dynatemp_range", kText, kNumber, kRefused},
    {"dry_multiplier", kText, kNumber, kRefused},
    {"xtc_probability", kText, kNumber, kRefused},
    {"n_predict", kText, kInteger, kRefused, "-1", "is not supported: use max_tokens"},
    {"n_probs", kText, kInteger, kRefused, "0", "is not supported: use logprobs"},
    {"lora", kText, kAny, kRefused},
    {"chat_template", kTemplated | kText, kString, kRefused},
    {"add_special_tokens", kChat, kBool, kRefused, "", "is not supported: the template writes them"},
    {"include_reasoning", kChat, kBool, kRefused, "true"},
    {"return_tokens_as_token_ids", kChat | kCompletions, kBool, kRefused, "", "is not supported: use return_token_ids"},
    {"truncate_prompt_tokens", kText | kEmbeddings | kRerank, kInteger, kRefused, "",
     "is not supported: this server never cuts a text silently"},
    {"prefix", kText, kAny, kRefused},
    {"functions", kText, kArray, kRefused, "", "is not supported: use tools"},
    {"function_call", kText, kAny, kRefused, R"("none")", "is not supported: use tool_choice"},
    {"audio", kText, kAny, kRefused, "", kTextOnly},
    {"modalities", kText, kArray, kRefused, R"(["text"])", kTextOnly},
    {"image", kResponses, kAny, kRefused, "", kTextOnly},
    {"web_search_options", kChat, kObject, kRefused, kNever, "is not supported: this server has no tools of its own"},
    {"moderation", kChat | kResponses, kAny, kRefused},
    {"top_logprobs", kResponses, kInteger, kRefused},
    {"include", kResponses, kArray, kRefused, R"(["reasoning.encrypted_content"])",
     "is not supported: the answer has every output already"},
    {"reasoning.context", kResponses, kAny, kRefused, R"("auto")"},
    {"reasoning.mode", kResponses, kAny, kRefused, R"("standard")"},
    {"previous_response_id", kResponses, kString, kRefused, kNever, kNoMemory},
    {"conversation", kResponses, kString | kObject, kRefused, kNever, kNoMemory},
    {"prompt", kResponses, kObject, kRefused, kNever, kNoMemory},
    {"context_management", kResponses, kAny, kRefused, "", kNoMemory},
    {"context_management", kMessages, kAny, kRefused,  // Claude Code sends this value, which clears nothing
     R"({"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})", kNoMemory},
    {"background", kResponses, kBool, kRefused, "", "is not supported: this server stores nothing"},
    {"truncation", kResponses, kString, kRefused, R"("disabled")",
     "must be \"disabled\": this server never cuts a text silently"},
    {"container", kMessages, kAny, kRefused, "", "is not supported: this server runs no tools"},
    {"mcp_servers", kMessages, kArray, kRefused, "", "is not supported: this server runs no tools"},
    {"compaction", kMessages, kAny, kRefused, "", kNoMemory},
    {"thread", kMessages, kAny, kRefused, "", kNoMemory},
    {"fallbacks", kMessages, kAny, kRefused},
    {"input_type", kEmbeddings, kString, kRefused, kNever, kNotNames},
    {"task", kEmbeddings, kString, kRefused, kNever, kNotNames},
    {"late_chunking", kEmbeddings, kBool, kRefused},
    {"output_dtype", kEmbeddings, kString, kRefused, R"("float")"},
    {"add_special_tokens", kEmbeddings, kBool, kRefused, "true"},
    {"normalize", kEmbeddings, kBool, kRefused, "true"},
    {"rank_fields", kRerank, kArray, kRefused},
    {"max_chunks_per_doc", kRerank, kInteger, kRefused},
    {"max_tokens_per_doc", kRerank, kInteger, kRefused},
    {"top_k", kRerank, kInteger, kRefused, kNever, "is not supported: use top_n"},
};

uint8_t type_of(const JsonValue& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber | kInteger;
  if (value.is_boolean()) return kBool;
  return value.is_array() ? kArray : kObject;
}

std::string type_words(uint8_t types) {
  constexpr std::pair<uint8_t, const char*> kWords[] = {{kString, "a string"},    {kNumber, "a number"},
                                                        {kInteger, "an integer"}, {kBool, "true or false"},
                                                        {kArray, "an array"},     {kObject, "an object"}};
  std::string words;
  for (const auto& [type, word] : kWords)
    if (types & type) words += (words.empty() ? "" : " or ") + std::string(word);
  return words;
}

// Whether the value of an unsupported field asks for nothing.
bool is_harmless(const KnownField& field, const JsonValue& value) {
  const std::string_view harmless = field.harmless;
  if (harmless == kNever) return false;
  if (value.is_structured() && value.empty()) return true;
  if (harmless.empty()) return value == false || value == 0;
  return nlohmann::json(value) == nlohmann::json::parse(harmless);  // ignores the order of members
}

// Finds a field at the top or in an object. Returns null if it is absent or null.
const JsonValue* find_field(const JsonValue& body, std::string_view name) {
  const size_t dot = name.find('.');
  const auto found = body.find(name.substr(0, dot));
  if (found == body.end() || found->is_null()) return nullptr;
  if (dot == name.npos) return &*found;
  return found->is_object() ? find_field(*found, name.substr(dot + 1)) : nullptr;
}

}  // namespace

std::span<const KnownField> known_fields() { return kFields; }

void check_fields(ApiRoute route, const JsonValue& body) {
  for (const KnownField& field : kFields) {
    if (!(field.routes & route)) continue;
    const JsonValue* value = find_field(body, field.name);
    if (!value) continue;
    const std::string name(field.name);
    if (field.types != kAny && !(field.types & type_of(*value)))
      refuse_value(name, fmt::format("must be {}, not {}", type_words(field.types), value->type_name()));
    if (field.use != kRefused || is_harmless(field, *value)) continue;
    refuse_value(name, *field.why ? field.why : "is not supported by this server");
  }
}

}  // namespace ingot
