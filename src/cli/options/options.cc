#include "cli/options/options.h"

#include <random>

#include "backend/device_name.h"
#include "backend/sampler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/options/built_in.h"
#include "cli/terminal/terminal.h"
#include "io/gguf/gguf.h"
#include "model/config/arch_file.h"
#include "model/devices/rank_facts.h"
#include "model/speech/speech_files.h"

namespace ingot {

void add_model_argument(CLI::App& app, ModelOptions& o) {
  app.add_option("MODEL,-m,--model,--hf-repo", o.path,
                 "GGUF file (any part of a split model), Hugging Face model directory, or ORG/REPO[:QUANT] of the "
                 "Hugging Face Hub (also -hf), or a built-in model: demo (the default) or demo-vision, which reads images");
  add_hub_options(app, o.hub);
}

void add_log_option(CLI::App& app, ModelOptions& o) {
  app.add_option("--log-level", o.log_level, "log level: debug, info, warn, error or off")->capture_default_str();
}

void add_kernels_option(CLI::App& app, ModelOptions& o) {
  app.add_option("--kernels", o.kernels,
                 "kernels with --device cuda: tuned (timed while the model loads, and compiled for its sizes in the "
                 "background; cached in ~/.cache/ingot/kernels) or fixed (built-in kernels, chosen from a list); "
                 "--deterministic implies fixed")
      ->check(CLI::IsMember({"tuned", "fixed"}))
      ->capture_default_str();
  app.add_option("--activations", o.activations,
                 "type of activations with --device cuda: f16 or f32; default: f16, but FP8 weights are multiplied by "
                 "activations quantized to FP8")
      ->check(CLI::IsMember({"f16", "f32"}));
  app.add_option("--isa", o.isa,
                 "instruction set of the kernels with --device cpu: amx, avx512bf16, avx512, avx_vnni, avx2, "
                 "neon_i8mm, neon_dot or portable; default: the best that the machine has");
  app.add_option("--numa", o.numa,
                 "use of NUMA nodes with --device cpu: distribute (threads are bound to all nodes and read weights "
                 "from their own node), isolate (all threads and weights are on the node where the program starts) or "
                 "off (the system decides)")
      ->check(CLI::IsMember({"distribute", "isolate", "off"}))
      ->capture_default_str();
}

bool packs_small(const ModelOptions& o) { return o.weights.empty() || o.weights == "small"; }

std::string copies_of(const ModelOptions& o) {
  return o.weights == "small" ? "never" : o.weights == "fast" ? "always" : "";
}

void add_weights_option(CLI::App& app, ModelOptions& o) {
  app.add_option("--weights", o.weights,
                 "how quantized weights are stored: small (as in the file), fast or auto (fast if memory allows, else "
                 "small); default: small on the CPU, auto on a GPU. fast: the CPU needs up to twice the bytes for IQ1, "
                 "IQ2, IQ3 and TQ1_0, loads slowly, and answers up to twice as fast; a GPU also keeps a copy in f16, "
                 "which makes prompts and many sequences faster")
      ->check(CLI::IsMember({"auto", "fast", "small"}));
}

void add_trace_options(CLI::App& app, ModelOptions& o) {
  CLI::Option* trace =
      app.add_option("--trace", o.trace_path, "write the time of each op in each step to this file, for Perfetto");
  app.add_flag(
         "--trace-steps", o.trace_steps,
         "trace whole steps instead of ops; tracing ops slows steps on cuda, because the program waits for each op")
      ->needs(trace);
}

void add_gpu_memory_option(CLI::App& app, ModelOptions& o) {
  app.add_option("--gpu-memory,--gpu-memory-utilization", o.gpu_memory,
                 "maximum GPU memory with --device cuda: a share such as 0.9, or a size such as 40GiB; the KV cache "
                 "uses what the model leaves, and the CPU runs the parts of a model that do not fit");
}

// The row stays in the table, so it is added once, before any model is opened.
static void add_arch_option(CLI::App& app) {
  app.add_option_function<std::string>(
      "--arch", [](const std::string& path) { add_arch_file(path); },
      "also know the architecture in this JSON file, a row of the table of architectures made of parts that ingot has "
      "(see docs/add-a-model.md)");
}

void add_runner_options(CLI::App& app, ModelOptions& o) {
  app.add_option(
         "--device", o.device,
         "device to compute on: cpu, cuda (the first GPU), cuda:1 (the second GPU), auto (cuda if there is a GPU, else "
         "cpu with a warning), ref (slow reference in plain C++), or several devices with commas (with --pp or --tp)")
      ->capture_default_str();
  add_parallel_options(app, o.parallel);
  app.add_option("-t,--threads", o.n_threads,
                 "number of threads to compute with; 0: one for each core this process may use, or fewer if that is "
                 "faster")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  app.add_option("-c,--ctx-size,--max-model-len", o.n_ctx,
                 "context size in tokens; 0: the model's, or as much of it as fits in memory")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--chunk,-b,--batch-size", o.chunk,
                 "maximum prompt tokens per step; 0: 512 on the CPU, up to 2,048 on a GPU")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  app.add_option("--block-size", o.block_size, "number of tokens in a block of the KV cache")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--kv-type,--cache-type", o.kv_type,
                 "type of the KV cache: f16, bf16, f32, fp8 (E4M3, half the size of f16), q8_0 (about half), q4_0 "
                 "(about a quarter; its keys cost quality) or, only on a GPU, q8_0/q4_0 (keys/values, about 0.4)")
      ->capture_default_str();
  add_arch_option(app);
  add_override_options(app, o.overrides);
  add_quantize_option(app, o);
  add_gpu_memory_option(app, o);
  add_split_options(app, o.split);
  add_kernels_option(app, o);
  add_weights_option(app, o);
  add_trace_options(app, o);
  app.add_flag("--deterministic", o.deterministic,
               "give the same tokens regardless of concurrent requests, cached prefixes and chunks; slower, on cuda "
               "much slower");
  app.add_flag("--check-tensors", o.check_tensors, "reject weights that are not finite; reads all weights first");
  app.add_flag("--check-nan", o.check_nan, "stop at the first op that computes NaN (slow)");
  app.add_flag("--check-replay", o.check_replay,
               "compare each replayed step with plain kernel launches (slow; with --device cuda)");
  add_log_option(app, o);
}

