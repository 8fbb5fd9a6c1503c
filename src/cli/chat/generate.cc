#include "cli/chat/generate.h"

#include <cmath>
#include <cstdlib>

#include "base/device_lost.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/options/sampler.h"
#include "cli/terminal/terminal.h"
#include "text/stream_decoder.h"

namespace ingot {
namespace {

struct Event {
  std::optional<Sampled> token;
  std::optional<Finish> finish;
};

// Passes events from the engine's thread to the printing thread.
class QueueSink final : public TokenSink {
 public:
  void on_token(const Sampled& token) override { events.push({.token = token}); }
  void on_finish(const Finish& finish) override { events.push({.finish = finish}); }
  Queue<Event> events;
};

// Decodes the tokens of one answer, and passes its parts on.
class AnswerStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, const Question& question, const OnEvents& on_events)
      : decoder_(tokenizer,
                 {.shown_special = question.shown_special,
                  .previous = question.prompt.empty() ? std::nullopt : std::optional(question.prompt.back())}),
        reader_(question.form),
        on_events_(on_events) {}

  void token(int32_t id) { pass(reader_.read(decoder_.push(id))); }
  void end() {
    pass(reader_.read(decoder_.flush()));
    pass(reader_.finish());
  }
  bool stopped() const { return reader_.stopped(); }

 private:
  void pass(AnswerEvents events) {
    if (!events.empty()) on_events_(std::move(events));
    for (; n_warned_ < reader_.warnings().size(); ++n_warned_) log_warn("{}", printable(reader_.warnings()[n_warned_]));
  }

  StreamDecoder decoder_;
  AnswerReader reader_;
  const OnEvents& on_events_;
  size_t n_warned_ = 0;
};

double rate(int n, double ms) { return ms > 0 ? n / ms * 1e3 : 0; }

}  // namespace

Question make_question(AnswerModel& answers, std::vector<int32_t> prompt, bool is_chat, AnswerForm form,
                       const GenerateOptions& options, const std::optional<WantedGrammar>& wanted) {
  form.stops = options.stops;
  form.whole_calls = true;
  Question question{.prompt = std::move(prompt), .form = std::move(form)};
  if (is_chat) {
    answers.begin(question.prompt, question.form);
    question.constraint = answers.constrain(question.form, wanted);
    question.shown_special = answers.marker_tokens();
  } else if (wanted) {
    question.constraint = answers.constrain_text(*wanted);
  }
  return question;
}

Generation generate(Engine& engine, const Tokenizer& tokenizer, const Question& question,
                    const GenerateOptions& options, const OnEvents& on_events) {
  InterruptGuard guard;
  auto sink = std::make_shared<QueueSink>();
  AnswerStream stream(tokenizer, question, on_events);
  Generation result;
  SamplingParams sampling = options.sampling;
  if (sampling.dry_multiplier > 0 && options.dry_breakers != std::vector<std::string>{"none"})
    sampling.dry_breakers = tokens_with(tokenizer, options.dry_breakers, engine.info().n_vocab);
  const bool has_beams = options.beams.n_beams > 1;
  const RequestId id = engine.submit({.prompt = question.prompt,
                                      .embeddings = question.embeddings,
                                      .sampling = std::move(sampling),
                                      .max_tokens = options.max_tokens,
                                      .stop_tokens = tokenizer.end_tokens(),
                                      .ignore_eos = options.ignore_eos,
                                      .sink = sink,
                                      .proposer = has_beams ? nullptr
                                                            : make_proposer(options.speculate,
                                                                            engine.info().draft_head,
                                                                            options.draft.get()),
                                      .constraint = question.constraint.constraint,
                                      .constraint_start = question.constraint.start,
                                      .beams = has_beams ? std::optional(options.beams) : std::nullopt});
  bool cancelled = false;
  for (bool finished = false; !finished;) {
    for (const Event& event : sink->events.drain_for(std::chrono::milliseconds(50))) {
      if (event.token && !cancelled) {
        result.tokens.push_back(*event.token);
        stream.token(event.token->token);
      } else if (event.finish) {
        finished = true;
        result.usage = event.finish->usage;
        if (engine.lost_device()) throw DeviceLost("generation failed: {}", event.finish->error);
        if (event.finish->reason == FinishReason::kError) throw Error("generation failed: {}", event.finish->error);
        result.finish = event.finish->reason == FinishReason::kLength ? "length" : "stop";
      }
      if (!cancelled && (stream.stopped() || InterruptGuard::interrupted())) {
        engine.cancel(id);
        cancelled = true;
      }
    }
    if (!cancelled && InterruptGuard::interrupted()) {
      engine.cancel(id);
      cancelled = true;
    }
  }
  stream.end();
  if (stream.stopped()) {
    result.finish = "stop";
  } else if (cancelled) {
    result.finish = "interrupted";
  }
  return result;
}

double prefill_rate(const Usage& usage) { return rate(usage.prompt_tokens - usage.cached_tokens, usage.prefill_ms); }

// The first token is part of the prefill.
double decode_rate(const Usage& usage) { return rate(usage.output_tokens - 1, usage.decode_ms); }

