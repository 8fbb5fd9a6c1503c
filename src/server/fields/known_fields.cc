#include "server/fields/known_fields.h"

#include <fmt/format.h>

#include "base/json.h"
#include "server/requests/http.h"

namespace ingot {
namespace {

using enum FieldUse;

constexpr uint32_t kText = kChat | kCompletions | kResponses | kMessages;
constexpr uint32_t kLlama = kLlamaCompletion | kLlamaInfill;
constexpr uint32_t kSampled = kText | kLlama;
constexpr uint32_t kOllamaText = kOllamaChat | kOllamaGenerate;
constexpr uint32_t kOllamaRun = kOllamaText | kOllamaEmbed | kOllamaEmbeddings;
constexpr uint32_t kOpenAi = kChat | kCompletions | kResponses;
constexpr uint32_t kTemplated = kChat | kTokenize | kTemplate;  // OpenAI's messages, for the template
constexpr uint32_t kAnthropic = kMessages | kCountTokens;
constexpr uint32_t kAll = 0xffffffff;

// Marks a field that is refused with any value. Not valid JSON on purpose.
constexpr const char* kNever = "-";

constexpr const char* kNoMemory = "is not supported: this server stores nothing, so send the whole conversation";
constexpr const char* kTextOnly = "is not supported: this server writes text only";
constexpr const char* kNotNames = "is not supported: use prompt_name";

constexpr KnownField kFields[] = {
    {"model", kAll, kString},
    // The prompt.
    {"messages", kTemplated | kAnthropic | kOllamaChat, kArray},
    {"prompt", kCompletions, kString | kArray},
    {"prompt", kLlamaCompletion, kString | kArray | kObject},
    {"image_data", kLlamaCompletion, kArray},
    {"images", kOllamaGenerate, kArray},
    {"prompt", kTokenize | kOllamaGenerate | kOllamaEmbeddings | kLlamaInfill, kString},
    {"input_prefix", kLlamaInfill, kString},
    {"input_suffix", kLlamaInfill, kString},
    {"input_extra", kLlamaInfill, kArray},
    {"content", kTokenize, kString},
    {"input", kResponses | kEmbeddings | kOllamaEmbed, kString | kArray},
    {"instructions", kResponses, kString},
    {"system", kAnthropic, kString | kArray},
    {"system", kOllamaGenerate, kString},
    {"suffix", kCompletions | kOllamaGenerate, kString},
    {"raw", kOllamaGenerate, kBool},
    {"think", kOllamaText, kBool | kString},
    {"tools", kTemplated | kResponses | kAnthropic | kOllamaChat, kArray},
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
    {"n_predict", kLlama, kInteger},
    {"options", kOllamaRun, kObject},
    {"options.num_predict", kOllamaText, kInteger},
    {"options.stop", kOllamaText, kString | kArray},
    {"truncate_prompt_tokens", kOpenAi | kLlama | kEmbeddings | kRerank, kInteger},
    {"min_tokens", kSampled, kInteger},
    {"stop", kSampled, kString | kArray},
    {"stop_sequences", kMessages, kString | kArray},
    {"stop_token_ids", kSampled, kArray},
    {"ignore_eos", kSampled, kBool},
    {"include_stop_str_in_output", kSampled, kBool},
    {"skip_special_tokens", kSampled, kBool},
    // Sampling.
    {"temperature", kSampled, kNumber},
    {"top_p", kSampled, kNumber},
    {"top_k", kSampled, kInteger},
    {"min_p", kSampled, kNumber},
    {"typical_p", kSampled, kNumber},
    {"repetition_penalty", kSampled, kNumber},
    {"repeat_penalty", kSampled, kNumber},
    {"presence_penalty", kSampled, kNumber},
    {"frequency_penalty", kSampled, kNumber},
    {"repeat_last_n", kSampled, kInteger},
    {"seed", kSampled, kInteger},
    {"logit_bias", kText, kObject},
    {"logit_bias", kLlama, kObject | kArray},
    {"samplers", kSampled, kArray},
    {"dry_multiplier", kSampled, kNumber},
    {"dry_base", kSampled, kNumber},
    {"dry_allowed_length", kSampled, kInteger},
    {"dry_penalty_last_n", kSampled, kInteger},
    {"dry_sequence_breakers", kSampled, kString | kArray},
    {"top_n_sigma", kSampled, kNumber},
    {"xtc_probability", kSampled, kNumber},
    {"xtc_threshold", kSampled, kNumber},
    {"dynatemp_range", kSampled, kNumber},
    {"dynatemp_exponent", kSampled, kNumber},
    {"mirostat", kSampled, kInteger},
    {"mirostat_tau", kSampled, kNumber},
    {"mirostat_eta", kSampled, kNumber},
    {"options.temperature", kOllamaText, kNumber},
    {"options.top_p", kOllamaText, kNumber},
    {"options.top_k", kOllamaText, kInteger},
    {"options.min_p", kOllamaText, kNumber},
    {"options.typical_p", kOllamaText, kNumber},
    {"options.repeat_penalty", kOllamaText, kNumber},
    {"options.presence_penalty", kOllamaText, kNumber},
    {"options.frequency_penalty", kOllamaText, kNumber},
    {"options.repeat_last_n", kOllamaText, kInteger},
    {"options.seed", kOllamaText, kInteger},
    {"options.mirostat", kOllamaText, kInteger},
    {"options.mirostat_tau", kOllamaText, kNumber},
    {"options.mirostat_eta", kOllamaText, kNumber},
    {"n", kChat | kCompletions, kInteger},
    {"best_of", kText, kInteger},
    {"use_beam_search", kText, kBool},
    {"length_penalty", kText, kNumber},
    {"early_stopping", kText, kBool | kString},
    // The form of the answer.
    {"stream", kSampled | kOllamaText | kOllamaModel, kBool},
    {"stream_options", kChat | kCompletions, kObject},
    {"stream_options", kResponses, kObject, kIgnored},
    {"stream_options.include_usage", kChat | kCompletions, kBool},
    {"stream_options.continuous_usage_stats", kChat | kCompletions, kBool},
    {"stream_options.include_obfuscation", kOpenAi, kBool, kIgnored},
    {"format", kOllamaText, kString | kObject},
    {"return_token_ids", kChat | kCompletions, kBool},
    {"timings_per_token", kChat | kCompletions | kLlama, kBool},
    {"return_progress", kChat | kCompletions | kLlama, kBool},
    {"return_tokens", kLlama, kBool},
    {"n_probs", kLlama, kInteger},
    {"prompt_logprobs", kChat | kCompletions, kInteger},
    {"logprobs", kChat | kOllamaText, kBool},
    {"logprobs", kCompletions, kInteger},
    {"top_logprobs", kChat | kOllamaText, kInteger},
    {"echo", kChat | kCompletions, kBool},
    {"reasoning_format", kChat, kString},
    {"metadata", kResponses, kObject},
    // Priority and cache sharing.
    {"priority", kSampled, kInteger},
    // Speculation.
    {"speculate", kSampled, kString},
    {"prediction", kChat | kCompletions, kObject},
    {"prediction.type", kChat | kCompletions, kString},
    {"prediction.content", kChat | kCompletions, kString | kArray},
    {"cache_salt", kSampled, kString},
    {"cache_prompt", kSampled, kBool},
    {"keep_alive", kOllamaRun, kNumber | kString},
    {"name", kOllamaModel, kString},
    // Embeddings and reranking.
    {"encoding_format", kEmbeddings, kString},
    {"dimensions", kEmbeddings | kOllamaEmbed, kInteger},
    {"prompt_name", kEmbeddings, kString},
    {"truncate", kEmbeddings | kRerank | kOllamaEmbed, kBool},
    {"query", kRerank, kString},
    {"documents", kRerank, kArray},
    {"top_n", kRerank, kInteger},
    {"return_documents", kRerank, kBool},

    // Forms with a recording. The file is its name here.
    {"file", kAudio | kInference, kString},
    {"language", kAudio | kInference, kString},
    {"prompt", kAudio | kInference, kString},
    {"hotwords", kAudio | kInference, kString},
    {"response_format", kAudio | kInference, kString},
    {"temperature", kAudio | kInference, kString},
    {"stream", kAudio, kString},
    {"timestamp_granularities", kAudio, kString},
    {"chunking_strategy", kAudio, kString},
    {"translate", kInference, kString},

    // Fields without effect here: accounts, storage and service levels of other servers.
    {"metadata", kChat | kMessages, kObject, kIgnored},
    {"user", kText | kEmbeddings | kRerank, kString, kIgnored},
    {"temperature_inc", kInference, kString, kIgnored},
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
    {"request_id", kText, kString, kIgnored},
    {"id_slot", kSampled, kInteger},
    {"filename", kSlot, kString},
    {"n_keep", kLlama, kInteger, kIgnored},  // this server shifts no context
    // Ollama's options for loading a model, which the operator decides, and for prompts that are too long.
    {"options.num_ctx", kOllamaRun, kInteger, kIgnored},
    {"options.num_keep", kOllamaRun, kInteger, kIgnored},
    {"options.num_batch", kOllamaRun, kInteger, kIgnored},
    {"options.num_gpu", kOllamaRun, kInteger, kIgnored},
    {"options.main_gpu", kOllamaRun, kInteger, kIgnored},
    {"options.num_thread", kOllamaRun, kInteger, kIgnored},
    {"options.numa", kOllamaRun, kBool, kIgnored},
    {"options.low_vram", kOllamaRun, kBool, kIgnored},
    {"options.f16_kv", kOllamaRun, kBool, kIgnored},
    {"options.logits_all", kOllamaRun, kBool, kIgnored},
    {"options.vocab_only", kOllamaRun, kBool, kIgnored},
    {"options.use_mmap", kOllamaRun, kBool, kIgnored},
    {"options.use_mlock", kOllamaRun, kBool, kIgnored},
    {"options.embedding_only", kOllamaRun, kBool, kIgnored},
    {"truncate", kOllamaText, kBool, kIgnored},
    {"shift", kOllamaText, kBool, kIgnored},
    {"verbose", kOllamaModel, kBool, kIgnored},
    {"insecure", kOllamaModel, kBool, kIgnored},

    // Constraints.
    {"response_format", kSampled, kObject},
    {"output_config.format", kMessages, kObject},
    {"output_config.format", kCountTokens, kObject, kIgnored},
    {"output_format", kMessages, kObject},
    {"text", kResponses, kObject},
    {"text.format", kResponses, kObject},
    {"grammar", kSampled, kString},
    {"json_schema", kSampled, kObject | kBool | kString},
    {"guided_json", kSampled, kObject | kBool | kString},
    {"guided_regex", kSampled, kString},
    {"guided_choice", kSampled, kArray},
    {"guided_grammar", kSampled, kString},
    {"structured_outputs", kSampled, kObject},

    // Fields that would change the answer and are not supported.
    {"text.verbosity", kResponses, kString, kRefused, R"("medium")",
     "must be \"medium\": this server supports no other value"},
    {"verbosity", kChat, kString, kRefused, R"("medium")", "must be \"medium\": this server supports no other value"},
    {"guided_whitespace_pattern", kText, kString, kRefused},
    {"bad_words", kText, kAny, kRefused},
    {"allowed_token_ids", kText, kAny, kRefused},
    {"logits_processors", kText, kAny, kRefused},
    {"n_predict", kText, kInteger, kRefused, "-1", "is not supported: use max_tokens"},
    {"n_probs", kText, kInteger, kRefused, "0", "is not supported: use logprobs"},
    {"lora", kSampled, kAny, kRefused},
    {"chat_template", kTemplated | kText, kString, kRefused},
    {"add_special_tokens", kChat, kBool, kRefused, "", "is not supported: the chat template adds the special tokens"},
    {"include_reasoning", kChat, kBool, kRefused, "true"},
    {"return_tokens_as_token_ids", kChat | kCompletions, kBool, kRefused, "", "is not supported: use return_token_ids"},
    {"truncate_prompt_tokens", kMessages, kInteger, kRefused, "",
     "is not supported on this route: send fewer messages, or use /v1/chat/completions"},
    {"image_data", kLlamaInfill, kArray, kRefused, "", "is not supported on this route: use /completion"},
    {"width", kOllamaGenerate, kInteger, kRefused, "", kTextOnly},
    {"height", kOllamaGenerate, kInteger, kRefused, "", kTextOnly},
    {"steps", kOllamaGenerate, kInteger, kRefused, "", kTextOnly},
    {"context", kOllamaGenerate, kArray, kRefused, "", "is not supported: send the conversation to /api/chat"},
    {"template", kOllamaGenerate, kString, kRefused, R"("")",
     "is not supported: start the server with --chat-template-file"},
    {"options.tfs_z", kOllamaText, kNumber, kRefused, "1"},
    {"options.penalize_newline", kOllamaText, kBool, kRefused, "true"},
    {"n_indent", kLlama, kInteger, kRefused},
    {"min_keep", kLlama, kInteger, kRefused},
    {"t_max_predict_ms", kLlama, kInteger, kRefused},
    {"post_sampling_probs", kLlama, kBool, kRefused},
    {"response_fields", kLlama, kArray, kRefused},
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
     R"(must be ["reasoning.encrypted_content"]: this server supports no other value)"},
    {"reasoning.context", kResponses, kAny, kRefused, R"("auto")"},
    {"reasoning.mode", kResponses, kAny, kRefused, R"("standard")"},
    {"previous_response_id", kResponses, kString, kRefused, kNever, kNoMemory},
    {"conversation", kResponses, kString | kObject, kRefused, kNever, kNoMemory},
    {"prompt", kResponses, kObject, kRefused, kNever, kNoMemory},
    {"context_management", kResponses, kAny, kRefused, "", kNoMemory},
    {"context_management", kMessages, kAny, kRefused,  // Claude Code sends the accepted value, which clears nothing
     R"({"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})", kNoMemory},
    {"background", kResponses, kBool, kRefused, "", "is not supported: this server stores nothing"},
    {"truncation", kResponses, kString, kRefused, R"("disabled")",
     "must be \"disabled\": this server never cuts a prompt silently"},
    {"container", kMessages, kAny, kRefused, "", "is not supported: this server runs no tools"},
    {"mcp_servers", kMessages, kArray, kRefused, "", "is not supported: this server runs no tools"},
    {"compaction", kMessages, kAny, kRefused, "", kNoMemory},
    {"thread", kMessages, kAny, kRefused, "", kNoMemory},
    {"fallbacks", kMessages, kAny, kRefused},
    {"include", kAudio, kString, kRefused, R"("")"},
    {"known_speaker_names", kAudio, kString, kRefused, R"("")",
     "is not supported: this server tells no speakers apart"},
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

// Whether the value of an unsupported field has no effect.
bool is_harmless(const KnownField& field, const JsonValue& value) {
  const std::string_view harmless = field.harmless;
  if (harmless == kNever) return false;
  if (value.is_structured() && value.empty()) return true;
  if (harmless.empty()) return value == false || value == 0;
  return nlohmann::json(value) == nlohmann::json::parse(harmless);  // ignores the order of members
}

}  // namespace

std::span<const KnownField> known_fields() { return kFields; }

void check_fields(ApiRoute route, const JsonValue& body) {
  for (const KnownField& field : kFields) {
    if (!(field.routes & route)) continue;
    const JsonValue* value = find_member(body, field.name);
    if (!value) continue;
    const std::string name(field.name);
    if (field.types != kAny && !(field.types & type_of(*value)))
      refuse_value(name, fmt::format("must be {}, not {}", type_words(field.types), value->type_name()));
    if (field.use != kRefused || is_harmless(field, *value)) continue;
    refuse_value(name, *field.why ? field.why : "is not supported by this server");
  }
}

}  // namespace ingot
