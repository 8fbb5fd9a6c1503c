// GenerationRun: runs one request on the engine. The run submits the request's n sequences. Workers, not the engine's
// thread, turn the tokens into text, in whole characters, and cut the text at stop strings. An AnswerWriter writes the
// text in the API's form, streamed or as a whole. If the client disconnects early, the request's sequences are
// cancelled. If the client reads too slowly, they are paused.
//
// If the engine has lost its device and the server replays requests (ServedModel::asks_for_fresh), the run submits its
// unfinished sequences again to a fresh engine. Sampling depends only on the seed and the position, so the fresh engine
// samples the same tokens. Tokens that the client already has are compared and dropped. If a token differs, the request
// ends with an error.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/answers/pacer.h"
#include "server/models/served_model.h"
#include "server/requests/http.h"
#include "text/answers/answer_model.h"
#include "text/answers/answer_reader.h"
#include "text/stream_decoder.h"

namespace ingot {

// A request for text, in a form that all APIs share.
struct GenerationSpec {
  std::vector<std::vector<int32_t>> prompts;  // one, or several for completions; n choices for each prompt
  std::vector<PromptEmbedding> embeddings = {};  // of the images and recordings in the only prompt
  int image_tokens = 0, audio_tokens = 0;        // of the prompt: those that the embeddings replace
  SamplingParams sampling;                    // choice i of a prompt samples with seed + i
  int max_tokens = -1;  // of each answer, limited to the room in the context; -1: all of that room
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens;  // in addition to the model's own
  bool ignore_eos = false;
  int min_tokens = 0;         // an answer does not stop before this many tokens
  bool echo = false;          // put the prompt, and any log-probabilities of its tokens, before each answer's text
  int prompt_logprobs = -1;   // for the prompt's tokens, like SamplingParams::n_logprobs
  bool prompt_only = false;   // score the prompt only, without an answer
  bool skip_special = true;
  bool keep_stop = false;     // keep the stop string in the text
  bool wants_tokens = false;  // provide the TokenText of each token, with or without log-probabilities
  bool wants_totals = false;  // provide the stream's totals so far with each piece
  bool wants_progress = false;  // report the progress of prompts while a stream has no other output
  AnswerForm form = {};  // how each answer is split; the run sets the members about stop strings and whole calls
  std::optional<WantedGrammar> wanted = {};     // the grammar that the answer's text, or its content, must follow
  std::shared_ptr<Constraint> constraint = {};  // the compiled grammar of each answer, from constraint_start on
  ConstraintStart constraint_start = {};
  std::vector<std::string> constraint_warnings = {};
  Speculate speculate = Speculate::kOff;
  std::vector<int32_t> prediction = {};  // tokens that the answer may repeat
  int priority = 0;
  std::string client, cache_salt;  // as in the engine's Request
  bool publishes_prefix = false;   // as in the engine's Request
  std::vector<int> slots;          // per choice; the last one also for the remaining choices; empty: the server chooses
  int n = 1;       // choices
  int n_best = 0;  // above 0: of a prompt's choices, only as many are sent, with the best mean log-probability
  std::optional<BeamParams> beams = {};  // a search for each prompt, whose best texts are the choices
  bool stream = false;
  int n_choices() const { return n * static_cast<int>(prompts.size()); }
  int n_sent() const { return n_best > 0 ? n_best : n; }  // of a prompt's choices
  int n_sequences() const { return beams ? beams->n_beams : n; }  // of a prompt
};

struct TopToken {
  int32_t id = 0;
  std::string bytes;
  float logprob = 0;
};

struct TokenText {
  int32_t id = 0;
  std::string bytes;  // may be an incomplete character
  float logprob = 0;        // NaN: none, for the first token of the prompt
  std::vector<TopToken> top;
  bool of_prompt = false;
  AnswerEvent::Kind part = AnswerEvent::Kind::kContent;  // the part of the answer in which the token begins
};

struct Totals {
  int prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  int image_tokens = 0, audio_tokens = 0;        // parts of prompt_tokens
  int accepted_drafts = 0, rejected_drafts = 0;  // drafts that steps verified
  int sampling_steps = 0;                        // steps that gave tokens of answers
  double draft_gain = 0;  // as Usage::draft_gain, of the choice with the most tokens
  int max_tokens_clamped = 0;  // max_tokens as reduced to fit the context; 0: not reduced
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;  // of the slowest choice
};

struct Delta {
  std::string text;               // of an answer without parts: whole characters only
  AnswerEvents events;            // of an answer with parts (GenerationSpec::form), without warnings
  std::vector<TokenText> tokens;  // if the spec wants tokens; may include an incomplete character that `text` lacks
  Totals so_far;                  // totals of all choices, if the spec wants them
};

struct ChoiceEnd {
  const char* reason = "stop";  // or "length", or "error": the logits gave no token
  std::string stop_string;      // the stop string that ended the choice, if any
  std::string failure;          // with reason "error"
  bool has_calls = false;
  std::vector<std::string> warnings;  // about the request and the answer
  Totals so_far;                // as in Delta
  int n_tokens = 0;             // of this answer
};

struct ChoiceResult {
  Delta whole;
  ChoiceEnd end;
  std::vector<TokenText> prompt;  // with prompt_logprobs, for a prompt's first choice: all prompt tokens but the first
};

// The progress of a choice's prompt: `done` of `total` tokens are done, including `cached` tokens from the cache. The
// prompt's first step began `ms` ago.
struct PromptState {
  int total = 0, cached = 0, done = 0;
  double ms = 0;
};

// Writes answers in the form of one API. Worker threads call the functions, one at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // For a stream: the functions append events to out.
  virtual void begin(const Totals& so_far, std::string& out) = 0;
  // Called before any delta, if the spec wants progress.
  virtual void progress(int /*choice*/, const PromptState&, std::string& /*out*/) {}
  virtual void delta(int choice, const Delta& delta, std::string& out) = 0;
  virtual void choice_end(int choice, const ChoiceEnd& end, std::string& out) = 0;
  virtual void end(const Totals& totals, std::string& out) = 0;
  virtual std::string whole(const std::vector<ChoiceResult>& choices,
                            const Totals& totals) = 0;  // the body of an answer that is not streamed
  virtual const char* stream_type() const { return "text/event-stream; charset=utf-8"; }
  // Errors, before and after the stream has begun.
  virtual HttpResponse error(const ApiError& e) const { return error_response(e); }
  virtual std::string error_event(const ApiError& e) const { return "data: " + error_object(e) + "\n\n"; }
};

