// ingot serve: serves a model over HTTP until a signal. After SIGTERM or Ctrl-C, the program waits for running
// requests; a second signal ends the program at once. SIGHUP reads the key file again. Exit codes: 0 ended by a signal,
// 1 could not start, 2 invalid command line, 70 the engine ended, 71 the engine ended because the GPU failed
// permanently, 72 hung.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>

#include "base/device_lost.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "base/thread_start.h"
#include "base/threads.h"
#include "cli/chat/generate.h"
#include "cli/commands/serve_media.h"
#include "cli/commands/serve_speech.h"
#include "cli/mpi/processes.h"
#include "cli/options/built_in.h"
#include "cli/options/commands.h"
#include "cli/options/grammar.h"
#include "cli/terminal/console.h"
#include "cli/version.h"
#include "model/devices/rank_facts.h"
#include "model/speech/speech_files.h"
#include "server/app.h"
#include "server/http/server.h"
#include "server/metrics_port.h"
#include "server/models/kv_events.h"
#include "server/watchdog.h"
#include "text/calls/call_format.h"

namespace ingot {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct ServeOptions {
  ModelOptions model;  // for each model of `paths`
  std::vector<std::string> paths;
  ModelPool::Limits pool;
  std::shared_ptr<const Checkpoint> draft_file;  // of model.draft
  std::vector<std::string> pinned, aliases;
  HttpServerOptions http;
  AppOptions app;
  AudioLimits audio;
  std::string access_log = "-", pooling, tool_parser, slot_folder;
  int metrics_port = -1;  // -1: no separate port
  KvEventsOptions kv_event_options;
  std::shared_ptr<KvEvents> kv_events;  // null: no events
  int max_seqs = 0, queue = 0, kv_tokens = 0, ttl_s = 0;
  bool insecure = false, lenient_schemas = false, any_order = false;
  int queue_timeout_s = 60, drain_s = 30, soft_watchdog_s = 60, hard_watchdog_s = 120;
  size_t request_memory = 0;  // bytes; 0: default_request_memory()
};

// Logit rows in one step for drafts and for log-probabilities of prompts. Also the chunk length of such prompts.
constexpr int kScoredRows = 64;

// A quarter of the free memory.
size_t default_request_memory() { return std::clamp(available_memory_bytes() / 4, size_t{64} << 20, size_t{8} << 30); }

// The API name of a model: the name given by the user, without folders and .gguf.
std::string served_name(const std::string& asked) {
  if (const std::string built_in = built_in_name(asked); !built_in.empty()) return built_in;
  const std::filesystem::path path(asked);
  if (!std::filesystem::exists(path)) return asked;  // a model of the Hub
  const std::string name = path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  return printable(name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name);
}

RunnerOptions serving_runner(ServeOptions& o) {
  RunnerOptions runner = runner_options(o.model);
  runner.max_seqs = o.max_seqs;
  const int n_seqs = o.max_seqs > 0 ? o.max_seqs : kFewSequences;  // that a step has room for
  if (o.model.chunk > 0) runner.max_batch_tokens = std::max(o.model.chunk, n_seqs);
  runner.spare_logits = kScoredRows;
  runner.has_neighbours = o.paths.size() > 1 && o.pool.max_loaded > 1;
  runner.n_kv_tokens = o.kv_tokens;
  choose_draft_head(o.model.speculate, o.draft_file, runner);
  return runner;
}

// True for an embedding model, or if the user sets a pooling.
bool is_embedder(const ServeOptions& o, const Checkpoint& checkpoint) {
  return !o.pooling.empty() || read_embed_facts(checkpoint).pooling;
}

int queue_limit(const ServeOptions& o, int max_seqs) { return o.queue > 0 ? o.queue : std::max(64, 4 * max_seqs); }

// The parts common to both kinds of models; the caller adds the others.
ServedModelParts served_parts(const ServeOptions& o, const Checkpoint& checkpoint, const std::string& id) {
  const CheckpointFacts facts = checkpoint.facts();
  ServedModelParts parts{.id = id,
                         .chat = ChatTemplate::chatml_default(),
                         .facts = {.n_bytes = static_cast<int64_t>(facts.file_bytes)},
                         .queue_timeout = std::chrono::seconds(o.queue_timeout_s)};
  std::map<std::string, int64_t> elements_of;  // by the type of the tensors
  for (const CheckpointTensor& tensor : facts.tensors) {
    parts.facts.n_parameters += tensor.n_elements;
    elements_of[tensor.type] += tensor.n_elements;
  }
  if (!elements_of.empty())
    parts.facts.quantization =
        std::ranges::max_element(elements_of, {}, &std::map<std::string, int64_t>::value_type::second)->first;
  parts.facts.container = facts.container.starts_with("GGUF") ? "gguf" : "safetensors";
  return parts;
}

std::shared_ptr<ServedModel> load_embedder(const ServeOptions& o, const std::shared_ptr<const Checkpoint>& checkpoint,
                                           const std::string& id) {
  EmbedOptions options{.n_ctx = o.model.n_ctx,
                       .max_batch_tokens = std::max(2048, o.model.chunk),
                       .check_tensors = o.model.check_tensors};
  options.backend.n_threads = o.model.n_threads;
  options.backend.small_weights = packs_small(o.model);
  options.backend.copies = copies_of(o.model);
  set_parallel(o.model.parallel, o.model.device, options);
  if (!o.pooling.empty()) options.pooling = o.pooling;
  ServedModelParts parts = served_parts(o, *checkpoint, id);
  parts.queue_limit = queue_limit(o, o.max_seqs);
  parts.embedder = Embedder::open(checkpoint, options, [](size_t, size_t) {});
  if (parts.embedder->pooling() == "none")
    throw Error("{}: this model makes a vector for each token: choose with --pooling how they become one vector",
                printable(checkpoint->path()));
  const Config config = checkpoint->config();
  parts.facts.n_ctx_train = config.n_ctx_train;
  parts.facts.architecture = config.arch->gguf_name;
  parts.facts.dim = parts.embedder->dim();
  auto model = std::make_shared<ServedModel>(std::move(parts));
  model->start();
  const std::string what = model->ranks() ? "scores" : fmt::format("vectors of {} numbers", model->facts().dim);
  fmt::print(stderr, "ingot: {} is loaded: {}, of texts of at most {} tokens\n", model->id(), what, model->n_ctx());
  return model;
}

std::shared_ptr<ServedModel> load_served(ServeOptions& o, const std::shared_ptr<const Checkpoint>& checkpoint,
                                         const std::string& id) {
  if (is_embedder(o, *checkpoint)) return load_embedder(o, checkpoint, id);
  ServedModelParts parts = served_parts(o, *checkpoint, id);
  const Config config = checkpoint->config();
  parts.facts.n_ctx_train = config.n_ctx_train;
  parts.facts.dim = config.dim;
  parts.facts.architecture = config.arch->gguf_name;
  parts.draft = load_draft(o.draft_file, serving_runner(o), o.model.draft_device);
  const RunnerOptions runner = serving_runner(o);
  if (runner.parallel.communicator) meet_ranks(fingerprint_of(*checkpoint), runner);
  LoadedModel loaded =
      load_model(checkpoint, runner, [](size_t, size_t) {}, tower_options(o.model.images, *checkpoint, runner));
  use_given_template(o.model, loaded);
  if (!loaded.chat) log_warn("this model has no chat template; using ChatML");
  parts.vision = std::move(loaded.vision);
  parts.ears = std::move(loaded.ears);
  if (loaded.chat) parts.chat = std::move(*loaded.chat);
  parts.tokenizer = std::move(loaded.tokenizer);
  parts.facts.taken_bytes = loaded.runner->allocated_bytes();
  for (int i = 0; i < loaded.runner->n_devices(); ++i)
    parts.facts.devices.push_back({loaded.runner->device_name(i), loaded.runner->backend(i).allocated_bytes()});
  const size_t kv_bytes = loaded.runner->memory().kv_bytes;
  parts.queue_limit = queue_limit(o, loaded.runner->info().max_seqs);
  parts.media_limits = o.model.images.limits;
  parts.media_limits.sounds.max_seconds = std::min(parts.media_limits.sounds.max_seconds, o.audio.max_seconds);
  parts.media_cache_bytes = o.model.images.cache_bytes;
  parts.runner = std::move(loaded.runner);
  parts.call_format = find_call_format(o.tool_parser);
  parts.defaults = checkpoint->generation();
  parts.lenient_schemas = o.lenient_schemas, parts.any_order = o.any_order;
  parts.constraint_bytes = std::min(parts.constraint_bytes, o.app.memory->limit() / 4);
  parts.engine.chunk = o.model.chunk;
  parts.engine.cache_listener = o.kv_events;
  if (o.kv_events) o.kv_events->loaded(parts.facts.devices.front().device == "cpu" ? "CPU" : "GPU");
  parts.speculate = o.model.speculate;
  if (!o.slot_folder.empty()) parts.slot_files = {o.slot_folder, checkpoint->digest()};
  if (o.model.trace) parts.engine.on_step = [trace = o.model.trace](const StepStats& s) { trace_step(*trace, s); };
  auto model = std::make_shared<ServedModel>(std::move(parts));
  model->start();
  fmt::print(stderr,
             "ingot: {} is loaded: context {} tokens, {} sequences at once; {} of memory taken, {} of it for the {} "
             "tokens of the KV cache (--kv-tokens)\n",
             model->id(), model->n_ctx(), model->info().max_seqs, human_bytes(model->facts().taken_bytes),
             human_bytes(kv_bytes), int64_t{model->info().pools[0].n_blocks} * model->info().block_size);
  return model;
}

// The sources of all models to serve. Opens the files now, so an invalid file is reported before the port opens.
std::vector<ModelSource> open_sources(ServeOptions& o) {
  if (o.paths.empty()) o.paths.push_back("");
  for (const auto& [flag, is_given] : {std::pair{"--alias", !o.aliases.empty()},
                                       {"--pooling", !o.pooling.empty()},
                                       {"--draft", !o.model.draft.empty()}})
    if (o.paths.size() > 1 && is_given)
      throw UsageError("{} works only with one model, but {} are given", flag, o.paths.size());
  std::vector<ModelSource> sources;
  for (const std::string& path : o.paths) {
    o.model.path = built_in_name(path).empty() ? resolve_model(path, o.model.hub) : path;
    const std::string id = o.aliases.empty() ? served_name(path) : o.aliases.front();
    const bool is_pinned = std::ranges::find(o.pinned, id) != o.pinned.end();
    if (is_speech_model(o.model.path)) {
      sources.push_back(speech_source(
          {.id = id,
           .aliases = o.aliases,
           .path = o.model.path,
           .quantize = o.model.quantize,
           .backend = {.device = chosen_device(o.model.device), .n_threads = o.model.n_threads, .isa = o.model.isa},
           .limits = o.audio,
           .queue_limit = queue_limit(o, kSpeechThreads),
           .check_tensors = o.model.check_tensors,
           .pinned = is_pinned}));
      continue;
    }
    auto checkpoint = open_model_file(o.model);
    if (is_embedder(o, *checkpoint) && !o.model.draft.empty())
      throw UsageError("--draft works only with models that write text, but {} makes vectors",
                       printable(served_name(path)));
    o.draft_file = open_draft_file(o.model);
    if (!is_embedder(o, *checkpoint)) checkpoint->config();
    sources.push_back({.id = id,
                       .aliases = o.aliases,
                       .load = [&o, checkpoint, id] { return load_served(o, checkpoint, id); },
                       .pinned = is_pinned,
                       .bytes = checkpoint->facts().file_bytes});
  }
  for (const std::string& name : o.pinned)
    if (std::ranges::find(sources, name, &ModelSource::id) == sources.end())
      throw UsageError("--pin {}: the server has no model with this name", printable(name));
  return sources;
}

// Waits until all requests have ended, the time has run out, or a second signal arrives.
void drain(App& app, HttpServer& server, int seconds) {
  fmt::print(stderr, "ingot: shutting down: waiting for {} requests to end (a second signal ends them now)\n",
             app.n_active());
  app.set_phase(Phase::kDraining);
  server.drain();
  const auto deadline = SteadyClock::now() + std::chrono::seconds(seconds);
  while (app.n_active() > 0 && SteadyClock::now() < deadline) {
    const int signal = next_signal(std::chrono::milliseconds(20));
    if (signal == SIGTERM || signal == SIGINT) end_now(128 + signal);
  }
}

void run_until_signal(App& app, ModelPool& pool, const ServeOptions& o) {
  constexpr size_t kLargeRequest = 16 << 20;  // bytes
  Watchdog watchdog({std::chrono::seconds(o.soft_watchdog_s), std::chrono::seconds(o.hard_watchdog_s)});
  for (;;) {
    const int signal = next_signal(std::chrono::milliseconds(500));
    if (signal == SIGTERM || signal == SIGINT) return;
    app.reload_keys();
    pool.tick();
    app.tick();
    if (o.app.memory->take_given_back() > kLargeRequest) give_back_memory();
    if (!pool.replace_lost()) {
      fmt::print(stderr, "ingot: the model could not be loaded again after its device was lost; giving up\n");
      end_now(kExitLostDevice);
    }
    if (const int code = watchdog.check(app); code != 0) end_now(code);
  }
}

std::FILE* open_log(const std::string& path) {
  if (path.empty() || path == "none") return nullptr;
  if (path == "-") return stderr;
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (!file) throw Error("cannot write the access log {}: {}", printable(path), std::strerror(errno));
  return file;
}

void check_exposure(ServeOptions& o, const App& app) {
  const bool local = is_loopback(o.http.host);
  if (!local && !app.has_keys() && !o.insecure)
    throw Error(
        "--host {} accepts requests from other machines: set a key with --api-key or --api-key-file, or give "
        "--insecure",
        printable(o.http.host));
}

// Raises the limit of open files to max_connections plus some for files. If this fails, lowers max_connections to fit
// the limit.
void fit_descriptors(size_t& max_connections) {
  constexpr size_t kOthers = 128;
  const size_t limit = raise_open_files(max_connections + kOthers);
  if (limit >= max_connections + kOthers) return;
  max_connections = limit > 2 * kOthers ? limit - kOthers : std::max<size_t>(1, limit / 2);
  log_warn("--max-connections is lowered to {}, because the limit of open files is {}", max_connections, limit);
}

// The options of the port for /metrics: the same address and certificate, another port. If the server uses a Unix
// socket, which has no ports, the metrics port is on loopback.
HttpServerOptions metrics_http(const ServeOptions& o) {
  if (o.metrics_port > 0 && o.metrics_port == o.http.port)
    throw UsageError("--metrics-port {}: --port already uses this port: choose another", o.metrics_port);
  HttpServerOptions http = o.http;
  http.port = o.metrics_port, http.port_flag = "--metrics-port";
  http.max_connections = 64;
  http.memory = nullptr;
  if (http.host.starts_with("unix:")) http.host = HttpServerOptions().host;
  return http;
}

// Several processes can only serve one model, which is loaded once.
void check_processes(ServeOptions& o) {
  if (o.paths.size() > 1)
    throw UsageError("several processes can serve only one model, but {} are given", o.paths.size());
  if (o.ttl_s > 0)
    throw UsageError("--model-ttl works only with one process: several processes load their model only once");
  if (o.pool.replaces_lost)
    throw UsageError(
        "--replay-on-device-loss works only with one process: with several processes, restart mpirun instead");
  if (!o.paths.empty()) o.model.path = o.paths.front();
}

void start_kv_events(ServeOptions& o, const ModelSource& model) {
  KvEventsOptions& events = o.kv_event_options;
  if (events.endpoint.empty()) {
    if (!events.replay.empty() || !events.topic.empty())
      throw UsageError("--kv-events-replay and --kv-events-topic need --kv-events");
    return;
  }
  if (o.paths.size() > 1) throw UsageError("--kv-events works only with one model, but {} are given", o.paths.size());
  if (events.topic.empty()) events.topic = fmt::format("kv@{}@{}", host_name(), model.id);
  o.kv_events = std::make_shared<KvEvents>(events);
  fmt::print(stderr, "ingot: events of the KV cache at {}, topic {}\n", o.kv_events->endpoint(),
             printable(events.topic));
  if (!events.replay.empty())
    fmt::print(stderr, "ingot: past events of the KV cache at {}\n", o.kv_events->replay_endpoint());
}

void serve(ServeOptions& o) {
  hold_signals();  // before the first thread
  const RunnerOptions runner = serving_runner(o);
  if (!o.slot_folder.empty() && (runner.parallel.communicator || runner.parallel.n_ranks > 1))
    throw UsageError(
        "--slot-save-path works only with one rank in one process, because ranks divide the KV cache: leave out --tp "
        "and mpirun");
  if (runner.parallel.communicator) {
    check_processes(o);
    if (is_follower()) open_model(o.model, runner);  // does not return; only the first process opens the port
  }
  o.app.version = INGOT_VERSION;
  o.app.commit = build_commit();
  o.app.compiler = build_compiler();
  o.app.only_local_hosts = is_loopback(o.http.host) && !o.http.host.starts_with("unix:");
  o.app.access_log = open_log(o.access_log);
  o.app.memory = o.http.memory =
      std::make_shared<MemoryBudget>(o.request_memory > 0 ? o.request_memory : default_request_memory());
  o.app.prepare_threads = std::max(2, available_cpus() / 2);
  o.pool.idle_ttl = std::chrono::seconds(o.ttl_s);
  std::vector<ModelSource> sources = open_sources(o);
  start_kv_events(o, sources.front());
  ModelPool pool(std::move(sources), o.pool);
  App app(o.app, pool);
  check_exposure(o, app);
  fit_descriptors(o.http.max_connections);
  const HttpServerOptions for_metrics = metrics_http(o);
  HttpServer server(o.http, app);
  MetricsPort figures(app, is_loopback(for_metrics.host));
  std::optional<HttpServer> metrics_server;
  if (o.metrics_port >= 0) {
    metrics_server.emplace(for_metrics, figures);
    metrics_server->start();
    fmt::print(stderr, "ingot: {}/metrics needs no key\n", metrics_server->address());
  }
  server.start();
  fmt::print(stderr, "ingot: listening on {}; loading the model\n", server.address());
  auto loading = start_thread("the thread that loads the model",
                              [&] { return std::async(std::launch::async, [&] { pool.fill(); }); });
  while (loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const int signal = next_signal(std::chrono::milliseconds(20));
    if (signal == SIGTERM || signal == SIGINT) end_now(0);
  }
  loading.get();
  if (o.request_memory == 0) o.app.memory->set_limit(default_request_memory());
  app.set_phase(Phase::kReady);
  const std::string page = o.app.web_page ? fmt::format("{}/ is a page to chat, ", server.address()) : "";
  const bool has_url = !server.address().starts_with("unix:");
  fmt::print(stderr, "ingot: the server is ready{}\n",
             has_url ? fmt::format(": {}{}/v1 is for OpenAI's clients", page, server.address()) : "");
  run_until_signal(app, pool, o);
  drain(app, server, o.drain_s);
  pool.stop();
  for (const auto& model : app.models()) model->stop();  // remaining requests end with an error
  app.stop_workers();
  const auto deadline = SteadyClock::now() + std::chrono::seconds(1);
  while (app.n_active() > 0 && SteadyClock::now() < deadline) next_signal(std::chrono::milliseconds(10));
  server.stop();
}

void add_http_options(CLI::App& command, ServeOptions& o) {
  command.add_option("--host", o.http.host, "address to listen on, or unix:PATH for a Unix socket")
      ->capture_default_str();
  command.add_option("--port", o.http.port, "port to listen on; 0: a free port, which is printed")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command.add_option("--api-key", o.app.api_keys, "API key that clients must send (repeatable)")
      ->allow_extra_args(false);
  command.add_option("--api-key-file", o.app.api_key_file,
                     "file of API keys, one per line; read again when it changes");
  command
      .add_option("--rate-limit", o.app.rate_limit,
                  "requests per minute for each key, or for each address if there are no keys; further requests get "
                  "429; 0: no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_flag("--insecure", o.insecure, "accept requests from other machines without a key");
  command
      .add_option("--cors-origins", o.app.origins,
                  "origins of other sites whose pages may use the server, or '*' (repeatable)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--ssl-cert-file", o.http.tls_cert, "PEM file with a certificate, to serve HTTPS");
  command.add_option("--ssl-key-file", o.http.tls_key, "PEM file with the key of the certificate");
  command
      .add_option("--access-log", o.access_log,
                  "write a JSON line for each request to this file; - for standard error; none: no log")
      ->capture_default_str();
  command.add_flag("!--no-webui", o.app.web_page, "do not serve the pages at / and /status");
  command
      .add_option_function<int>(
          "--keep-answers", [&o](int s) { o.app.keep_answers = std::chrono::seconds(s); },
          fmt::format("seconds that an answer with a name (X-Keep-Answer) goes on without its client, and stays after "
                      "its end, so a reloaded page gets it again; 0: not at all [{}]",
                      o.app.keep_answers.count()))
      ->check(CLI::Range(0, 86400));
  command.add_flag("--keep-billing-header", o.app.keep_billing_header,
                   "keep the line x-anthropic-billing-header at the start of Claude Code's system prompts; the line "
                   "differs in each request, so no cached prefix matches");
  command
      .add_option("--metrics-port", o.metrics_port,
                  "also answer /metrics and /health on this port, without a key; 0: a free port, which is printed")
      ->check(CLI::Range(0, 65535));
  command.add_option("--metrics-compat", "also report metrics under another server's names; vllm: vLLM's")
      ->check(CLI::IsMember({"vllm"}))
      ->each([&o](const std::string&) { o.app.vllm_metrics = true; });
}

void add_kv_event_options(CLI::App& command, ServeOptions& o) {
  command.add_option("--kv-events", o.kv_event_options.endpoint,
                     "publish cached prefixes over ZeroMQ in vLLM's format, for routers in a trusted network: "
                     "tcp://*:5557 listens, tcp://HOST:PORT connects; events contain prompt tokens");
  command.add_option("--kv-events-replay", o.kv_event_options.replay,
                     "address where routers request events that they missed, such as tcp://*:5558 (with --kv-events)");
  command.add_option("--kv-events-topic", o.kv_event_options.topic,
                     "topic of the events (with --kv-events) [kv@HOST@MODEL]");
}

void add_limit_options(CLI::App& command, ServeOptions& o) {
  const auto seconds = [&](const char* flag, std::chrono::milliseconds& into, const char* help) {
    command
        .add_option_function<int>(
            flag, [&into](int s) { into = std::chrono::seconds(s); }, fmt::format("{} [{}]", help, into.count() / 1000))
        ->check(CLI::Range(1, 86400));
  };
  command
      .add_option("-a,--alias,--served-model-name", o.aliases,
                  "names of the model in the API (repeatable, or separated by commas)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--pooling", o.pooling,
                  "pooling of token vectors into a text's vector: cls, mean or last; default: the model's; makes a "
                  "text-generation model serve embeddings")
      ->check(CLI::IsMember({"cls", "mean", "last"}));
  const std::vector<std::string_view> formats = call_format_names();
  command
      .add_option("--tool-parser", o.tool_parser,
                  "format in which models write tool calls and reasoning; default: derived from their chat templates")
      ->check(CLI::IsMember(std::vector<std::string>(formats.begin(), formats.end())));
  add_speculate_option(command, o.model);
  add_lenient_option(command, o.lenient_schemas);
  add_order_option(command, o.any_order);
  command
      .add_option("--models-max", o.pool.max_loaded,
                  "maximum number of models loaded at once; the model idle longest is unloaded to make room")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--models-memory", o.pool.max_bytes,
                  "maximum memory of all loaded models together, such as 24GiB; default: unload models only when "
                  "another model does not fit in free memory")
      ->transform(CLI::AsSizeValue(false));
  command.add_option("--model-ttl", o.ttl_s, "seconds without a request before a model is unloaded; 0: never")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command.add_option("--pin", o.pinned, "name of a model that is never unloaded (repeatable)")->allow_extra_args(false);
  command
      .add_option("--max-seqs,--parallel", o.max_seqs,
                  "maximum number of sequences computed at once; 0: 16 on the CPU, up to 256 on a GPU, as memory "
                  "allows")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command
      .add_option("--queue", o.queue,
                  "number of sequences that may wait before requests get 429; 0: four times the number computed at "
                  "once, at least 64")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--queue-timeout", o.queue_timeout_s,
                  "seconds that a request may wait for its turn before it gets 503")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command
      .add_option("--kv-tokens", o.kv_tokens,
                  "size of the KV cache in tokens, shared by all sequences; 0: as planned from the free memory")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      .add_option("--slot-save-path", o.slot_folder,
                  "folder where POST /slots/ID?action=save and restore keep the KV cache of conversations")
      ->check(CLI::ExistingDirectory);
  command.add_option("--max-body-bytes", o.http.limits.body_bytes, "maximum size of a request's body, in bytes")
      ->check(CLI::Range(size_t{1024}, size_t{1} << 30))
      ->capture_default_str();
  command
      .add_option("--request-memory", o.request_memory,
                  "maximum memory of connections, requests and large answers together, such as 512MiB; default: a "
                  "quarter of the free memory, at least 64MiB and at most 8GiB")
      ->transform(CLI::AsSizeValue(false));
  command.add_option("--max-connections", o.http.max_connections, "maximum number of connections at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  seconds("--header-timeout", o.http.head_deadline, "seconds to receive a request's headers");
  seconds("--body-timeout", o.http.body_deadline,
          "seconds to receive a request's body, plus one second for each 16 KiB");
  seconds("--idle-timeout", o.http.idle_deadline, "seconds before an idle connection is closed");
  seconds("--write-timeout", o.http.write_deadline, "seconds before a client that reads nothing is disconnected");
  seconds("--sse-ping-interval", o.http.ping_interval, "seconds of silence before a stream sends a comment");
  command
      .add_option_function<int>(
          "--stream-interval-ms", [&o](int ms) { o.app.stream_interval = std::chrono::milliseconds(ms); },
          fmt::format("maximum ms that tokens of a stream wait to share a write; the wait grows by 1 ms with each open "
                      "stream; 0: no wait [{}]",
                      o.app.stream_interval.count()))
      ->check(CLI::Range(0, 1000));
  command.add_flag("--replay-on-device-loss", o.pool.replaces_lost,
                   "after a device is lost, reload the model in this process and repeat each running request once; if "
                   "this fails, the process ends with code 71");
  command.add_option("--shutdown-timeout", o.drain_s, "seconds that running requests have to finish after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      .add_option("--watchdog-timeout", o.hard_watchdog_s,
                  "seconds without progress of a model with work before the process ends with code 72")
      ->check(CLI::Range(2, 86400))
      ->capture_default_str()
      ->each([&o](const std::string& s) { o.soft_watchdog_s = std::max(1, std::stoi(s) / 2); });
}

}  // namespace