void add_quantize_option(CLI::App& app, ModelOptions& o) {
  app.add_option("--quantize", o.quantize,
                 "quantize F32, F16 and BF16 matrices while the model loads, to fp8, q8_0, q4_0, q4_k_m or another "
                 "type of `ingot quantize`");
}

void add_snapshot_option(CLI::App& app, ModelOptions& o) {
  o.n_snapshots = -1;
  app.add_option("--snapshots", o.n_snapshots,
                 "snapshots of recurrent states kept for the prefix cache, such as 32; a conversation uses two; -1: as "
                 "many as are useful and fit")
      ->check(CLI::Range(-1, 1 << 16))
      ->capture_default_str();
}

void add_speculate_option(CLI::App& app, ModelOptions& o) {
  app.add_option_function<std::string>(
         "--speculate", [&o](const std::string& name) { o.speculate = *find_speculate(name); },
         "draft tokens that the model verifies, to get several tokens per step and the same text: mtp (drafts by the "
         "model's own layer for multi-token prediction), draft (by the model of --draft), eagle3 (by the head of "
         "--draft), ngram (tokens that followed the same tokens before), auto (draft or eagle3 with --draft, else mtp "
         "if the model has such a layer, else ngram) or off; drafting that does not pay stops automatically [auto]")
      ->check(CLI::IsMember(kSpeculateNames));
  app.add_option(
      "--draft", o.draft,
      "small draft model with the same tokens, or EAGLE-3 head of the model: a file, a directory or ORG/REPO[:QUANT]");
  app.add_option("--draft-device", o.draft_device,
                 "device of the draft model, as in --device; default: the model's device, or cpu if the draft model "
                 "has at most 2 MiB (needs --draft)");
}

