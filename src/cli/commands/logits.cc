// ingot logits: prints the logits of the next token, for numerical comparisons.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands/npy.h"
#include "cli/options/commands.h"
#include "cli/options/options.h"
#include "cli/terminal/terminal.h"
#include "model/devices/score.h"

namespace ingot {
namespace {

struct LogitsOptions {
  ModelOptions model;
  PromptOptions prompt;
  std::vector<int32_t> tokens;
  bool all = false, no_special = false;
  std::string out;
};

constexpr int kRowsOfStep = 512;  // rows of logits in one step; each row takes memory

void logits(LogitsOptions& o) {
  if (!o.tokens.empty() && o.prompt.has_text) throw UsageError("give either --tokens or -p, not both");
  RunnerOptions runner = runner_options(o.model);
  if (o.all && runner.max_batch_tokens == 0) runner.max_batch_tokens = kRowsOfStep;
  runner.max_logits = o.all ? runner.max_batch_tokens : 1;
  const std::string text = o.tokens.empty() && !is_follower() ? read_prompt(o.prompt, "logits") : "";
  LoadedModel model = open_model(o.model, runner);
  const std::vector<int32_t> tokens =
      o.tokens.empty() ? model.tokenizer->encode(text, {.add_special = !o.no_special}) : o.tokens;
  const int n = static_cast<int>(tokens.size()), first = o.all ? 0 : n - 1;
  std::vector<float> rows;
  for_each_logits(*model.runner, tokens, model.runner->info().max_batch_tokens, first,
                  [&](int, std::span<const float> row) { rows.insert(rows.end(), row.begin(), row.end()); });
  write_npy(o.out, rows, n - first, model.runner->info().n_vocab);
  if (stderr_is_terminal())
    fmt::print(stderr, "wrote {} rows of {} logits to {}\n", n - first, model.runner->info().n_vocab, printable(o.out));
}

}  // namespace

void add_logits(CLI::App& app) {
  auto o = std::make_shared<LogitsOptions>();
  CLI::App* command = app.add_subcommand("logits", "Write the logits after a prompt as a NumPy file");
  add_model_argument(*command, o->model);
  add_prompt_options(*command, o->prompt);
  command->add_option("--tokens", o->tokens, "token ids instead of a text, such as 1,2,3")->delimiter(',');
  command->add_flag("--all", o->all, "write a row for each token, not only for the last");
  command->add_flag("--no-special", o->no_special, "do not add BOS and EOS");
  command->add_option("-o,--out", o->out, "NumPy file to write (.npy): float32 [rows, vocabulary]")->required();
  add_runner_options(*command, o->model);
  command->footer(
      "Example:\n  ingot logits model.gguf --tokens 1,2,3 --all -o out.npy && python3 -c \"import numpy; "
      "print(numpy.load('out.npy').shape)\"");
  command->callback([o] { logits(*o); });
}

}  // namespace ingot
