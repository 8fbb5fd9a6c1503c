// GenerationRun: one request's way through the engine: n sequences are submitted, their tokens become text off the
// engine's thread, in whole characters and cut at stop strings, and an AnswerWriter makes of it what the API wants,
// piece by piece or as a whole. Who leaves early cancels only their own sequences; who reads too slowly pauses them.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/http/http.h"
#include "server/pacer.h"
#include "server/served_model.h"
#include "text/stop_strings.h"
#include "text/stream_decoder.h"

namespace ingot {

// What a request asks for, whichever API it came through.
struct GenerationSpec {
  std::vector<std::vector<int32_t>> prompts;  // one, but for completions of several; each gets n choices
  SamplingParams sampling;                    // a prompt's choice i draws with seed + i
  int max_tokens = -1;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens;  // besides the model's own
  bool ignore_eos = false;
  int min_tokens = 0;         // nothing stops an answer before
  bool echo = false;          // the prompt comes before each answer's text, with its log-probabilities where it has any
  int prompt_logprobs = -1;   // of the prompt's tokens, as SamplingParams::n_logprobs
  bool prompt_only = false;   // and there is no answer
  bool skip_special = true;
  bool keep_markers = false;  // but those that the model's call format reads, whatever skip_special says
  bool keep_stop = false;     // a stop string stays in the text
  bool wants_tokens = false;  // TokenText of each token, with or without log-probabilities
  bool wants_totals = false;  // of a stream so far, with each piece
  bool wants_progress = false;  // of prompts, while a stream has nothing else to say
  struct Wanted {
    GrammarText text;
    std::string path;  // of the field that says it
  };
  std::optional<Wanted> wanted = {};            // what the answer's text, or its content, is to follow
  std::shared_ptr<Constraint> constraint = {};  // what each answer follows, behind its start
  ConstraintStart constraint_start = {};
  std::vector<std::string> constraint_warnings = {};
  int priority = 0;
  std::string client, cache_salt;  // as the engine means them
  int n = 1;
  bool stream = false;
  int n_choices() const { return n * static_cast<int>(prompts.size()); }
};

struct TopToken {
  int32_t id = 0;
  std::string bytes;
  float logprob = 0;
};

struct TokenText {
  int32_t id = 0;
  std::string bytes;  // perhaps a part of a character
  float logprob = 0;        // NaN: none, of the first token of all
  std::vector<TopToken> top;
  bool of_prompt = false;
};

struct Totals {
  int prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;  // of the choice that took longest
};

struct Delta {
  std::string text;               // whole characters
  std::vector<TokenText> tokens;  // when the spec wants them; they run ahead of the text by less than a character
  Totals so_far;                  // when the spec wants them: of all choices
};

struct ChoiceEnd {
  const char* reason = "stop";  // or "length", or "error": what the model computed led to no token
  std::string stop_string;      // the one that ended it, if one did
  std::string failure;          // with "error"
  Totals so_far;                // as Delta's
};

struct ChoiceResult {
  Delta whole;
  ChoiceEnd end;
  std::vector<TokenText> prompt;  // with prompt_logprobs, of a prompt's first choice: its tokens but the first
};

// How far a choice's prompt is: `done` of `total` tokens, `cached` of them before it began, `ms` ago.
struct PromptState {
  int total = 0, cached = 0, done = 0;
  double ms = 0;
};

// An API's form of an answer. Calls come one at a time, from workers' threads.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // Of a stream: appends events to out.
  virtual void begin(const Totals& so_far, std::string& out) = 0;
  // Where the spec wants it, before any delta.
  virtual void progress(int /*choice*/, const PromptState&, std::string& /*out*/) {}
  virtual void delta(int choice, const Delta& delta, std::string& out) = 0;
  virtual void choice_end(int choice, const ChoiceEnd& end, std::string& out) = 0;
  virtual void end(const Totals& totals, std::string& out) = 0;
  virtual std::string whole(const std::vector<ChoiceResult>& choices,
                            const Totals& totals) = 0;  // not streamed: the body
  // Of an error, before and after the stream has begun.
  virtual HttpResponse error(const ApiError& e) const { return error_response(e); }
  virtual std::string error_event(const ApiError& e) const { return "data: " + error_object(e) + "\n\n"; }
};

