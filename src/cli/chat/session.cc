#include "cli/chat/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "cli/chat/answer.h"
#include "cli/terminal/terminal.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr int kMaxToolRounds = 50;  // answers with calls in one turn; a model may call tools endlessly

std::optional<ToolFile> read_tools(const ChatOptions& o) {
  if (!o.tools.empty()) return read_tool_file(o.tools);
  if (o.run_tools) throw UsageError("--run-tools needs --tools FILE");
  return std::nullopt;
}

std::string end_mark(const Generation& g) { return g.finish == "stop" ? "" : fmt::format(" [{}]", g.finish); }

}  // namespace

ChatSession::ChatSession(ChatOptions& options, LineReader& reader)
    : talk(options.system),
      options_(options),
      reader_(reader),
      given_(options.generate.sampling),
      tools_(read_tools(options)),
      wanted_(wanted_grammar(options.generate.grammar)) {
  load();
}

void ChatSession::load() {
  RunnerOptions runner = runner_options(options_.model);
  const auto draft = open_draft_file(options_.model);
  make_room_for_drafts(options_.model, draft, runner);
  options_.generate.speculate = options_.model.speculate;
  options_.generate.draft = load_draft(draft, runner, options_.model.draft_device);
  media_.reset();
  model_ = open_model(options_.model, runner);
  if (!model_.chat) {
    tell("ingot: this model has no chat template; using ChatML\n");
    model_.chat = ChatTemplate::chatml_default();
    place_media(model_, *model_.chat);
  }
  open_media_cache(model_, options_.model.images, media_);
  options_.generate.sampling = given_;
  const CallFormat* format = options_.tool_parser.empty() ? nullptr : find_call_format(options_.tool_parser);
  answers_ = std::make_unique<AnswerModel>(*model_.tokenizer, *model_.chat, model_.runner->info().n_vocab,
                                           AnswerModel::Options{.format = format});
  use_model_defaults(*options_.generate.command, model_.checkpoint->generation(), options_.generate.sampling);
  if (tools_) prepare_tools();
  engine_ = start_engine(model_, options_.model);
}

void ChatSession::use_model(const std::string& path) {
  const std::string old = std::exchange(options_.model.path, path);
  try {
    open_model_file(options_.model)->config();  // throws here for a wrong name, before the old model is unloaded
    engine_.reset();                            // memory holds one model
    options_.generate.draft.reset();
    answers_.reset();
    media_.reset();
    model_ = {};
    load();
  } catch (const Error&) {
    options_.model.path = old;
    if (!engine_) load();
    throw;
  }
}

void ChatSession::prepare_tools() {
  const ToolConsent unasked = options_.run_tools ? ToolConsent::kAll : ToolConsent::kNone;
  const bool asks = reader_.is_interactive() && !options_.run_tools;
  runner_.emplace(*tools_, reader_, asks ? ToolConsent::kAsk : unasked,
                  CommandLimits{.time = std::chrono::seconds(options_.tool_timeout_s)});
}

std::string ChatSession::title() const {
  const std::string& name = model_.runner->config().name;
  return fmt::format("{}, context {} tokens", name.empty() ? "model" : printable(name), model_.runner->info().n_ctx);
}

bool ChatSession::answer(const std::string& question) {
  JsonValue messages = talk.messages;
  messages.push_back(user_message(question, waiting_));
  try {
    for (int round = 1; answer_once(messages); ++round) {
      if (round < kMaxToolRounds) continue;
      tell("ingot: the model called tools {} times in this turn: send a message to continue\n", round);
      break;
    }
    if (stdout_is_terminal()) fmt::print("\n");
    talk.messages = std::move(messages);
    waiting_.clear();
    return true;
  } catch (const Error& error) {
    std::fflush(stdout);
    tell("ingot: {}; /reset starts a new conversation\n", error.what());
    return false;
  }
}

void ChatSession::answer_instead(const std::string& question) {
  JsonValue before = talk.messages;
  for (const JsonValue& message : before)
    if (message["role"] == "user") waiting_ = media_of_message(message);  // of the last one
  talk.undo();
  ++options_.generate.sampling.seed;  // the same seed would give the same answer to the same question
  if (answer(question)) return;
  talk.messages = std::move(before);
  waiting_.clear();
}

void ChatSession::add_file(const std::string& path, MediaKind kind) {
  need_sense(media_ ? &*media_ : nullptr, kind);
  std::vector<MediaFile> one = {read_media_file(path, kind, media_->limits())};
  media_->prepare(one);  // tells now if the file is no image or recording
  waiting_.push_back(std::move(one[0]));
}

TalkPrompt ChatSession::prompt_of(const JsonValue& messages) {
  return encode_talk(model_, media_ ? &*media_ : nullptr, messages, tools_ ? tools_->shown : JsonValue());
}

AnswerForm ChatSession::form() {
  AnswerForm form{.id_seed = ++n_answers_};
  if (!tools_) return form;
  form.tools = tools_->shown;
  for (const JsonValue& tool : tools_->shown) {
    const JsonValue& function = tool["function"];
    form.callable.push_back({.name = function["name"], .parameters = function.value("parameters", JsonValue())});
  }
  return form;
}

// Appends the model's next message and the results of its calls. Returns true if the model must continue with the
// results.
bool ChatSession::answer_once(JsonValue& messages) {
  TalkPrompt prompt = prompt_of(messages);
  Question question = make_question(*answers_, prompt.tokens, true, form(), options_.generate, wanted_);
  question.embeddings = encode_talk_media(model_, media_ ? &*media_ : nullptr, prompt);
  media_of_last_ = media_tokens_text(prompt);
  ChatAnswer answer;
  const Generation g = generate(*engine_, *model_.tokenizer, question, options_.generate,
                                [&](const AnswerEvents& events) { answer.add(events); });
  last_ = g.usage;
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

}  // namespace ingot