class GenerationRun : public std::enable_shared_from_this<GenerationRun> {
 public:
  // Submits the request and sends the answer. If the engine refuses the request, throws ApiError and sends no answer.
  static void start(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, GenerationSpec spec,
                    Pacer& pacer, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder);

  GenerationRun(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, GenerationSpec spec, Pacer& pacer,
                std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder);

 private:
  class Sink;
  struct OfPrompt {
    Sampled token;
  };
  struct Fresh {  // the model with the fresh engine, or null and the reason
    std::shared_ptr<ServedModel> model;
    std::string failure;
  };
  struct Event {
    int choice;
    std::variant<Sampled, OfPrompt, PromptProgress, Finish, Fresh> what;
    Clock::time_point at;
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, StreamOptions options, const AnswerForm& form, int index);
    RequestId id = 0;
    StreamDecoder decoder;
    AnswerReader reader;
    size_t decoded_bytes = 0, shown_bytes = 0;
    // The start of each token's text, and tokens whose text has not been shown.
    std::vector<std::pair<size_t, TokenText>> held;
    std::vector<TokenText> scored;                   // prompt tokens not shown yet
    bool begun = false;
    bool over = false;                               // the text is complete
    bool finished = false;                           // the engine has finished the sequence
    bool lost = false;                               // the engine has lost its device; the sequence is submitted again
    std::vector<int32_t> taken;                      // the tokens so far
    size_t n_again = 0;                              // how many of them this engine has sampled
    int slot = -1;                                   // of the running sequence
    int n_tokens = 0;
    double sum_logprob = 0;  // of the tokens
    Clock::time_point last_token{};
    ChoiceResult result;  // for an answer that is not streamed
    Usage usage;
  };

  void submit_all();
  void begin_answer();
  Request request_of(int index);
  void submit(int index);
  int n_of_request() const { return spec_.beams ? spec_.n : 1; }  // choices of one request to the engine
  bool may_replay() const { return model_->asks_for_fresh() && !replayed_; }
  void on_lost(int index);
  void restart(const Fresh& fresh);
  void give_up(const std::string& why);
  bool is_repeated(int index, const Sampled& token);
  void push(Event event);
  void drain();
  bool take_events(bool& cancelled);
  bool may_wait(Clock::time_point now) const;
  void wait_for_slot();
  void drain_at_end_of_slot();
  void process(Event& event);
  void send_output();
  bool output_may_wait();
  void end_with_failure(const std::exception& why);
  void on_prompt_progress(int index, const PromptProgress& progress, Clock::time_point at);
  void on_prompt_token(int index, const Sampled& token);
  void begin_stream();
  void on_token(int index, const Sampled& token, Clock::time_point at);
  void begin_choice(int index, Clock::time_point at);
  void emit_delta(int index, Delta delta);
  void show(int index, AnswerEvents events, bool all);
  void end_choice(int index, const char* reason, const std::string& failure = "");
  void on_finish(int index, const Finish& finish);
  void end_slot(int index);
  std::vector<ChoiceResult> take_results();
  void complete();
  void fail(const ApiError& error);
  void send_failure(const ApiError& error);
  void cancel();
  void pause_if_full();
  void resume();
  void count(RequestEnd end);
  int max_tokens(const std::vector<int32_t>& prompt) const;
  bool scores_prompt() const { return spec_.prompt_logprobs >= 0; }
  std::span<const int32_t> shown_special() const;
  TokenText token_text(const Sampled& token, bool skip_special) const;
  Totals totals() const;

  std::shared_ptr<ServedModel> model_;  // changes under the mutex, in the worker that drains
  std::shared_ptr<ServedModel> lost_;   // the decoders use its tokenizer
  bool replayed_ = false;
  std::optional<ServedModel::Ticket> ticket_;
  const GenerationSpec spec_;
  Pacer& pacer_;
  const Pacer::Stream stream_{pacer_};
  const std::unique_ptr<AnswerWriter> writer_;
  std::shared_ptr<Responder> responder_;  // null once the answer is complete
  const Clock::time_point begin_ = Clock::now();

  // Used only by the worker that drains.
  std::vector<Event> taken_;
  std::vector<Choice> choices_;
  std::string out_;
  int n_finished_ = 0;
  bool over_ = false, failed_ = false;
  bool begun_ = false;  // whether the stream has begun
  bool has_ended_ = false;  // whether a choice has ended since the last write
  Clock::time_point first_token_{};

  std::mutex mutex_;
  std::vector<Event> events_;
  bool draining_ = false;
  bool held_ = false;    // the pacer will call at the end of the slot
  bool due_ = false;     // the pacer called while a worker was draining
  bool urgent_ = false;  // an event among events_ cannot wait for the end of the slot
  Clock::time_point written_{};
  bool cancelled_ = false;
  std::vector<RequestId> ids_;
  std::atomic<bool> aborted_{false};  // set when the client has left
  bool paused_ = false;               // set while the client does not read
};

}  // namespace ingot
