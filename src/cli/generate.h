// Streams one answer: submits a request to the engine, decodes the tokens, and stops at stop strings and Ctrl-C. Used
// by `run` and `chat`.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/grammar_options.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "text/token_bits.h"

namespace ingot {

struct GenerateOptions {
  SamplingParams sampling;
  std::vector<std::string> dry_breakers = dry_default_breakers();  // texts; "none": no breakers
  int max_tokens = -1;             // -1: up to the end of the context
  std::vector<std::string> stops;  // strings that end the answer; not included in the answer
  bool ignore_eos = false;
  GrammarOptions grammar = {};                    // as the flags set it
  std::shared_ptr<Constraint> constraint = {};    // compiled for the model; null: free answers
  std::span<const int32_t> shown_special = {};    // special tokens that still appear in the text; sorted
  Speculate speculate = Speculate::kAuto;
  std::shared_ptr<DraftModel> draft = {};         // for speculation; null: none
  const CLI::App* command = nullptr;              // whose flags override the model's sampling defaults
};

struct Generation {
  std::string text;
  std::vector<Sampled> tokens;     // the sampled tokens, without the stop token
  std::string finish;              // "stop", "length" or "interrupted"
  Usage usage;
};

// Throws Error if the request cannot run or fails. on_text receives whole characters.
Generation generate(Engine& engine, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                    const GenerateOptions& options, const std::function<void(std::string_view)>& on_text);

// "prefill 12 tokens (30 more from the cache), 345.6 tok/s; decode 100 tokens, 78.9 tok/s". The two rates are measured
// separately. With drafts, "; 2.5 tokens a step, 60 of 80 drafts accepted, 1.40 times as fast" follows.
std::string speed_line(const Usage& usage);
// The answer grammar set by the flags. The constructor throws UsageError, before a model is loaded, if the grammar
// cannot be enforced.
class AnswerGrammar {
 public:
  explicit AnswerGrammar(const GrammarOptions& options);
  std::shared_ptr<Constraint> over(const LoadedModel& model);  // null: no grammar; call once

 private:
  std::unique_ptr<Automaton> automaton_;
};

double prefill_rate(const Usage& usage);  // tokens a second
double decode_rate(const Usage& usage);

void add_generate_options(CLI::App& app, GenerateOptions& options, int& seed);

// Traces the parts of a step on the track "engine". If steps overlap, the device's part is on the track "device".
void trace_step(TraceFile& trace, const StepStats& stats);

// Starts an engine on its own thread. If there is a trace file, steps are traced.
std::unique_ptr<Engine> start_engine(LoadedModel& model, const ModelOptions& options);

}  // namespace ingot
