// ingot chat: a conversation, turn by turn, with the model's own chat template. With --tools, the model's calls run
// commands on this machine, and the model continues with their results.
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "cli/chat/commands.h"
#include "cli/chat/session.h"
#include "cli/options/commands.h"
#include "cli/terminal/console.h"
#include "cli/terminal/terminal.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class Chat {
 public:
  explicit Chat(ChatOptions& options) : options_(options), session_(options, reader_) {
    if (!options.resume) return;
    if (options.talk_file.empty())
      throw UsageError("--resume needs the file of the last conversation: give --talk-file FILE");
    if (fs::exists(options.talk_file)) session_.talk.load(options.talk_file);
    if (!options.system.empty() && session_.talk.system() != options.system)
      throw UsageError(
          "--system differs from the system prompt of the conversation that --resume continues: leave out one of them");
  }

  void loop() {
    std::optional<InterruptGuard> guard;  // Ctrl-C between two reads must not end the program
    if (reader_.is_interactive()) guard.emplace();
    if (stdout_is_terminal())
      say("{}. /help lists the commands, {} leaves.\n", session_.title(), keys_of_the_end());
    if (stdout_is_terminal() && options_.resume) show_talk();
    std::string draft;
    while (const std::optional<std::string> line = read_message(reader_, "> ", std::exchange(draft, ""))) {
      if (reader_.interrupted()) {
        if (line->empty() && leaves(draft)) return;
        continue;
      }
      if (line->empty()) continue;
      if (line->front() == '/') {
        if (!run_chat_command(session_, reader_, *line)) return;
      } else {
        session_.answer(*line);
      }
      keep();
      std::fflush(stdout);
    }
    if (stdout_is_terminal()) fmt::print("\n");
  }

 private:
  // Asks after Ctrl-C on an empty line. A second Ctrl-C means yes. Other words than yes and no are the next message,
  // which the user can still edit: `draft`.
  bool leaves(std::string& draft) {
    const std::string answer = reader_.read("Leave? [y/N] ").value_or("y"), word = lower(trim(answer));
    if (reader_.interrupted() || word == "y" || word == "yes") return true;
    if (word != "" && word != "n" && word != "no") draft = answer;
    return false;
  }

  void show_talk() const {
    for (const auto& message : session_.talk.messages)
      if (message["role"] == "user" || message["role"] == "assistant")
        say("{}{}\n", message["role"] == "user" ? "> " : "", text_of_message(message));
  }

  // Saves an interactive or resumed talk for the next --resume. The file is readable only by the user. A new talk
  // without a question does not replace the saved talk.
  void keep() {
    const bool is_kept = options_.resume || (reader_.is_interactive() && session_.talk.n_questions() > 0);
    if (options_.talk_file.empty() || !is_kept) return;
    try {
      const fs::path path = options_.talk_file;
      std::error_code ignored;
      if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
      session_.talk.save(options_.talk_file);
      fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, ignored);
    } catch (const Error& error) {
      tell("ingot: warning: the conversation was not saved: {}\n", error.what());
      options_.talk_file.clear();
    }
  }

  ChatOptions& options_;
  LineReader reader_;
  ChatSession session_;
};

void add_tool_options(CLI::App& command, ChatOptions& o) {
  command
      .add_option("--tools", o.tools,
                  "JSON file of tools that the model may call: OpenAI's format, and next to each function the command "
                  "that a call runs, as a list of words; each call is shown and needs your consent")
      ->check(CLI::ExistingFile);
  command.add_flag(
      "--run-tools", o.run_tools,
      "run tool calls without asking; without this flag, calls are shown but not run if there is no terminal");
  command.add_option("--tool-timeout", o.tool_timeout_s, "seconds after which the command of a call is killed")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  const std::vector<std::string_view> formats = call_format_names();
  command
      .add_option("--tool-parser", o.tool_parser,
                  "format in which the model writes calls; default: derived from its chat template")
      ->check(CLI::IsMember(std::vector<std::string>(formats.begin(), formats.end())));
}

constexpr const char* kFooter =
    "Examples:\n"
    "  ingot chat\n"
    "  ingot chat --resume                          continue the last conversation\n"
    "  ingot chat model.gguf --system \"You answer in one sentence.\" --temp 0.5\n"
    "  ingot chat model.gguf --tools tools.json     with this in tools.json:\n"
    "    [{\"type\": \"function\", \"command\": [\"python3\", \"weather.py\"],\n"
    "      \"function\": {\"name\": \"get_weather\", \"description\": \"The weather of a city\",\n"
    "                   \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]\n"
    "  The command reads the arguments as JSON from standard input. Its output is the result.\n"
    "  echo \"What is the weather in Oslo?\" | ingot chat model.gguf --tools tools.json --run-tools";

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Chat with a model");
  add_model_argument(*command, o->model);
  command->add_option("--system", o->system, "system prompt of the conversation");
  command->add_flag("--resume", o->resume, "continue the last conversation");
  command->add_option("--talk-file", o->talk_file,
                      "file that saves a conversation on a terminal, or with --resume, after each turn (default: "
                      "~/.local/state/ingot/chat.json); '': do not save");
  add_tool_options(*command, *o);
  add_generate_options(*command, o->generate, o->seed);
  add_template_options(*command, o->model);
  add_image_options(*command, o->model.images);
  add_speculate_option(*command, o->model);
  add_runner_options(*command, o->model);
  add_snapshot_option(*command, o->model);
  command->footer(kFooter);
  command->callback([o] {
    finish_sampling(o->generate.sampling, o->seed);
    Chat(*o).loop();
  });
}

}  // namespace ingot
