// The flags that several commands share, with the spellings of other engines, and the options that these flags set.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/trace_file.h"
#include "cli/options/hub.h"
#include "cli/options/media.h"
#include "cli/options/overrides.h"
#include "cli/options/parallel.h"
#include "cli/options/split.h"
#include "engine/speculate/drafting.h"

namespace ingot {

struct ModelOptions {
  std::string path;            // or ORG/REPO[:QUANT] of the Hugging Face Hub, or a built-in model
  HubFlags hub;
  std::string device = "cpu";
  ParallelFlags parallel;
  int n_threads = 0;
  int n_ctx = 0;
  int chunk = 0;  // tokens of a step; 0: chosen (model/devices/memory_plan.h)
  int block_size = 16;
  int n_snapshots = 0;
  Speculate speculate = Speculate::kAuto;
  std::string draft;  // path or name of a draft model; empty: none
  std::string draft_device;  // empty: load_draft decides
  std::string kv_type = "f16";
  std::string quantize;           // format for dense matrices; empty: as stored
  std::string kernels = "tuned";  // or "fixed"
  std::string activations;        // "f16" or "f32"; empty: chosen (backend.h)
  std::string isa;                // empty: the best
  std::string numa = "off";       // or "distribute" or "isolate"
  std::string weights;            // "small", "fast" or "auto"; empty: small on the CPU, auto on a GPU
  SplitFlags split;
  ImageFlags images;
  OverrideFlags overrides;
  std::string gpu_memory;      // a share of the device's memory, or bytes; empty: as the context needs
  std::string trace_path;
  std::string chat_template, chat_template_file;  // empty: the model's template
  std::string log_level = "warn";
  bool check_tensors = false;
  bool check_nan = false;
  bool check_replay = false;
  bool trace_steps = false;
  bool deterministic = false;

  std::shared_ptr<TraceFile> trace;  // opened by runner_options when trace_path is set
};

void add_model_argument(CLI::App& app, ModelOptions& options);   // MODEL and -m, and the flags of the Hub
void add_log_option(CLI::App& app, ModelOptions& options);
void add_kernels_option(CLI::App& app, ModelOptions& options);   // --kernels of a GPU, --isa and --numa of the CPU
void add_weights_option(CLI::App& app, ModelOptions& options);
// BackendOptions::small_weights and copies.
bool packs_small(const ModelOptions& options);
std::string copies_of(const ModelOptions& options);
void add_quantize_option(CLI::App& app, ModelOptions& options);
void add_gpu_memory_option(CLI::App& app, ModelOptions& options);
void add_trace_options(CLI::App& app, ModelOptions& options);
void add_runner_options(CLI::App& app, ModelOptions& options);   // device, threads, context, chunk, trace

void add_template_options(CLI::App& app, ModelOptions& options);  // for commands with chat messages
void add_speculate_option(CLI::App& app, ModelOptions& options);   // for commands that generate text
// The file of the draft model or the EAGLE-3 head; null without --draft. Throws Error if its tokens differ.
std::shared_ptr<const Checkpoint> open_draft_file(const ModelOptions& options);
// Makes the runner load the requested draft head, and adds the rows and slots for one sequence's drafts. draft: the
// result of open_draft_file.
void make_room_for_drafts(const ModelOptions& options, const std::shared_ptr<const Checkpoint>& draft,
                          RunnerOptions& runner);

void add_snapshot_option(CLI::App& app, ModelOptions& options);  // for commands with several prompts in turn

void add_sampling_options(CLI::App& app, SamplingParams& params, int& seed);
// Parameters not set by a flag of `command` get the defaults of the model's file.
void use_model_defaults(const CLI::App& command, const GenerationConfig& model, SamplingParams& params);
// A seed of -1 becomes a random one. Throws UsageError for values out of range.
void finish_sampling(SamplingParams& params, int seed);

KvTypes runner_kv_type(const ModelOptions& options);  // throws UsageError
RunnerOptions runner_options(ModelOptions& options);

// Opens the model options.path: a built-in one (built_in_name), or that of resolve_model.
std::shared_ptr<const Checkpoint> open_model_file(const ModelOptions& options);

// Uses the template of the flags instead of the model's. Throws UsageError if both flags are set, and Error for a
// template that does not parse.
void use_given_template(const ModelOptions& options, LoadedModel& model);

// Loads the whole model, with a progress bar on a terminal.
LoadedModel open_model(ModelOptions& options, const RunnerOptions& runner);

// The texts of -p and -f joined, or standard input if neither is given and standard input is not a terminal.
// read_prompt requires a text that is not empty. Both functions throw UsageError.
struct PromptOptions {
  std::string text, file;
  bool has_text = false;
  const char* ways = "-p TEXT or -f FILE";  // the flags that give the text, for messages
};
void add_prompt_options(CLI::App& app, PromptOptions& options);
std::string read_text(const PromptOptions& options, const char* command);
std::string read_prompt(const PromptOptions& options, const char* command);
// Several texts: those of -p, then the lines of the file (or of standard input if neither is given), including empty
// lines. Throws UsageError.
std::vector<std::string> read_lines(std::vector<std::string> texts, const std::string& file, const char* command);

}  // namespace ingot
