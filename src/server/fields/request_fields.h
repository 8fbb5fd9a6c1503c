// Reads the fields that the text APIs share (sampling, lengths, stops, messages, tools) into a GenerationSpec. A field
// that would change the answer and is not supported is refused by name, never ignored.
#pragma once
#include "server/answers/api_call.h"
#include "server/answers/generation.h"
#include "server/fields/media_fields.h"
#include "server/requests/fields.h"
#include "text/chat_encode.h"

namespace ingot {

inline constexpr size_t kMaxPrompts = 128;  // of one request

// Reads everything except the prompt, max_tokens, stream and n. Absent fields get the defaults of the model's makers.
// Requests with the same API key and cache_salt share cached prefixes.
void read_sampling(const ApiCall& call, const Fields& fields, GenerationSpec& spec);

// How an OpenAI text API must answer. `n` and `stream` are in the spec.
struct StreamFields {
  bool include_usage = false, continuous_usage = false;  // stream_options, for streams only
  bool token_ids = false;                                // return_token_ids
  bool timings = false;                                  // timings_per_token, for streams only
};
// Reads these fields, and calls read_sampling().
StreamFields read_generation(const ApiCall& call, const Fields& fields, GenerationSpec& spec);

// Sets max_tokens from the first of `names` that is present; -1 means the rest of the context. Call after
// read_sampling(), because min_tokens must fit.
void read_max_tokens(const Fields& fields, std::initializer_list<const char*> names, GenerationSpec& spec,
                     int lowest = 1);

// Reads OpenAI's logprobs and top_logprobs. Returns whether log-probabilities are wanted.
bool read_logprobs(const Fields& fields, SamplingParams& sampling);

// vLLM's truncate_prompt_tokens: keeps at most this number of last tokens of each prompt. -1: leaves room for one token
// of an answer.
void truncate_prompts(const Fields& fields, const ServedModel& model, GenerationSpec& spec);

// Log-probabilities of prompts stay in memory until the answer's first token. Throws ApiError naming `field` if there
// would be too many.
void check_scores(const Fields& fields, const char* field, const GenerationSpec& spec);

// Encodes the messages, tools and template variables of a chat request, and loads its images. Stores the request's
// settings for calls in the form. Throws ApiError.
ChatPrompt read_chat_prompt(const ApiCall& call, const Fields& fields, AnswerForm& form);
// The same for messages that come from another API and are already in OpenAI's form. The form has the tools, and gets
// warnings.
ChatPrompt chat_prompt(const ApiCall& call, JsonValue messages, AnswerForm& form, const JsonValue& variables,
                       const char* param, ChatEnd end = ChatEnd::kAnswer);

// One or several texts or lists of token ids: "text", ["text", ...], [1, 2, ...] or [[1, 2], ...]. Throws ApiError.
struct Prompt {
  std::string path;  // "prompt" or "prompt[3]"
  std::vector<int32_t> tokens;
};
std::vector<Prompt> read_prompts(const Fields& fields, const std::string& name, size_t max_count,
                                 const std::function<std::vector<int32_t>(const std::string&)>& encode);

// Returns a string, or the joined texts of an array of parts whose types are in `types`. Throws ApiError naming the
// part.
std::string content_text(const JsonValue& content, const std::string& where, std::initializer_list<const char*> types);

// Throws ApiError context_length_exceeded, with both numbers, if the prompt leaves no room for an answer.
void check_prompt(const ServedModel& model, const std::vector<int32_t>& prompt, const char* param,
                  std::span<const PromptMedia> images = {});

// Reserves room for n sequences in the queue. Throws ApiError 429 if the queue is full.
ServedModel::Ticket admit(ServedModel& model, int n);

// Adds max_tokens_clamped_to to a usage object if the context is too small for the requested number of tokens.
void add_clamped(JsonValue& usage, const Totals& totals);
// usage_json(): {"prompt_tokens": ...} with details. timings_json(): llama.cpp's {"prompt_n": ...}.
JsonValue usage_json(const Totals& totals);
JsonValue timings_json(const Totals& totals);
// llama.cpp's {"total", "cache", "processed", "time_ms"}.
JsonValue progress_json(const PromptState& prompt);
// OpenAI's form: [{"token", "logprob", "bytes", "top_logprobs"}].
JsonValue token_logprobs_json(const std::vector<TokenText>& tokens);
// vLLM's form: null for the first token, then for each token {id: {"logprob", "rank", "decoded_token"}} with the token
// and its likeliest alternatives. The token's rank is null if the token is not among these alternatives.
JsonValue prompt_logprobs_json(const std::vector<TokenText>& tokens);

// "data: JSON\n\n".
void append_event(std::string& out, const JsonValue& json);
// A frame around one choice, for streams in which only the choice changes from event to event.
class EventFrame {
 public:
  explicit EventFrame(const JsonValue& envelope /* its last member: "choices": [] */);
  void begin(std::string& out) const { out += head_; }
  // Call after the choice is written. `more`: further members of the event, with a comma before each.
  void end(std::string& out, std::string_view more = "") const;

 private:
  std::string head_;
};

// Members that the stream's fields add to each event: totals or timings.
std::string totals_members(const StreamFields& fields, const Totals& so_far);

uint64_t random_seed();
std::string random_id(const char* prefix);  // "chatcmpl-0123..."

}  // namespace ingot
