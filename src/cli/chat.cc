// ingot chat: a conversation, turn by turn, through the model's own template.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/generate.h"
#include "cli/line_reader.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "text/chat_encode.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

struct ChatOptions {
  ModelOptions model;
  GenerateOptions generate;
  std::string system;
  int seed = -1;
};

class Chat {
 public:
  explicit Chat(ChatOptions& options)
      : options_(options), model_(open_model(options.model, runner_options(options.model))) {
    if (!model_.chat) {
      fmt::print(stderr, "ingot: this model has no chat template; using ChatML\n");
      model_.chat = ChatTemplate::chatml_default();
    }
    options.generate.constraint = grammar_.over(model_);
    use_model_defaults(*options.generate.verb, model_.checkpoint->generation(), options.generate.sampling);
    engine_ = start_engine(model_, options.model);
    reset();
  }

  void loop() {
    LineReader reader;
    if (stdout_is_terminal()) fmt::print("{}. /help lists the commands, Ctrl-D leaves.\n", greeting());
    while (const std::optional<std::string> line = reader.read("> ")) {
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
    messages_ = Json::array();
    if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }

  // A turn that fails leaves the conversation as it was before.
  void answer(const std::string& text) {
    Json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", text}});
    try {
      const std::vector<int32_t> prompt =
          encode_chat(*model_.tokenizer, *model_.chat, messages, nullptr, Json::object());
      const Generation g = generate(*engine_, *model_.tokenizer, prompt, options_.generate, [](std::string_view piece) {
        fmt::print("{}", piece);
        std::fflush(stdout);
      });
      fmt::print("{}\n{}", g.finish == "stop" ? "" : fmt::format(" [{}]", g.finish), stdout_is_terminal() ? "\n" : "");
      last_ = g.usage;
      ++n_turns_;
      messages.push_back({{"role", "assistant"}, {"content", g.text}});
      messages_ = std::move(messages);
    } catch (const Error& error) {
      std::fflush(stdout);
      fmt::print(stderr, "ingot: {}; /reset starts afresh\n", error.what());
    }
  }

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
    const std::string text = messages_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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
  AnswerGrammar grammar_{options_.generate.grammar};  // first: its complaints come before a model is loaded
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  Json messages_;
  Usage last_;
  int n_turns_ = 0;
};

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model");
  add_model_argument(*verb, o->model);
  verb->add_option("--system", o->system, "system prompt");
  add_generate_options(*verb, o->generate, o->seed);
  add_runner_options(*verb, o->model);
  add_checkpoint_option(*verb, o->model);
  verb->footer("Examples:\n  ingot chat\n  ingot chat model.gguf --system \"You answer in one sentence.\" --temp 0.5");
  verb->callback([o] {
    finish_sampling(o->generate.sampling, o->seed);
    Chat(*o).loop();
  });
}

}  // namespace ingot