std::shared_ptr<const Checkpoint> open_draft_file(const ModelOptions& o) {
  if (o.draft.empty() && o.speculate == Speculate::kDraft) throw UsageError("--speculate draft needs --draft MODEL");
  if (o.draft.empty() && o.speculate == Speculate::kEagle3)
    throw UsageError("--speculate eagle3 needs --draft DIR, the head's directory");
  if (o.draft.empty() && !o.draft_device.empty()) throw UsageError("--draft-device needs --draft MODEL");
  if (o.draft.empty()) return nullptr;
  if (o.speculate == Speculate::kMtp) throw UsageError("--speculate mtp uses a layer of the model: leave out --draft");
  auto checkpoint = open_checkpoint(resolve_model(o.draft, o.hub));
  try {
    check_draft(*checkpoint, o.speculate, *open_model_file(o)->tokenizer());
  } catch (const Error& error) {
    throw Error("--draft {}", error.what());
  }
  if (!o.draft_device.empty() && is_eagle_head(*checkpoint))
    throw UsageError("an EAGLE-3 head runs on the model's device: leave out --draft-device");
  return checkpoint;
}

void make_room_for_drafts(const ModelOptions& o, const std::shared_ptr<const Checkpoint>& draft,
                          RunnerOptions& runner) {
  choose_draft_head(o.speculate, draft, runner);
  if (o.speculate == Speculate::kOff) return;
  runner.spare_logits = std::max(runner.spare_logits, kMaxDrafts);
  if (runner.n_snapshots == 0) runner.n_snapshots = 1;
}

void add_sampling_options(CLI::App& app, SamplingParams& p, int& seed) {
  app.add_option("--temp,--temperature", p.temperature, "sampling temperature; 0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", p.top_k, "keep the k likeliest tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", p.top_p, "keep the likeliest tokens up to this share of probability; 1: all")
      ->capture_default_str();
  app.add_option("--min-p", p.min_p, "keep tokens at least this likely, relative to the likeliest; 0: all")
      ->capture_default_str();
  app.add_option("--typical,--typical-p", p.typical_p, "locally typical sampling; 1: off")->capture_default_str();
  app.add_option("--repeat-penalty,--repetition-penalty", p.repetition_penalty,
                 "factor that penalizes tokens seen before; 1: off")
      ->capture_default_str();
  app.add_option("--repeat-last-n,--penalty-window", p.penalty_window,
                 "number of last tokens that penalties count; -1: all")
      ->capture_default_str();
  app.add_option("--presence-penalty", p.presence_penalty,
                 "penalty subtracted once from the logits of tokens seen before")
      ->capture_default_str();
  app.add_option("--frequency-penalty", p.frequency_penalty,
                 "penalty subtracted from a token's logit for each time it was seen")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
      "-l,--logit-bias",
      [&p](const std::vector<std::string>& values) {
        for (const std::string& value : values) {
          char* end = nullptr;
          const long id = std::strtol(value.c_str(), &end, 10);
          char* rest = nullptr;
          const float bias = std::strtof(end, &rest);
          if (end == value.c_str() || rest == end || *rest != '\0' || id < 0 || id > (1 << 24))
            throw CLI::ValidationError("--logit-bias",
                                       "'" + value + "' is not ID+BIAS or ID-BIAS, such as 15043-inf or 15043+1.5");
          p.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
        }
      },
      "change one token's logit: ID+BIAS or ID-BIAS, such as 15043-inf or 15043+1.5 (repeatable)");
  app.add_option("-s,--seed", seed, "random seed; the same seed gives the same text; -1: a random seed")
      ->check(CLI::Range(-1, 0x7fffffff))
      ->capture_default_str();
}