class GenerationRun : public std::enable_shared_from_this<GenerationRun> {
 public:
  // Submits and answers. Throws ApiError for what the engine refuses: nothing has been answered then.
  static void start(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, GenerationSpec spec,
                    Pacer& pacer, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder);

  GenerationRun(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, GenerationSpec spec, Pacer& pacer,
                std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder);

 private:
  class Sink;
  struct OfPrompt {
    Sampled token;
  };
  struct Event {
    int choice;
    std::variant<Sampled, OfPrompt, PromptProgress, Finish> what;
    Clock::time_point at;
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, StreamOptions options, const std::vector<std::string>& stops);
    RequestId id = 0;
    StreamDecoder decoder;
    StopStrings stops;
    size_t decoded_bytes = 0, shown_bytes = 0;
    std::vector<std::pair<size_t, TokenText>> held;  // tokens whose text has not been shown; where it begins
    std::vector<TokenText> scored;                   // tokens of the prompt, not shown yet
    bool begun = false;
    bool over = false;                               // its text is complete
    bool finished = false;                           // the engine has let go of it
    int n_tokens = 0;
    Clock::time_point last_token{};
    ChoiceResult result;  // when not streamed
    Usage usage;
  };

  void submit_all();
  void push(Event event);
  void drain();
  bool take_events(bool& cancelled);
  bool may_wait(Clock::time_point now) const;
  void wait_for_slot();
  void drain_at_end_of_slot();
  void process(Event& event);
  void hand_out();
  bool may_wait_written();
  void give_up(const std::exception& why);
  void on_prompt_progress(int index, const PromptProgress& progress, Clock::time_point at);
  void on_prompt_token(int index, const Sampled& token);
  void begin_stream();
  void on_token(int index, const Sampled& token, Clock::time_point at);
  void begin_choice(int index, Clock::time_point at);
  void hand_over(int index, Delta delta);
  void show(int index, std::string text, bool all);
  void end_choice(int index, const char* reason, const std::string& failure = "");
  void on_finish(int index, const Finish& finish);
  void complete();
  void fail(const ApiError& error);
  void cancel();
  void pause_if_full();
  void resume();
  void count(RequestEnd end);
  bool scores_prompt() const { return spec_.prompt_logprobs >= 0; }
  std::span<const int32_t> shown_special() const;
  TokenText token_text(const Sampled& token, bool skip_special) const;
  Totals totals() const;

  const std::shared_ptr<ServedModel> model_;
  std::optional<ServedModel::Ticket> ticket_;
  const GenerationSpec spec_;
  Pacer& pacer_;
  const Pacer::Stream stream_{pacer_};
  const std::unique_ptr<AnswerWriter> writer_;
  std::shared_ptr<Responder> responder_;  // null once the answer is complete
  const Clock::time_point begin_ = Clock::now();

  // Of whichever worker drains.
  std::vector<Event> taken_;
  std::vector<Choice> choices_;
  std::string out_;
  int n_finished_ = 0;
  bool over_ = false, failed_ = false;
  bool begun_ = false;  // the stream
  bool has_ended_ = false;  // a choice, since the last write
  Clock::time_point first_token_{};

  std::mutex mutex_;
  std::vector<Event> events_;
  bool draining_ = false;
  bool held_ = false;    // the pacer calls at the end of the slot
  bool due_ = false;     // and has called while there was draining
  bool urgent_ = false;  // among the events is one that cannot wait for that
  Clock::time_point written_{};
  bool cancelled_ = false;
  std::vector<RequestId> ids_;
  std::atomic<bool> aborted_{false};  // by the client
  bool paused_ = false;               // because the client does not read
};

}  // namespace ingot