namespace {

// gain: as a factor; 0: unknown.
std::string gain_words(double gain) {
  if (gain <= 0) return "";
  if (std::abs(gain - 1) < 0.01) return ", as fast as without drafts";
  return gain > 1 ? fmt::format(", {:.2f} times as fast", gain) : fmt::format(", {:.0f} % slower", 100 * (1 - gain));
}

}  // namespace

std::string speed_line(const Usage& usage) {
  const std::string cached =
      usage.cached_tokens > 0 ? fmt::format(" ({} more from the cache)", usage.cached_tokens) : "";
  const std::string drafts =
      usage.draft_tokens > 0
          ? fmt::format("; {:.1f} tokens a step, {} of {} drafts accepted{}",
                        static_cast<double>(usage.output_tokens) / std::max(1, usage.sampling_steps),
                        usage.accepted_tokens, usage.draft_tokens,
                        gain_words(usage.draft_gain))
          : "";
  return fmt::format("prefill {} tokens{}, {:.1f} tok/s; decode {} tokens, {:.1f} tok/s{}",
                     usage.prompt_tokens - usage.cached_tokens, cached, prefill_rate(usage), usage.output_tokens,
                     decode_rate(usage), drafts);
}

void add_generate_options(CLI::App& app, GenerateOptions& o, int& seed) {
  app.add_option("-n,--predict", o.max_tokens,
                 "maximum number of tokens to generate; -1: until the model stops or the context is full")
      ->check(CLI::Range(-1, 1 << 24))
      ->check([](const std::string& n) {
        return std::strtol(n.c_str(), nullptr, 10) == 0 ? "0 is no number of tokens: give 1 or more, or -1" : "";
      })
      ->capture_default_str();
  app.add_option("--stop", o.stops, "stop the answer before this text (repeatable)");
  app.add_flag("--ignore-eos", o.ignore_eos, "continue when the model generates a stop token");
  add_grammar_options(app, o.grammar);
  add_order_option(app, o.grammar.any_order);
  o.command = &app;
  add_sampling_options(app, o.sampling, seed);
  add_stage_options(app, o.sampling, o.dry_breakers);
}

void add_beam_options(CLI::App& app, BeamParams& beams) {
  app.add_option("--beams", beams.n_beams,
                 "search for the likeliest answer with this many beams; no sampling, no drafts")
      ->check(CLI::Range(1, kMaxBeams))
      ->capture_default_str();
  app.add_option("--length-penalty", beams.length_penalty,
                 "with --beams: a text's log-probability is divided by its tokens to this power; above 0 favors longer "
                 "texts")
      ->check(CLI::Range(-100.0, 100.0))
      ->capture_default_str();
}

void make_room_for_beams(const GenerateOptions& options, RunnerOptions& runner) {
  const int n_beams = options.beams.n_beams;
  if (n_beams <= 1) {
    if (options.beams.length_penalty != 1) throw UsageError("--length-penalty needs --beams");
    return;
  }
  if (options.sampling.n_logprobs > 0)
    throw UsageError("--beams gives the log-probabilities of the answer's tokens only: use --logprobs 0");
  runner.max_seqs = std::max(runner.max_seqs, n_beams);
  if (runner.n_snapshots >= 0) runner.n_snapshots = std::max(runner.n_snapshots, n_beams);
}

namespace {

void trace_spans(TraceFile& trace, const StepStats& s) {
  const std::string args = fmt::format(
      "\"step\": {}, \"tokens\": {}, \"sequences\": {}, \"decodes\": {}, \"cached\": {}, \"preempted\": {}, "
      "\"waiting\": {}, "
      "\"blocks\": {}, \"blocks_cached\": {}, \"states\": {}, \"states_cached\": {}",
      s.index, s.n_tokens, s.n_seqs, s.n_decodes, s.n_cached, s.n_preempted, s.n_waiting, s.blocks_used,
      s.blocks_cached, s.states_used, s.states_cached);
  trace.span("engine", "plan", s.begin, s.planned, args);
  trace.span("engine", "fill", s.planned, s.filled, args);
  trace.span("engine", "forward", s.filled, s.submitted, args);
  if (s.overlapped) {
    trace.span("engine", "wait", s.waiting, s.sampled, args);
    trace.span("device", "step", s.filled, s.sampled, args);
  } else {
    trace.span("engine", "sample", s.submitted, s.sampled, args);
  }
  trace.span("engine", "emit", s.sampled, s.emitted, args);
}

}  // namespace

// Runs on the engine's thread, which must survive a failed trace.
void trace_step(TraceFile& trace, const StepStats& s) {
  try {
    trace_spans(trace, s);
  } catch (const std::bad_alloc&) {
  }
}

std::unique_ptr<Engine> start_engine(LoadedModel& model, const ModelOptions& options) {
  EngineOptions engine_options{.chunk = options.chunk};
  if (options.trace) engine_options.on_step = [trace = options.trace](const StepStats& s) { trace_step(*trace, s); };
  auto engine = std::make_unique<Engine>(*model.runner, engine_options);
  engine->start();
  return engine;
}

}  // namespace ingot
