// ingot inspect: shows the contents of a model and the memory that it needs.
#include <fmt/format.h>

#include <functional>
#include <limits>
#include <map>

#include "backend/planned_gpu.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "cli/models/inspect_kernels.h"
#include "cli/models/inspect_speech.h"
#include "cli/models/metadata_json.h"
#include "cli/options/built_in.h"
#include "cli/options/commands.h"
#include "cli/options/options.h"
#include "io/huggingface/directory.h"
#include "model/ears/ear_config.h"
#include "model/files/load_quantizer.h"
#include "model/loader.h"
#include "model/program/kv_caches.h"
#include "model/speech/speech_files.h"
#include "model/vectors/embedder.h"
#include "model/vision/tower_config.h"
#include "text/json_value.h"

namespace ingot {
namespace {

struct InspectOptions {
  ModelOptions model;
  bool json = false, tensors = false, show_template = false, fit = false, kernels = false;
  std::string shape, type = "Q4_0";  // used with `kernels`
  std::vector<int> rows = {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  uint64_t memory = 0;      // memory to fit in; 0: the free memory
  std::vector<uint64_t> gpu_memory;  // of each hypothetical GPU
};

JsonValue quant_mix(const CheckpointFacts& facts) {
  std::map<std::string, std::pair<int, uint64_t>> mix;  // format: tensors, bytes
  for (const CheckpointTensor& t : facts.tensors) {
    auto& [count, bytes] = mix[t.type];
    ++count;
    bytes += t.n_bytes;
  }
  JsonValue json = JsonValue::object();
  for (const auto& [name, entry] : mix) json[name] = {{"tensors", entry.first}, {"bytes", entry.second}};
  return json;
}

// The layers with a window: "all", or their numbers from 0.
JsonValue windowed_layers(const Config& c) {
  JsonValue layers = JsonValue::array();
  for (int i = 0; i < c.n_layers; ++i)
    if (c.layer(i).window > 0) layers.push_back(i);
  return layers.size() == static_cast<size_t>(c.n_layers) ? JsonValue("all") : layers;
}

JsonValue experts(const ExpertConfig& e) {
  JsonValue json = {{"experts", e.n}, {"experts_used", e.n_used}, {"expert_ffn_dim", e.ffn_dim}};
  if (e.shared_dim > 0) json["shared_expert_ffn_dim"] = e.shared_dim;
  return json;
}

JsonValue architecture(const Config& c) {
  JsonValue json = {{"architecture", c.arch->gguf_name},
               {"layers", c.n_layers},
               {"dim", c.dim},
               {"heads", c.n_heads},
               {"kv_heads", c.n_kv_heads},
               {"head_dim", c.head_dim},
               {"ffn_dim", c.ffn_dim},
               {"vocabulary", c.n_vocab},
               {"context", c.n_ctx_train},
               {"rope_theta", c.rope_theta},
               {"norm_eps", c.norm_eps},
               {"sliding_window", c.sliding_window}};
  if (c.arch->learned_positions) json.erase("rope_theta");
  if (c.sliding_window > 0) json["sliding_window_layers"] = windowed_layers(c);
  if (c.experts.n > 0) json.update(experts(c.experts));
  if (c.n_recurrent_layers() > 0) json["recurrent_layers"] = c.n_recurrent_layers();
  return json;
}

// Counts only the experts that one token uses.
int64_t active_parameters(const CheckpointFacts& facts, const Config& c) {
  int64_t n = 0;
  for (const CheckpointTensor& t : facts.tensors) {
    const bool of_experts = t.name.find("_exps.") != t.name.npos || t.name.find(".experts.") != t.name.npos ||
                            t.name.find(".switch_mlp.") != t.name.npos ||
                            t.name.find("moe.input_linear") != t.name.npos ||
                            t.name.find("moe.output_linear") != t.name.npos;
    n += of_experts ? t.n_elements / c.experts.n * c.experts.n_used : t.n_elements;
  }
  return n;
}

RunnerOptions runner_options(const InspectOptions& o) {
  RunnerOptions options;
  options.max_batch_tokens = o.model.chunk;
  options.block_size = o.model.block_size, options.kv_dtype = runner_kv_type(o.model);
  options.backend.copies = copies_of(o.model);
  return options;
}

// A backend of the requested device. The model is not loaded; the backend reports how much memory it would need.
struct Planner {
  Planner(const Checkpoint& checkpoint, const InspectOptions& o)
      : backend(create_backend({.device = o.model.device,
                                .n_threads = 1,
                                .small_weights = packs_small(o.model),
                                .copies = copies_of(o.model)})),
        source(quantized_source(checkpoint.weights(), checkpoint.config(), o.model.quantize)),
        config(checkpoint.config()) {
    choose_copies(config, *source, *backend, o.memory > 0 ? o.memory : backend->available_bytes(), 1,
                  runner_options(o));
    weights = weight_bytes(*source, config, *backend);
    const DraftHeadFile head = find_mtp_head(*source, config);
    if (!head) return;
    config.draft_head = head.config;
    weights += head_bytes(head, *backend);
  }
  const std::unique_ptr<Backend> backend;
  const std::unique_ptr<WeightSource> source;
  Config config;  // with the MTP head that speculation would load
  WeightBytes weights;
};

JsonValue rows_of(const std::vector<MemoryPlan>& plans) {
  JsonValue rows = JsonValue::array();
  for (const MemoryPlan& p : plans)
    rows.push_back({{"sequences", p.max_seqs},
                    {"context", p.n_ctx},
                    {"kv_bytes", p.kv_bytes},
                    {"state_bytes", p.state_bytes},
                    {"snapshots", p.n_snapshots()},
                    {"activation_bytes", p.activation_bytes},
                    {"total_bytes", p.total_bytes()}});
  return rows;
}

// As what_fits, for GPUs of which only the memory sizes are known. Several are the stages of a pipeline. The CPU holds
// the parts that do not fit on the GPUs.
JsonValue what_fits_gpus(const Checkpoint& checkpoint, const InspectOptions& o) {
  const Config c = checkpoint.config();
  const auto source = checkpoint.weights();
  RunnerOptions options = runner_options(o);
  options.n_snapshots = o.model.n_snapshots, options.n_ctx = o.model.n_ctx;
  const auto cpu = create_backend({.device = "cpu", .n_threads = 1, .small_weights = packs_small(o.model)});
  const size_t host_bytes = o.memory > 0 ? o.memory : cpu->available_bytes(), n_gpus = o.gpu_memory.size();
  std::vector<std::unique_ptr<Backend>> gpus;
  std::vector<DeviceMemory> devices;
  for (size_t i = 0; i < n_gpus; ++i) {
    gpus.push_back(planned_gpu(o.gpu_memory[i], copies_of(o.model) != "never"));
    choose_copies(c, *source, *gpus[i], o.gpu_memory[i], n_gpus, options);
    devices.push_back({.name = n_gpus == 1 ? "the GPU" : fmt::format("GPU {}", i),
                       .backend = gpus[i].get(),
                       .available = o.gpu_memory[i]});
  }
  const auto host = [&] {
    return DeviceMemory{.name = "the CPU", .backend = cpu.get(), .available = host_bytes};
  };
  const Split split = choose_split(c, *source, devices, host, options);
  const bool has_host_part = split.uses(static_cast<int>(n_gpus));
  for (DeviceMemory& gpu : devices) {
    gpu.take = take_of(gpu.backend, n_gpus + has_host_part, options);
    gpu.available -= std::min(gpu.available, gpu.backend->driver_bytes());
  }
  if (has_host_part) {
    devices.push_back(host());
    options.max_batch_tokens = std::max(options.max_batch_tokens, kSplitChunk);
  }
  JsonValue json = {{"model_context", c.n_ctx_train}, {"devices", JsonValue::array()}};
  std::vector<std::string> names;
  size_t available = 0, weights = 0;
  for (DeviceMemory& device : devices) {
    device.weights = weight_bytes(*source, c, *device.backend, split.part(static_cast<int>(names.size())));
    names.push_back(device.name);
    available += device.available, weights += device.weights.total();
    json["devices"].push_back(
        {{"name", device.name}, {"available_bytes", device.available}, {"weights_bytes", device.weights.total()}});
  }
  json["split"] = split_text(split, names), json["available_bytes"] = available, json["weights_bytes"] = weights;
  json["fit"] = rows_of(plans_that_fit(c, split, devices, options));
  return json;
}

// As what_fits, for the device of the options.
JsonValue what_fits_device(const Checkpoint& checkpoint, const InspectOptions& o) {
  const Planner planner(checkpoint, o);
  const Config& c = planner.config;
  const size_t available = o.memory > 0 ? o.memory : planner.backend->available_bytes();
  JsonValue json = {{"available_bytes", available},
               {"weights_bytes", planner.weights.total()},
               {"model_context", c.n_ctx_train}};
  RunnerOptions options = runner_options(o);
  options.n_snapshots = o.model.n_snapshots;
  json["fit"] = rows_of(plans_that_fit(c, planner.weights, available, options, planner.backend.get()));
  return json;
}

// The context size that fits, for several numbers of concurrent sequences. If nothing fits, tries smaller weights, as a
// model that is loaded does.
JsonValue what_fits(const Checkpoint& checkpoint, InspectOptions o) {
  const auto try_once = [&] {
    return o.gpu_memory.empty() ? what_fits_device(checkpoint, o) : what_fits_gpus(checkpoint, o);
  };
  const auto try_small = [&] {
    o.model.weights = "small";
    JsonValue json = try_once();
    json["small_weights"] = true;
    return json;
  };
  const bool may_save = o.model.weights == "auto";
  try {
    JsonValue json = try_once();
    return may_save && json["fit"].empty() ? try_small() : json;
  } catch (const MemoryError&) {
    if (!may_save) throw;
    return try_small();
  }
}

void print_fit(const JsonValue& json) {
  const auto bytes = [](const JsonValue& value) { return human_bytes(value.get<uint64_t>()); };
  if (json.contains("split")) {
    for (const JsonValue& device : json["devices"])
      fmt::print("{}: {} available, {} for weights\n", device["name"].get<std::string>(),
                 bytes(device["available_bytes"]), bytes(device["weights_bytes"]));
    fmt::print("{}\n", json["split"].get<std::string>());
  } else {
    fmt::print("{} available, {} for the weights; a twentieth is left free\n", bytes(json["available_bytes"]),
               bytes(json["weights_bytes"]));
  }
  if (json.contains("small_weights")) fmt::print("the CPU's weights stay as small as in the file\n");
  if (json["fit"].empty()) fmt::print("nothing fits: use a smaller model or a smaller quant\n");
  if (json["fit"].empty()) return;
  const bool recurrent = json["fit"][0]["state_bytes"] > 0;
  const auto column = [&](const auto& text) { return recurrent ? fmt::format("{:>9}  ", text) : ""; };
  fmt::print("{:>9}  {}{:>12}  {:>10}  {:>10}\n", "sequences", column("snapshots"), "context each", "cache",
             "in all");
  for (const JsonValue& row : json["fit"]) {
    const uint64_t cache = row["kv_bytes"].get<uint64_t>() + row["state_bytes"].get<uint64_t>();
    const bool whole = row["context"] == json["model_context"];
    fmt::print("{:>9}  {}{:>12}  {:>10}  {:>10}{}\n", row["sequences"].get<int>(),
               column(row["snapshots"].get<int>()), row["context"].get<int>(), human_bytes(cache),
               bytes(row["total_bytes"]), whole ? "  the model's own context" : "");
  }
}

// Weights, KV cache and scratch for one sequence with this context, as in `run`.
JsonValue memory_need(const Checkpoint& checkpoint, const InspectOptions& o) {
  const Planner planner(checkpoint, o);
  RunnerOptions options = runner_options(o);
  options.n_ctx = o.model.n_ctx;
  const size_t available = planner.backend->available_bytes();
  // Without a limit, the plan reports the memory that the model needs, even if the machine has less.
  constexpr size_t kUnlimited = std::numeric_limits<size_t>::max() / 4;
  const bool is_bounded = o.model.n_ctx == 0 && planner.weights.total() <= available;
  const MemoryPlan plan = plan_memory(checkpoint.config(), planner.weights, is_bounded ? available : kUnlimited,
                                      options, planner.backend.get());
  JsonValue json = {{"context", plan.n_ctx},
               {"weights_bytes", plan.weight_bytes},
               {"kv_bytes", plan.kv_bytes},
               {"kv_bytes_per_token", token_bytes_of(plan.kv)},
               {"activation_bytes", plan.activation_bytes},
               {"total_bytes", plan.total_bytes()},
               {"available_bytes", available}};
  if (plan.states) json["state_bytes"] = plan.state_bytes;
  return json;
}

JsonValue tokenizer_facts(const Checkpoint& checkpoint) {
  if (!checkpoint.has_tokenizer()) return nullptr;
  const auto t = checkpoint.tokenizer();
  auto token = [&](std::optional<int32_t> id) {
    return id ? JsonValue(fmt::format("{} ({})", *id, t->token_text(*id))) : JsonValue();
  };
  return {{"model", t->model()},      {"pre", t->pre()},
          {"tokens", t->n_vocab()},   {"bos", token(t->bos())},
          {"eos", token(t->eos())},   {"adds_bos", t->add_bos()},
          {"adds_eos", t->add_eos()}, {"chat_template", checkpoint.chat_template().has_value()}};
}

JsonValue sampling_facts(const GenerationConfig& g) {
  JsonValue json = JsonValue::object();
  auto add = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  add("temperature", g.temperature);
  add("top_k", g.top_k);
  add("top_p", g.top_p);
  add("min_p", g.min_p);
  add("typical_p", g.typical_p);
  add("repetition_penalty", g.repetition_penalty);
  add("penalty_window", g.penalty_window);
  return json;
}

// Returns the error as JSON, so `inspect` can still show the other parts of the checkpoint.
JsonValue or_error(const std::function<JsonValue()>& make) {
  try {
    return make();
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

JsonValue describe(const Checkpoint& checkpoint, const CheckpointFacts& facts, const InspectOptions& o) {
  JsonValue json = {{"file", built_in_name(o.model.path).empty() ? o.model.path : fmt::format("({})", checkpoint.path())},
               {"container", facts.container},
               {"files", facts.n_files},
               {"file_bytes", facts.file_bytes},
               {"name", facts.name}};
  int64_t n_parameters = 0;
  for (const CheckpointTensor& t : facts.tensors) n_parameters += t.n_elements;
  json["parameters"] = n_parameters;
  json["quant_mix"] = quant_mix(facts);
  bool encoder = false;
  if (!facts.tensors.empty()) {
    json["model"] = or_error([&] {
      encoder = is_encoder(checkpoint);
      return architecture(checkpoint.config());
    });
    if (json["model"].contains("experts")) json["active_parameters"] = active_parameters(facts, checkpoint.config());
    if (!encoder)
      json["memory"] =
          json["model"].contains("error") ? JsonValue() : or_error([&] { return memory_need(checkpoint, o); });
  }
  json["tokenizer"] = or_error([&] { return tokenizer_facts(checkpoint); });
  if (const JsonValue sampling = or_error([&] { return sampling_facts(checkpoint.generation()); }); !sampling.empty())
    json["sampling"] = sampling;
  if (encoder)
    json["pooling"] = or_error([&] { return JsonValue(read_embed_facts(checkpoint).pooling.value_or("none")); });
  if (facts.pooling && !encoder) json["pooling"] = *facts.pooling;
  if (o.json) {
    json["metadata"] = or_error([&] { return metadata_json(checkpoint); });
  } else {
    for (const auto& [key, value] : facts.metadata) json["metadata"][key] = value;
  }
  if (o.tensors) {
    json["tensors"] = JsonValue::array();
    for (const CheckpointTensor& t : facts.tensors)
      json["tensors"].push_back({{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"bytes", t.n_bytes}});
  }
  return json;
}

// "key: value" lines, nested objects indented; byte counts also as "1.2 GiB".
void print_text(const JsonValue& json, int indent) {
  for (const auto& [key, value] : json.items()) {
    fmt::print("{:{}}{}:", "", indent, printable(key));
    if (value.is_object()) {
      fmt::print("\n");
      print_text(value, indent + 2);
      continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.is_null() ? "none" : value.dump();
    fmt::print(" {}{}\n", printable(text),
               key.ends_with("bytes") ? " (" + human_bytes(value.get<uint64_t>()) + ")" : "");
  }
}

// The parts of a directory that ingot does not run: "the eyes and the ears"; empty: none.
std::string parts_left_out(const Checkpoint& checkpoint) {
  const HfDirectory* directory = checkpoint.directory();
  if (directory == nullptr) return "";
  const JsonDocument document = directory->document("config.json");
  const Json root = document.root();
  const auto thinker = root.find("thinker_config");  // of models that also speak
  const auto has = [&](const char* key) { return root.find(key) || (thinker && thinker->find(key)); };
  std::vector<std::string> parts;
  if (has("vision_config") && !is_known_tower(root)) parts.emplace_back("the eyes");
  if (has("audio_config") && !has_known_ears(root)) parts.emplace_back("the ears");
  if (has("talker_config")) parts.emplace_back("the voice");
  return fmt::format("{}", fmt::join(parts, " and "));
}

void inspect(InspectOptions& o) {
  if (o.kernels) {
    BenchSubject subject{.model = o.model, .shape = o.shape, .type = o.type};
    const JsonValue json = time_kernels(subject, o.rows, /*prints=*/!o.json);
    if (o.json) fmt::print("{}\n", json.dump(2));
    return;
  }
  if (!o.show_template && !o.fit && !o.tensors && built_in_name(o.model.path).empty()) {
    o.model.path = resolve_model(o.model.path, o.model.hub);
    if (is_speech_model(o.model.path)) {
      const JsonValue speech = describe_speech(o.model.path);
      return o.json ? fmt::print("{}\n", speech.dump(2)) : print_text(speech, 0);
    }
  }
  const auto checkpoint = open_model_file(o.model);
  if (o.show_template) {
    const auto source = chat_template_source(*checkpoint);
    if (!source) throw Error("this model has no chat template");
    fmt::print("{}\n", *source);
    return;
  }
  const CheckpointFacts facts = checkpoint->facts();
  if (o.fit && is_encoder(*checkpoint))
    throw Error("an encoder has no KV cache, so there is no context to fit: it needs memory only for its weights");
  if (o.fit && facts.tensors.empty()) throw Error("this file has no tensors: there is nothing to fit");
  JsonValue json = o.fit ? what_fits(*checkpoint, o) : describe(*checkpoint, facts, o);
  if (o.json) {
    fmt::print("{}\n", json.dump(2, ' ', false, JsonValue::error_handler_t::replace));
    return;
  }
  if (o.fit) return print_fit(json);
  const JsonValue tensors = json.contains("tensors") ? json["tensors"] : JsonValue::array();
  json.erase("tensors");
  print_text(json, 0);
  for (const JsonValue& t : tensors)
    fmt::print("{:<40} {:<14} {:<20} {}\n", printable(t["name"].get<std::string>()), t["type"].get<std::string>(),
               t["shape"].dump(), human_bytes(t["bytes"].get<uint64_t>()));
  if (const std::string parts = parts_left_out(*checkpoint); !parts.empty())
    fmt::print(stderr, "ingot: warning: ingot does not run {} of this model\n", parts);
  for (const std::string& warning : facts.warnings) fmt::print(stderr, "ingot: warning: {}\n", printable(warning));
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a model contains and how much memory it needs");
  add_model_argument(*command, o->model);
  command->add_flag("--json", o->json, "print one JSON object");
  command->add_flag("--tensors", o->tensors, "list every tensor");
  command->add_flag("--template", o->show_template, "print only the chat template");
  command->add_flag("--fit", o->fit,
                    "show the context size that fits in memory, for one sequence and for several at once");
  command->add_option("--memory", o->memory, "memory to plan for, such as 24GiB; 0: the available memory")
      ->transform(CLI::AsSizeValue(false))
      ->needs("--fit");
  command
      ->add_option("--gpu-memory", o->gpu_memory,
                   "plan for a GPU with this much memory, such as 16GiB, which need not exist; also show the parts "
                   "that the CPU runs if the model does not fit; for several GPUs (--pp), a list such as 24GiB,12GiB")
      ->transform(CLI::AsSizeValue(false))
      ->delimiter(',')
      ->needs("--fit");
  command->add_flag("--kernels", o->kernels,
                    "load the model, and show the matmul kernels for its matrices with their times");
  command->add_option("--rows", o->rows, "numbers of activation rows to time, such as 1,64,256")
      ->check(CLI::Range(1, 1 << 14))
      ->delimiter(',')
      ->capture_default_str()
      ->needs("--kernels");
  command
      ->add_option("--device", o->model.device,
                   "device whose memory or kernels are shown: cpu, cuda, cuda:1 (the second GPU) or ref")
      ->capture_default_str();
  command->add_option("--shape", o->shape, "use random weights of a known shape instead of a file, as in `ingot bench`")
      ->needs("--kernels");
  command->add_option("--type", o->type, "format of the random weights")->capture_default_str()->needs("--shape");
  command
      ->add_option("-c,--ctx-size", o->model.n_ctx,
                   "context size to plan memory for, in tokens; 0: as `ingot run` would choose")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--kv-type,--cache-type", o->model.kv_type,
                   "type of the KV cache: f16, bf16, f32, fp8, q8_0, q8_0/q4_0 (keys/values) or q4_0")
      ->capture_default_str();
  add_quantize_option(*command, o->model);
  add_weights_option(*command, o->model);
  command->get_option("--quantize")->needs("--fit");
  add_snapshot_option(*command, o->model);
  command->get_option("--snapshots")->needs("--fit");
  add_log_option(*command, o->model);
  command->footer(
      "Examples:\n  ingot inspect model.gguf -c 8192\n  ingot inspect model.gguf --json --tensors\n"
      "  ingot inspect model.gguf --fit --memory 24GiB\n"
      "  ingot inspect model.gguf --fit --gpu-memory 16GiB\n"
      "  ingot inspect model.gguf --fit --gpu-memory 24GiB,12GiB\n"
      "  ingot inspect model.gguf --kernels --device cuda --rows "
      "1,64,256");
  command->callback([o] { inspect(*o); });
}

}  // namespace ingot
