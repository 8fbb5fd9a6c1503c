// One answer, streamed: submits a request to the engine, turns its tokens into text as they come, watches for stop
// strings and Ctrl-C. What `run` and `chat` are made of.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/grammar_options.h"
#include "cli/options.h"
#include "engine/engine.h"

namespace ingot {

struct GenerateOptions {
  SamplingParams sampling;
  int max_tokens = -1;             // -1: to the end of the context
  std::vector<std::string> stops;  // strings that end the answer; not part of it
  bool ignore_eos = false;
  GrammarOptions grammar = {};                    // as the flags have it,
  std::shared_ptr<Constraint> constraint = {};    // and as the answer follows it
  std::span<const int32_t> shown_special = {};    // special tokens that are in the text all the same; sorted
  const CLI::App* verb = nullptr;  // whose flags beat what the model's file says of sampling
};

struct Generation {
  std::string text;
  std::vector<Sampled> tokens;     // as drawn, the stop token not among them
  std::string finish;              // "stop", "length" or "interrupted"
  Usage usage;
};

// Throws Error when the request cannot run or fails. on_text gets whole characters.
Generation generate(Engine& engine, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                    const GenerateOptions& options, const std::function<void(std::string_view)>& on_text);

// "prefill 12 tokens (30 more from the cache), 345.6 tok/s; decode 100 tokens, 78.9 tok/s", both measured apart.
std::string speed_line(const Usage& usage);
// What the flags say that answers follow. Throws UsageError before a model is loaded for what cannot be enforced.
class AnswerGrammar {
 public:
  explicit AnswerGrammar(const GrammarOptions& options);
  std::shared_ptr<Constraint> over(const LoadedModel& model);  // null: answers are free; called once

 private:
  std::unique_ptr<Automaton> automaton_;
};

double prefill_rate(const Usage& usage);  // tokens a second
double decode_rate(const Usage& usage);

void add_generate_options(CLI::App& app, GenerateOptions& options, int& seed);

// What an engine did when: its parts on the track "engine", and where steps overlap the device's on "device".
void trace_step(TraceFile& trace, const StepStats& stats);

// An engine on its own thread; steps go to the trace file when there is one.
std::unique_ptr<Engine> start_engine(LoadedModel& model, const ModelOptions& options);

}  // namespace ingot