void add_serve(CLI::App& app) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve models over HTTP: OpenAI's API, metrics and a web page");
  command->add_option("MODEL,-m,--model,--hf-repo", o->paths,
                      "GGUF files, Hugging Face model directories, speech models, ORG/REPO[:QUANT] of the Hugging Face "
                      "Hub (also -hf), or a built-in model: demo (the default) or demo-vision, which reads images");
  add_hub_options(*command, o->model.hub);
  add_http_options(*command, *o);
  add_limit_options(*command, *o);
  add_kv_event_options(*command, *o);
  add_template_options(*command, o->model);
  add_image_options(*command, o->model.images);
  add_media_source_options(*command, o->app.media);
  add_audio_options(*command, o->audio);
  add_runner_options(*command, o->model);
  add_snapshot_option(*command, o->model);
  command->footer(
      "Examples:\n  ingot serve model.gguf\n  ingot serve one.gguf two.gguf --models-max 1 --model-ttl 600\n  ingot "
      "serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --max-seqs 32\n"
      "  ingot serve ggml-base.bin         a speech model: /v1/audio/transcriptions\n"
      "  ingot serve bge-small.gguf        an embedding model: /v1/embeddings; a cross-encoder: /v1/rerank\n"
      "  curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
      "Fixed limits: request line 8 KiB, 100 headers with 16 KiB in all, JSON 64 deep, n 128, 16 stop strings of 256 "
      "bytes, 128 stop tokens,\n"
      "logit_bias 1024, logprobs 20, 256 tools, 16384 messages, 128 prompts, 2048 texts to embed or rank, 64 KiB of "
      "output that a client has not read.\n"
      "Exit codes: 0 ended by a signal, 1 could not start, 2 wrong command line, 70 the engine ended, 71 the device "
      "was lost, 72 the engine hung, 74 a model file was truncated.");
  command->callback([o] { serve(*o); });
}

}  // namespace ingot
