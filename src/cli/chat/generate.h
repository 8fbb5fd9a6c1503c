// Streams one answer: submits a request to the engine, splits its text into reasoning, content and calls, and stops at
// stop strings and Ctrl-C. Used by `run` and `chat`.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/options/grammar.h"
#include "cli/options/options.h"
#include "engine/engine.h"
#include "text/answers/answer_model.h"
#include "text/answers/answer_reader.h"
#include "text/token_bits.h"

namespace ingot {

struct GenerateOptions {
  SamplingParams sampling;
  std::vector<std::string> dry_breakers = dry_default_breakers();  // texts; "none": no breakers
  int max_tokens = -1;             // -1: up to the end of the context
  std::vector<std::string> stops;  // strings that end the answer; not included in the answer
  bool ignore_eos = false;
  BeamParams beams = {};           // with several, the answer comes at the end
  GrammarOptions grammar = {};                    // as the flags set it
  Speculate speculate = Speculate::kAuto;
  std::shared_ptr<DraftModel> draft = {};         // for speculation; null: none
  const CLI::App* command = nullptr;              // whose flags override the model's sampling defaults
};

// A question as the model gets it, and how its answer is read.
struct Question {
  std::vector<int32_t> prompt;
  std::vector<PromptEmbedding> embeddings = {};  // of the images in the prompt
  AnswerForm form = {};                         // without a format, the answer is plain text
  PlacedConstraint constraint = {};
  std::span<const int32_t> shown_special = {};  // special tokens that appear in the text; sorted
};

// The prompt's question. `form` has the tools; without `is_chat`, the answer is plain text. The answer follows
// `wanted`.
Question make_question(AnswerModel& answers, std::vector<int32_t> prompt, bool is_chat, AnswerForm form,
                       const GenerateOptions& options, const std::optional<WantedGrammar>& wanted);

struct Generation {
  std::vector<Sampled> tokens;     // the sampled tokens, without the stop token
  std::string finish;              // "stop", "length" or "interrupted"
  Usage usage;
};

// Throws Error if the request cannot run or fails.
using OnEvents = std::function<void(AnswerEvents)>;
Generation generate(Engine& engine, const Tokenizer& tokenizer, const Question& question,
                    const GenerateOptions& options, const OnEvents& on_events);

// "prefill 12 tokens (30 more from the cache), 345.6 tok/s; decode 100 tokens, 78.9 tok/s". The two rates are measured
// separately. With drafts, "; 2.5 tokens a step, 60 of 80 drafts accepted, 1.40 times as fast" follows, if enough steps
// were measured.
std::string speed_line(const Usage& usage);

double prefill_rate(const Usage& usage);  // tokens a second
double decode_rate(const Usage& usage);

void add_generate_options(CLI::App& app, GenerateOptions& options, int& seed);

void add_beam_options(CLI::App& app, BeamParams& beams);
// Sequences and states for the beams. Throws UsageError for options that do not go together with several beams.
void make_room_for_beams(const GenerateOptions& options, RunnerOptions& runner);

// Traces the parts of a step on the track "engine". If steps overlap, the device's part is on the track "device".
void trace_step(TraceFile& trace, const StepStats& stats);

// Starts an engine on its own thread. If there is a trace file, steps are traced.
std::unique_ptr<Engine> start_engine(LoadedModel& model, const ModelOptions& options);

}  // namespace ingot
