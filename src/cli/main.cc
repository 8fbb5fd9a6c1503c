// ingot: the main program; each command has its own file. Exit codes: 0 success, 1 failure, 2 invalid command line, 71
// the GPU or a rank failed permanently, 74 a mapped file was truncated, 130 interrupted.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "base/device_lost.h"
#include "base/error.h"
#include "cli/flag_names.h"
#include "cli/machine/first_start.h"
#include "cli/mpi/processes.h"
#include "cli/options/commands.h"
#include "cli/options/help.h"
#include "cli/spellings.h"
#include "cli/terminal/console.h"
#include "cli/terminal/terminal.h"
#include "cli/version.h"

namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  ingot run -p \"Tell me a story about a fox.\"    try the built-in demo model\n"
    "  ingot chat model.gguf                          chat with your own model\n"
    "  ingot chat ORG/REPO:Q4_K_M                     chat with a model of the Hugging Face Hub\n"
    "  ingot serve model.gguf                         serve OpenAI's API and a web page over HTTP\n"
    "  ingot inspect model.gguf                       show what a model contains and needs\n"
    "  ingot bench model.gguf                         measure the speed on this machine\n"
    "`ingot COMMAND --help` shows the options of a command.";

// Names the process, if it is not the first of several.
int report(const char* what, int code) {
  const std::string rank = ingot::process_rank();
  const bool is_named = rank.empty() || std::string_view(what).starts_with("rank ");
  ingot::tell("ingot: {}{}{}\n", is_named ? "" : rank, is_named ? "" : ": ", what);
  return code;
}

// Model files are mapped. If a file is truncated, its last pages become unreadable.
constexpr const char* kLostFile =
    "ingot: a model file became shorter while it was in use (or its disk failed); put it back and start again\n";
constexpr int kExitLostFile = 74;

// Returns the exit code.
int run(int argc, char** argv) {
  ingot::log_to_stderr();
  CLI::App app("ingot runs open language models, fast, on the machine you have.", "ingot");
  ingot::set_help(app);
  app.set_version_flag(
      "--version",
      [=] {
        const bool is_json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
        return is_json ? ingot::version_json() : ingot::version_line();
      },
      "Display the version; with --json also the commit, the compiler and the backends");
  app.allow_windows_style_options(false);  // on Windows too, /a/path is a file
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
  ingot::add_transcribe(app);
  ingot::add_grammar(app);
  ingot::add_template(app);
  ingot::add_pull(app);
  ingot::add_ls(app);
  ingot::add_rm(app);
  ingot::add_quantize(app);
  ingot::add_convert(app);
  ingot::add_devices(app);
  ingot::add_doctor(app);
  std::vector<std::string> args;
  try {
    const bool asks = argc == 1 && ingot::stdin_is_terminal() && ingot::stdout_is_terminal();
    args = asks ? ingot::ask_first_command() : ingot::known_arguments(app, argc, argv);
    if (asks && args.empty()) return 0;
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 expects this order
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : report("cannot write to standard output", 1);
  } catch (const CLI::Success& e) {  // thrown by --help and --version
    return app.exit(e);
  } catch (const CLI::RuntimeError& e) {  // the exit code of a command
    return e.get_exit_code();
  } catch (const CLI::ExtrasError& e) {
    return report(ingot::unknown_argument(app).c_str(), 2);
  } catch (const CLI::ParseError& e) {
    const std::string command = app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " ";
    return report(fmt::format("{}; see ingot {}--help", ingot::with_flag_name(app, args, e.what()), command).c_str(),
                  2);
  } catch (const ingot::UsageError& e) {
    return report(ingot::with_flag_name(app, args, e.what()).c_str(), 2);
  } catch (const ingot::DeviceLost& e) {
    return report(e.what(), ingot::kExitLostDevice);
  } catch (const std::bad_alloc&) {
    return report("out of memory: use a smaller model or a smaller --ctx-size", 1);
  } catch (const std::exception& e) {
    return report(ingot::with_flag_name(app, args, e.what()).c_str(), 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ingot::prepare_program(kLostFile, kExitLostFile);
  const int code = run(argc, argv);
  ingot::end_processes(code);
  return code;
}
