// ingot perplexity: measures how well a model predicts a text. The numbers are comparable with llama.cpp's.
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/options/commands.h"
#include "cli/options/options.h"
#include "cli/terminal/terminal.h"
#include "model/devices/score.h"

namespace ingot {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  int n_chunks = -1;
  bool json = false;
};

void print_perplexity(PerplexityOptions& o) {
  constexpr int kWindow = 512, kLogitRows = 128;
  const int window = o.model.n_ctx > 0 ? o.model.n_ctx : kWindow;
  o.model.n_ctx = window;
  RunnerOptions runner = runner_options(o.model);
  // The logits of each token take memory, so steps are short.
  const int max_rows = o.model.chunk > 0 ? std::min(o.model.chunk, kLogitRows) : kLogitRows;
  runner.max_batch_tokens = runner.max_logits = std::min(max_rows, window);
  const std::string text = read_file(o.file);
  LoadedModel model = open_model(o.model, runner);
  const std::vector<int32_t> tokens = model.tokenizer->encode(text);
  const int32_t bos = model.tokenizer->add_bos() ? model.tokenizer->bos().value_or(-1) : -1;
  const Perplexity result =
      perplexity(*model.runner, tokens, window, o.n_chunks, bos, [&](int done, int total, const Perplexity& p) {
        if (!o.json && stderr_is_terminal()) fmt::print(stderr, "\r[{}/{}] {:.4f}", done, total, p.value);
      });
  if (!o.json && stderr_is_terminal()) fmt::print(stderr, "\r\033[K");
  if (o.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"perplexity", result.value},
                                              {"std_error", result.std_error},
                                              {"n_scored", result.n_scored},
                                              {"n_ctx", window},
                                              {"n_tokens", tokens.size()}}
                           .dump());
  } else {
    fmt::print("perplexity {:.4f} +- {:.4f} ({} tokens scored, windows of {})\n", result.value, result.std_error,
               result.n_scored, window);
  }
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  add_model_argument(*command, o->model);
  command->add_option("-f,--file", o->file, "file with the text; - for standard input")->required();
  command->add_option("--chunks", o->n_chunks, "number of windows to score, from the start of the text; -1: all")
      ->check(CLI::Range(-1, 1 << 24))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object");
  add_runner_options(*command, o->model);
  command->footer(
      "The text is divided into windows of -c tokens (default: 512). The second half of each window is scored.\n"
      "Example:\n  ingot perplexity model.gguf -f wiki.test.raw -c 512");
  command->callback([o] { print_perplexity(*o); });
}

}  // namespace ingot
