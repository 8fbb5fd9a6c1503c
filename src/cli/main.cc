// ingot: one program, with one file for each command. Exit codes: 0 done, 1 failed, 2 the command line is wrong, 71 the
// GPU failed for good, 74 a file in use was cut, 130 interrupted.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <utility>

#include "base/device_lost.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/hub_options.h"
#include "cli/terminal.h"

#ifndef INGOT_VERSION
#define INGOT_VERSION "unknown"
#endif

namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  ingot run -p \"Tell me a story about a fox.\"    write with the built-in demo model\n"
    "  ingot chat model.gguf                          talk with your own\n"
    "  ingot chat ORG/REPO:Q4_K_M                     or with one from the Hugging Face Hub\n"
    "  ingot serve model.gguf                         answer HTTP: OpenAI's API, and a page for the browser\n"
    "  ingot inspect model.gguf                       what is in a file, and what it needs\n"
    "  ingot bench model.gguf                         how fast this machine runs it\n"
    "`ingot COMMAND --help` says more.";

int report(const char* what, int code) {
  std::fprintf(stderr, "ingot: %s\n", what);
  return code;
}

// Model files are mapped. If a file becomes shorter, its last pages are gone.
void on_lost_page(int) {
  constexpr char kText[] =
      "ingot: a model file became shorter while it was in use (or its disk failed); put it back and start again\n";
  constexpr int kExitLostFile = 74;
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(kExitLostFile);
}

void check_command(const CLI::App& app, int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first.starts_with("-")) return;
  std::string commands;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == first) return;
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  }
  if (argc < 2) throw ingot::UsageError("there is no command: use one of {}; see ingot --help", commands);
  throw ingot::UsageError("unknown command '{}': use one of {}; see ingot --help", ingot::printable(first), commands);
}

// Levenshtein's distance: the fewest letters to add, remove or change.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, diagonal + 1, change});
    }
  }
  return row.back();
}

// Names the arguments that the command does not know, and the most similar flag.
std::string unknown_argument(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  const std::string unknown = extras.empty() ? "" : extras.front(), typed = unknown.substr(0, unknown.find('='));
  const CLI::App& command = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  std::string nearest;
  size_t best = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const size_t distance = edit_distance(typed, "--" + name);
      if (distance >= best) continue;
      best = distance;
      nearest = "--" + name;
    }
  }
  const std::string hint = nearest.empty() || !typed.starts_with("-") ? "" : fmt::format(" (nearest: {})", nearest);
  return fmt::format("unknown argument '{}'{}; see ingot {} --help", ingot::printable(unknown), hint,
                     command.get_name());
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGBUS, on_lost_page);
  ingot::log_to_stderr();
  CLI::App app("ingot runs open language models, fast, on the machine you have.", "ingot");
  app.set_version_flag("--version", "ingot " INGOT_VERSION);
  app.require_subcommand(1);
  app.footer(kExamples);
  ingot::add_run(app);
  ingot::add_chat(app);
  ingot::add_serve(app);
  ingot::add_inspect(app);
  ingot::add_bench(app);
  ingot::add_tokenize(app);
  ingot::add_logits(app);
  ingot::add_perplexity(app);
  ingot::add_embed(app);
  ingot::add_rerank(app);
  ingot::add_grammar(app);
  ingot::add_template(app);
  ingot::add_pull(app);
  ingot::add_ls(app);
  ingot::add_rm(app);
  ingot::add_quantize(app);
  ingot::add_convert(app);
  try {
    check_command(app, argc, argv);
    std::vector<std::string> args = ingot::hub_spellings(app, argc, argv);
    std::reverse(args.begin(), args.end());  // CLI11 expects this order
    app.parse(args);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : report("cannot write to standard output", 1);
  } catch (const CLI::Success& e) {  // raised by --help and --version
    return app.exit(e);
  } catch (const CLI::RuntimeError& e) {  // the exit code of a command
    return e.get_exit_code();
  } catch (const CLI::ExtrasError& e) {
    return report(unknown_argument(app).c_str(), 2);
  } catch (const CLI::ParseError& e) {
    const std::string command = app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " ";
    return report(fmt::format("{}; see ingot {}--help", e.what(), command).c_str(), 2);
  } catch (const ingot::UsageError& e) {
    return report(e.what(), 2);
  } catch (const ingot::DeviceLost& e) {
    return report(e.what(), ingot::kExitLostDevice);
  } catch (const std::bad_alloc&) {
    return report("out of memory: use a smaller model or a smaller --ctx-size", 1);
  } catch (const std::exception& e) {
    return report(e.what(), 1);
  }
}
