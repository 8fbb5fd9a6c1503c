// ingot quantize: writes a model with fewer bits per weight, as a GGUF file.
#include "cli/models/quantize.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system.h"
#include "base/system_file.h"
#include "base/threads.h"
#include "cli/options/commands.h"
#include "cli/terminal/terminal.h"
#include "model/export/quantize.h"
#include "quant/encode.h"

namespace ingot {
namespace {

struct Interrupted {};

void check_output(const WriteOptions& o) {
  const auto status = status_of(o.out);
  if (!status) return;
  if (status->is_directory) throw Error("'{}' is a directory: name the file to write", printable(o.out));
  if (!o.force) throw Error("'{}' already exists: give --force to replace it", printable(o.out));
}

std::optional<Format> format_of(const std::string& name, const char* flag) {
  if (name.empty()) return std::nullopt;
  const auto format = format_from_name(name);
  if (!format || !info(*format).can_encode)
    throw UsageError("{}: ingot cannot write the type '{}': use one of {}", flag, printable(name, 64),
                     encodable_formats());
  return format;
}

double bits_per_weight(const QuantizeReport& r) {
  return r.n_weights == 0 ? 0 : 8.0 * static_cast<double>(r.bytes_after) / static_cast<double>(r.n_weights);
}

std::string mix_of(const QuantizeReport& report) {
  std::string mix;
  for (const auto& [type, count] : report.mix) mix += fmt::format("{}{} {}", mix.empty() ? "" : ", ", type, count);
  return mix;
}

std::string first_of(const std::vector<std::string>& names) {
  const std::string first = fmt::format("'{}'", printable(names.front()));
  return names.size() == 1 ? first : fmt::format("{} and {} more", first, names.size() - 1);
}

void print_json(const WriteOptions& o, const QuantizeReport& r, double seconds) {
  const nlohmann::ordered_json json = {{"file", o.out},
                                       {"tensors", r.n_tensors},
                                       {"weights", r.n_weights},
                                       {"bytes_before", r.bytes_before},
                                       {"bytes_after", r.bytes_after},
                                       {"bits_per_weight", bits_per_weight(r)},
                                       {"mix", r.mix},
                                       {"fallbacks", r.fallbacks},
                                       {"without_importance", r.without_importance},
                                       {"seconds", seconds}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_summary(const WriteOptions& o, const QuantizeReport& r, double seconds) {
  fmt::print("{}: {} -> {}, {:.2f} bits a weight, {} ({:.1f} s)\n", printable(o.out), human_bytes(r.bytes_before),
             human_bytes(r.bytes_after), bits_per_weight(r), mix_of(r), seconds);
  if (r.bytes_after > r.bytes_before)
    fmt::print(stderr, "ingot: warning: {} is larger than the original model: choose a type with fewer bits\n",
               printable(o.out));
  if (!r.fallbacks.empty())
    fmt::print(stderr, "ingot: warning: another type was used for tensors whose rows do not fill whole blocks: {}\n",
               first_of(r.fallbacks));
  if (!r.without_importance.empty())
    fmt::print(stderr, "ingot: warning: the importance matrix has no values for {}\n", first_of(r.without_importance));
}

QuantizeReport write_with_progress(const WriteOptions& o, const GgufExport& model, QuantizeOptions& options) {
  ProgressBar bar(o.type == "auto" ? "writing" : "quantizing");
  InterruptGuard guard;
  options.progress = [&](size_t done, size_t total) {
    if (InterruptGuard::interrupted()) throw Interrupted{};
    bar.update(done, total);
  };
  try {
    return write_gguf(model, options, o.out);
  } catch (const Interrupted&) {
    bar.wipe();
    fmt::print(stderr, "ingot: interrupted; nothing was written\n");
    throw CLI::RuntimeError(130);
  }
}

}  // namespace

void add_write_options(CLI::App& app, WriteOptions& o) {
  app.add_option(
      "--imatrix", o.imatrix,
      "file with llama.cpp's importance matrix of the model (.gguf or .dat), which weights the quantization errors");
  app.add_option("--output-type,--output-tensor-type", o.output_type,
                 "type of the output matrix; default: chosen by the mix");
  app.add_option("--embedding-type,--token-embedding-type", o.embedding_type,
                 "type of the token embedding; default: chosen by the mix");
  app.add_option("--per-layer-type", o.layer_inputs_type,
                 "type of per-layer embeddings (Gemma 4 E); default: they keep their type, because quantizing them "
                 "costs much quality");
  app.add_flag("--allow-requantize", o.allow_requantize,
               "quantize weights that are already quantized, which loses precision a second time");
  app.add_option("-t,--threads", o.n_threads, "number of threads; 0: one for each core this process may use")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  app.add_flag("--force", o.force, "overwrite OUT if it exists");
  app.add_flag("--json", o.json, "print one JSON object");
  add_hub_options(app, o.hub);
  app.add_option("--log-level", o.log_level, "log level: debug, info, warn, error or off")->capture_default_str();
}

void write_model(const WriteOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  set_log_level(parse_log_level(o.log_level));
  QuantizeOptions options{.mix = o.type == "auto" ? nullptr : &find_mix(o.type),
                          .layer_inputs = format_of(o.layer_inputs_type, "--per-layer-type"),
                          .output = format_of(o.output_type, "--output-type"),
                          .embedding = format_of(o.embedding_type, "--embedding-type"),
                          .allow_requantize = o.allow_requantize,
                          .allow_decode = o.allow_decode,
                          .n_threads = o.n_threads};
  check_output(o);
  std::optional<ImportanceMatrix> importance;
  if (!o.imatrix.empty()) options.importance = &importance.emplace(ImportanceMatrix::read(o.imatrix));
  const GgufExport model = gguf_export(open_checkpoint(o.in));
  const QuantizeReport report = write_with_progress(o, model, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (o.json) {
    print_json(o, report, seconds);
  } else {
    print_summary(o, report, seconds);
  }
}

void add_quantize(CLI::App& app) {
  auto o = std::make_shared<WriteOptions>();
  CLI::App* command = app.add_subcommand("quantize", "Write a model as a GGUF file with fewer bits per weight");
  command->add_option("IN", o->in, "GGUF file (any part of a split model), model directory, or ORG/REPO[:QUANT]")
      ->required();
  command->add_option("OUT", o->out, "GGUF file to write")->required();
  command->add_option("TYPE", o->type, "type of the weights: " + mix_names())->required();
  add_write_options(*command, *o);
  command->footer(
      "Norms and biases stay F32. Tensors whose rows do not fill whole blocks of a type get a type with smaller "
      "blocks.\n"
      "Examples:\n  ingot quantize model-f16.gguf model-q4.gguf Q4_K_M\n"
      "  ingot quantize Qwen3-0.6B/ qwen3.gguf Q4_K_M --imatrix imatrix.gguf");
  command->callback([o] {
    find_mix(o->type);  // "auto" is for convert only
    o->in = resolve_model(o->in, o->hub);
    write_model(*o);
  });
}

}  // namespace ingot
