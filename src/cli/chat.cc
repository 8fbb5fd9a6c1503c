// ingot chat: a conversation, turn by turn, through the model's own template. With --tools, the model's calls run
// commands of this machine, and it goes on with their results.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/chat_answer.h"
#include "cli/chat_tools.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/line_reader.h"
#include "cli/terminal.h"
#include "text/calls/model_format.h"
#include "text/chat_encode.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr int kMaxToolRounds = 50;  // answers with calls in one turn: a model may call for ever

struct ChatOptions {
  ModelOptions model;
  GenerateOptions generate;
  std::string system;
  int seed = -1;
  std::string tools, tool_parser;
  bool run_tools = false;
  int tool_timeout_s = 30;
};

RunnerOptions runner_with_drafts(ModelOptions& model) {
  RunnerOptions runner = runner_options(model);
  make_room_for_drafts(model, runner);
  return runner;
}

std::optional<ToolFile> read_tools(const ChatOptions& o) {
  if (!o.tools.empty()) return read_tool_file(o.tools);
  if (o.run_tools) throw UsageError("--run-tools needs --tools FILE");
  return std::nullopt;
}

class Chat {
 public:
  explicit Chat(ChatOptions& options)
      : options_(options), model_(open_model(options.model, runner_options_)) {
    options.generate.speculate = options.model.speculate;
    options.generate.draft = draft_;
    if (!model_.chat) {
      fmt::print(stderr, "ingot: this model has no chat template; using ChatML\n");
      model_.chat = ChatTemplate::chatml_default();
    }
    options.generate.constraint = grammar_.over(model_);
    use_model_defaults(*options.generate.command, model_.checkpoint->generation(), options.generate.sampling);
    if (tools_) prepare_tools();
    engine_ = start_engine(model_, options.model);
    reset();
  }

  void loop() {
    if (stdout_is_terminal()) fmt::print("{}. /help lists the commands, Ctrl-D leaves.\n", greeting());
    while (const std::optional<std::string> line = reader_.read("> ")) {
      if (line->empty()) continue;
      if (line->front() == '/') {
        if (!command(*line)) return;
      } else {
        answer(*line);
      }
      std::fflush(stdout);
    }
    if (stdout_is_terminal()) fmt::print("\n");
  }

 private:
  std::string greeting() const {
    const std::string& name = model_.runner->config().name;
    return fmt::format("{}, context {} tokens", name.empty() ? "model" : printable(name), model_.runner->info().n_ctx);
  }

  void reset() {
    messages_ = JsonValue::array();
    if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }

  void prepare_tools() {
    format_ = options_.tool_parser.empty() ? &call_format_of_model(model_.chat->source())
                                           : find_call_format(options_.tool_parser);
    markers_ = marker_tokens(*format_, *model_.tokenizer);
    options_.generate.shown_special = markers_;
    const ToolConsent unasked = options_.run_tools ? ToolConsent::kAll : ToolConsent::kNone;
    const bool asks = reader_.is_interactive() && !options_.run_tools;
    runner_.emplace(*tools_, reader_, asks ? ToolConsent::kAsk : unasked,
                    CommandLimits{.time = std::chrono::seconds(options_.tool_timeout_s)});
  }

  // A turn that fails leaves the conversation as it was before.
  void answer(const std::string& text) {
    JsonValue messages = messages_;
    messages.push_back({{"role", "user"}, {"content", text}});
    try {
      for (int round = 1; answer_once(messages); ++round) {
        if (round < kMaxToolRounds) continue;
        fmt::print(stderr, "ingot: the model called tools {} times in this turn: say something to go on\n", round);
        break;
      }
      if (stdout_is_terminal()) fmt::print("\n");
      ++n_turns_;
      messages_ = std::move(messages);
    } catch (const Error& error) {
      std::fflush(stdout);
      fmt::print(stderr, "ingot: {}; /reset starts afresh\n", error.what());
    }
  }

  // Appends the model's next message, and the results of its calls. Returns whether the model is to go on with them.
  bool answer_once(JsonValue& messages) {
    const std::vector<int32_t> prompt = encode_chat(*model_.tokenizer, *model_.chat, messages,
                                                    tools_ ? tools_->shown : JsonValue(), JsonValue::object());
    if (tools_) return answer_with_tools(prompt, messages);
    const Generation g = generate_into(prompt, [](std::string_view piece) {
      fmt::print("{}", piece);
      std::fflush(stdout);
    });
    fmt::print("{}\n", end_mark(g));
    messages.push_back({{"role", "assistant"}, {"content", g.text}});
    return false;
  }

  bool answer_with_tools(const std::vector<int32_t>& prompt, JsonValue& messages) {
    const std::string end = model_.tokenizer->decode(std::span(prompt).last(std::min<size_t>(prompt.size(), 16)));
    ChatAnswer answer(*format_, tools_->shown, opens_reasoning(*format_, end), ++n_answers_);
    const Generation g = generate_into(prompt, [&](std::string_view piece) { answer.feed(piece); });
    answer.finish();
    if (g.finish != "stop") fmt::print("{}\n", end_mark(g));
    messages.push_back(answer.message());
    bool goes_on = !answer.calls().empty(), skips = g.finish != "stop";
    for (const ToolCall& call : answer.calls()) {
      const ToolResult result = skips ? ToolResult{"The call was not run.", true, true} : runner_->run(call);
      goes_on = goes_on && !result.ends_turn;
      skips = result.skips_rest;
      messages.push_back({{"role", "tool"}, {"tool_call_id", call.id}, {"name", call.name}, {"content", result.text}});
    }
    return goes_on;
  }