void use_model_defaults(const CLI::App& command, const GenerationConfig& model, SamplingParams& params) {
  std::string used;
  auto use = [&](const char* flag, const auto& value, auto& field) {
    if (!value || command.count(flag) > 0) return;
    field = *value;
    used += fmt::format(" {} {}", flag, *value);
  };
  use("--temp", model.temperature, params.temperature);
  use("--top-k", model.top_k, params.top_k);
  use("--top-p", model.top_p, params.top_p);
  use("--min-p", model.min_p, params.min_p);
  use("--typical", model.typical_p, params.typical_p);
  use("--repeat-penalty", model.repetition_penalty, params.repetition_penalty);
  use("--repeat-last-n", model.penalty_window, params.penalty_window);
  if (!used.empty()) log_info("sampling settings from the model's file:{}", used);
}

void finish_sampling(SamplingParams& params, int seed) {
  params.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device{}();
  try {
    validate(params, 1 << 24);
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

KvTypes runner_kv_type(const ModelOptions& o) { return parse_kv_type(o.kv_type); }

namespace {

// Parses a size such as 40GiB; 0: the text is not a size.
size_t size_of(std::string text) {
  if (text.starts_with('-')) return 0;
  try {
    return CLI::AsSizeValue(false)(text).empty() ? std::strtoull(text.c_str(), nullptr, 10) : 0;
  } catch (const CLI::Error&) {
    return 0;
  }
}

// A number up to 1 is a share of the memory; a larger number is in bytes.
void read_gpu_memory(const ModelOptions& o, RunnerOptions& runner) {
  if (o.gpu_memory.empty()) return;
  if (!is_cuda(o.device))
    throw UsageError("--gpu-memory needs --device cuda: on the CPU, -c sets the size of the cache");
  char* end = nullptr;
  const double share = std::strtod(o.gpu_memory.c_str(), &end);
  if (*end == '\0' && share > 0 && share <= 1) {
    runner.memory_share = share;
  } else {
    runner.memory_bytes = size_of(o.gpu_memory);
    if (runner.memory_bytes < 1 << 20)
      throw UsageError("--gpu-memory '{}' is neither a share such as 0.9 nor a size such as 40GiB",
                       printable(o.gpu_memory));
  }
}

}  // namespace

RunnerOptions runner_options(ModelOptions& o) {
  set_log_level(parse_log_level(o.log_level));
  if (!o.trace_path.empty() && !o.trace) o.trace = std::make_shared<TraceFile>(o.trace_path);
  const SplitOptions layers_on = read_split_flags(o.split, o.parallel.tp, o.device);
  RunnerOptions runner = {.backend = {.device = o.device,
                                      .n_threads = o.n_threads,
                                      .isa = o.isa,
                                      .small_weights = packs_small(o),
                                      .copies = copies_of(o),
                                      .numa = o.numa,
                                      .activations = o.activations,
                                      .kernels = o.kernels,
                                      .deterministic = o.deterministic},
                          .layers_on = layers_on,
                          .n_ctx = o.n_ctx,
                          .max_batch_tokens = o.chunk,
                          .block_size = o.block_size,
                          .may_save_memory = o.weights == "auto",
                          .kv_dtype = runner_kv_type(o),
                          .n_snapshots = o.n_snapshots,
                          .quantize = o.quantize,
                          .check_tensors = o.check_tensors,
                          .check_nan = o.check_nan,
                          .check_replay = o.check_replay,
                          .trace = o.trace,
                          .trace_ops = !o.trace_steps};
  if (o.check_replay && !is_cuda(o.device))
    throw UsageError("--check-replay needs --device cuda: other devices do not replay steps");
  if (!o.isa.empty() && o.device != "cpu") throw UsageError("--isa is for --device cpu, not {}", printable(o.device));
  if (o.numa != "off" && o.device != "cpu") throw UsageError("--numa is for --device cpu, not {}", printable(o.device));
  read_gpu_memory(o, runner);
  set_parallel(o.parallel, o.split.pp, o.device, runner);
  return runner;
}

std::shared_ptr<const Checkpoint> open_model_file(const ModelOptions& o) {
  set_log_level(parse_log_level(o.log_level));
  if (const std::string name = built_in_name(o.path); !name.empty())
    return with_overrides(built_in_file(name), o.overrides);
  const std::string path = resolve_model(o.path, o.hub);
  if (is_speech_model(path))
    throw Error("{}: a speech model, which writes down recordings: use `ingot transcribe` or `ingot serve`",
                printable(path));
  return open_with_overrides(path, o.overrides);
}

LoadedModel open_model(ModelOptions& o, const RunnerOptions& runner) {
  const auto checkpoint = open_model_file(o);  // may download the model first, with a separate progress bar
  if (runner.parallel.communicator) meet_ranks(fingerprint_of(*checkpoint), runner);
  ProgressBar bar("loading");
  LoadedModel model = load_model(checkpoint, runner, [&](size_t done, size_t total) { bar.update(done, total); },
                                 tower_options(o.images, *checkpoint, runner));
  follow_first(*model.runner);
  use_given_template(o, model);
  if (model.chat) place_media(model, *model.chat);
  return model;
}

void add_template_options(CLI::App& app, ModelOptions& o) {
  CLI::Option* text = app.add_option("--chat-template", o.chat_template,
                                     "chat template to use instead of the model's: Jinja, or the name chatml");
  app.add_option("--chat-template-file", o.chat_template_file, "file with the chat template to use")
      ->check(CLI::ExistingFile)
      ->excludes(text);
}

void use_given_template(const ModelOptions& o, LoadedModel& model) {
  if (o.chat_template.empty() && o.chat_template_file.empty()) return;
  if (o.chat_template == "chatml") {
    model.chat = ChatTemplate::chatml_default();
    return;
  }
  if (!o.chat_template.empty() && o.chat_template.find('{') == std::string::npos)
    throw UsageError("--chat-template '{}' is not a template: give Jinja, chatml, or --chat-template-file FILE",
                     printable(o.chat_template, 64));
  const std::string source = o.chat_template.empty() ? read_file(o.chat_template_file) : o.chat_template;
  Template::parse(source);  // throws here; ChatTemplate would fall back to ChatML
  const Tokenizer& tokenizer = *model.tokenizer;
  const auto text = [&](std::optional<int32_t> id) { return id ? std::string(tokenizer.token_text(*id)) : ""; };
  model.chat = ChatTemplate(source, text(tokenizer.bos()), text(tokenizer.eos()));
}

void add_prompt_options(CLI::App& app, PromptOptions& o) {
  app.add_option("-p,--prompt", o.text, "text of the prompt")->each([&o](const std::string&) { o.has_text = true; });
  app.add_option("-f,--file", o.file,
                 "read the prompt from this file, and append it to -p if both are given; - for standard input");
}

std::string read_text(const PromptOptions& o, const char* command) {
  std::string text = o.text;
  if (!o.file.empty()) text += read_file(o.file);
  if (o.has_text || !o.file.empty()) return text;
  if (stdin_is_terminal())
    throw UsageError("there is no text: give it with {}, or pipe it in; see ingot {} --help", o.ways, command);
  return read_file("-");
}

std::string read_prompt(const PromptOptions& o, const char* command) {
  std::string prompt = read_text(o, command);
  if (prompt.empty()) throw UsageError("the prompt is empty: give one with {}, or pipe it in", o.ways);
  return prompt;
}

std::vector<std::string> read_lines(std::vector<std::string> texts, const std::string& file, const char* command) {
  if (!texts.empty() && file.empty()) return texts;
  const std::string all = read_prompt({.text = {}, .file = file, .has_text = false}, command);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    std::string& line = texts.emplace_back(all.substr(begin, end - begin));
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1;
  }
  return texts;
}

}  // namespace ingot
