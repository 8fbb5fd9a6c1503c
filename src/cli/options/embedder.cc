#include "cli/options/embedder.h"

#include "base/threads.h"
#include "cli/options/options.h"
#include "cli/terminal/terminal.h"

namespace ingot {

void add_embedder_flags(CLI::App& command, EmbedderFlags& f, const std::string& model, const std::string& item) {
  command
      .add_option("MODEL,-m,--model,--hf-repo", f.model,
                  model + ": GGUF file, Hugging Face model directory, or ORG/REPO[:QUANT] of the Hub (also -hf)")
      ->required();
  command.add_flag("--truncate", f.truncate,
                   "truncate texts that are too long for the model, instead of rejecting them");
  command
      .add_option("--device", f.device,
                  "device to compute on: cpu, cuda, cuda:1 (the second GPU), or ref (slow reference in plain C++)")
      ->capture_default_str();
  command
      .add_option("-t,--threads", f.n_threads,
                  "number of threads to compute with; 0: one for each core this process may use")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command
      .add_option("-c,--ctx-size", f.n_ctx,
                  "maximum number of tokens in a " + item + "; 0: as many as the model reads, at most 8192")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command.add_option("-b,--batch-size", f.batch, "maximum tokens of several " + item + "s in one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_parallel_options(command, f.parallel);
  command.add_flag("--check-tensors", f.check_tensors, "reject weights that are not finite; reads all weights first");
  command.add_option("--log-level", f.log_level, "log level: debug, info, warn, error or off")->capture_default_str();
  add_hub_options(command, f.hub);
}

std::unique_ptr<Embedder> open_embedder(const EmbedderFlags& f, EmbedOptions options) {
  const auto checkpoint = open_model_file({.path = f.model, .hub = f.hub, .log_level = f.log_level});
  options.backend.n_threads = f.n_threads, options.backend.small_weights = true;
  set_parallel(f.parallel, f.device, options);
  options.n_ctx = f.n_ctx, options.max_batch_tokens = f.batch;
  options.check_tensors = f.check_tensors;
  ProgressBar bar("loading");
  return Embedder::open(checkpoint, options, [&](size_t done, size_t total) { bar.update(done, total); });
}

}  // namespace ingot
