// The fields that the text APIs share: sampling, lengths, stops, messages and tools, as a GenerationSpec. What this
// engine cannot honour, and would change the answer, is refused by name rather than ignored.
#pragma once
#include "server/api/api.h"
#include "server/api/fields.h"
#include "server/generation.h"
#include "text/chat_encode.h"

namespace ingot {

struct AnswerForm;  // answer_form.h

// Everything but the prompt, max_tokens, stream and n. A field that is absent is as the model's makers would have it.
// Cached prefixes are shared by requests with the same key and cache_salt.
void read_sampling(const ApiCall& call, const Fields& fields, GenerationSpec& spec);

// How OpenAI's text APIs are to answer: n and stream become the spec's.
struct StreamFields {
  bool include_usage = false, continuous_usage = false;  // stream_options; which needs stream
  bool token_ids = false;                                // return_token_ids
  bool timings = false;                                  // timings_per_token; which streams heed
};
// That, and all of read_sampling.
StreamFields read_generation(const ApiCall& call, const Fields& fields, GenerationSpec& spec);

// max_tokens is the first of `names` that is there; after read_sampling, for min_tokens fits into it.
void read_max_tokens(const Fields& fields, std::initializer_list<const char*> names, GenerationSpec& spec,
                     int lowest = 1);

// Log-probabilities of prompts are kept until the first token of the answer: refuses, naming `field`, what would be too
// many.
void check_scores(const Fields& fields, const char* field, const GenerationSpec& spec);

// Messages, tools and template variables of a chat request, as token ids; the form gets what the request says of calls.
// Throws ApiError.
std::vector<int32_t> read_chat_prompt(const Fields& fields, const ServedModel& model, AnswerForm& form);
// The same of messages that another API's have become.
std::vector<int32_t> chat_prompt(const ServedModel& model, JsonValue messages, const JsonValue& tools,
                                 const JsonValue& variables, const char* param, ChatEnd end = ChatEnd::kAnswer);

// One or several texts or lists of token ids: "text", ["text", ...], [1, 2, ...] or [[1, 2], ...]. Throws ApiError.
struct Prompt {
  std::string path;  // "prompt" or "prompt[3]"
  std::vector<int32_t> tokens;
};
std::vector<Prompt> read_prompts(const Fields& fields, const std::string& name, size_t max_count,
                                 const std::function<std::vector<int32_t>(const std::string&)>& encode);

// A string, or parts of one of these types with a text each, as one text. Throws ApiError that names the part.
std::string content_text(const JsonValue& content, const std::string& where, std::initializer_list<const char*> types);

// Throws ApiError context_length_exceeded, with both numbers, for a prompt that leaves no room for an answer.
void check_prompt(const ServedModel& model, const std::vector<int32_t>& prompt, int max_tokens, const char* param);

// Room in the queue, or ApiError 429.
ServedModel::Ticket admit(ServedModel& model, int n);

// {"prompt_tokens": ...} with details, and llama.cpp's {"prompt_n": ...}.
JsonValue usage_json(const Totals& totals);
JsonValue timings_json(const Totals& totals);
// llama.cpp's {"total", "cache", "processed", "time_ms"}.
JsonValue progress_json(const PromptState& prompt);
// vLLM's: null of the first token, and of each other one {id: {"logprob", "rank", "decoded_token"}} of it and its
// likeliest rivals; the rank is null where it is not among these.
JsonValue prompt_logprobs_json(const std::vector<TokenText>& tokens);

// "data: JSON\n\n".
void append_event(std::string& out, const JsonValue& json);
// The same piece by piece, where all but one choice of a stream's events stays as it is.
class EventFrame {
 public:
  explicit EventFrame(const JsonValue& envelope /* which ends with empty "choices" */);
  void begin(std::string& out) const { out += head_; }
  // After the choice; more: further members, with a comma before each.
  void end(std::string& out, std::string_view more = "") const;

 private:
  std::string head_;
};

// What a stream's fields ask for with each event, as further members of it.
std::string totals_members(const StreamFields& fields, const Totals& so_far);

uint64_t random_seed();
std::string random_id(const char* prefix);  // "chatcmpl-0123..."

}  // namespace ingot