  Generation generate_into(const std::vector<int32_t>& prompt, const std::function<void(std::string_view)>& on_text) {
    Generation g = generate(*engine_, *model_.tokenizer, prompt, options_.generate, on_text);
    last_ = g.usage;
    return g;
  }

  static std::string end_mark(const Generation& g) { return g.finish == "stop" ? "" : fmt::format(" [{}]", g.finish); }

  // False to leave.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit" || name == "/bye") return false;
    if (name == "/reset") {
      reset();
      fmt::print("The conversation starts afresh.\n");
    } else if (name == "/system") {
      options_.system = rest;
      reset();
      fmt::print("{}; the conversation starts afresh.\n", rest.empty() ? "No system prompt" : "System prompt set");
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/stats") {
      stats();
    } else {
      if (name != "/help") fmt::print("There is no command {}.\n", printable(name));
      fmt::print(
          "/help           this list\n/reset          forget the conversation\n/system [TEXT]  set or clear the system "
          "prompt\n"
          "/save FILE      write the conversation as JSON messages\n/stats          speed of the last answer, context "
          "used\n"
          "/quit           leave (also Ctrl-D); Ctrl-C stops an answer\n");
    }
    return true;
  }

  void save(const std::string& path) {
    if (path.empty()) {
      fmt::print("Where to? /save FILE\n");
      return;
    }
    const std::string text = messages_.dump(2, ' ', false, JsonValue::error_handler_t::replace) + "\n";
    try {
      write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      fmt::print("{} messages written to {}.\n", messages_.size(), printable(path));
    } catch (const Error& error) {
      fmt::print(stderr, "ingot: {}\n", error.what());
    }
  }

  void stats() {
    if (n_turns_ == 0) {
      fmt::print("No answer yet.\n");
      return;
    }
    fmt::print("{} turns; context {} of {} tokens; {}\n", n_turns_, last_.prompt_tokens + last_.output_tokens,
               model_.runner->info().n_ctx, speed_line(last_));
  }

  ChatOptions& options_;
  // Before the model is loaded: these may complain.
  const std::optional<ToolFile> tools_ = read_tools(options_);
  AnswerGrammar grammar_{options_.generate.grammar};
  const RunnerOptions runner_options_ = runner_with_drafts(options_.model);
  const std::shared_ptr<DraftModel> draft_ = load_draft(open_draft_file(options_.model), runner_options_);
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  LineReader reader_;
  const CallFormat* format_ = nullptr;  // how the model writes calls
  std::vector<int32_t> markers_;        // of the format
  std::optional<ToolRunner> runner_;
  uint64_t n_answers_ = 0;
  JsonValue messages_;
  Usage last_;
  int n_turns_ = 0;
};

void add_tool_options(CLI::App& command, ChatOptions& o) {
  command
      .add_option("--tools", o.tools,
                  "JSON file of tools that the model may call: OpenAI's shape, and beside each function the command "
                  "that a call runs, as a list of words; each call is shown and you are asked")
      ->check(CLI::ExistingFile);
  command.add_flag("--run-tools", o.run_tools,
                   "run each call without a question; without it, calls are shown but not run where no terminal is");
  command.add_option("--tool-timeout", o.tool_timeout_s, "seconds after which a call's command is killed")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  const std::vector<std::string_view> formats = call_format_names();
  command.add_option("--tool-parser", o.tool_parser, "how the model writes calls, where its template does not tell")
      ->check(CLI::IsMember(std::vector<std::string>(formats.begin(), formats.end())));
}

constexpr const char* kFooter =
    "Examples:\n"
    "  ingot chat\n"
    "  ingot chat model.gguf --system \"You answer in one sentence.\" --temp 0.5\n"
    "  ingot chat model.gguf --tools tools.json     with this in tools.json:\n"
    "    [{\"type\": \"function\", \"command\": [\"python3\", \"weather.py\"],\n"
    "      \"function\": {\"name\": \"get_weather\", \"description\": \"The weather of a city\",\n"
    "                   \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]\n"
    "  The command gets the arguments as JSON on its standard input. What it writes is the result.\n"
    "  echo \"What is the weather in Oslo?\" | ingot chat model.gguf --tools tools.json --run-tools";

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model");
  add_model_argument(*command, o->model);
  command->add_option("--system", o->system, "system prompt");
  add_tool_options(*command, *o);
  add_generate_options(*command, o->generate, o->seed);
  add_speculate_option(*command, o->model);
  add_runner_options(*command, o->model);
  add_checkpoint_option(*command, o->model);
  command->footer(kFooter);
  command->callback([o] {
    finish_sampling(o->generate.sampling, o->seed);
    Chat(*o).loop();
  });
}

}  // namespace ingot
