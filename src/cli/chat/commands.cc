#include "cli/chat/commands.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/base64.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/terminal/console.h"
#include "cli/terminal/terminal.h"

namespace ingot {
namespace {

void print_turns(const ChatSession& session) {
  const int n = session.talk.n_questions();
  say("The talk has {} question{}.\n", n, n == 1 ? "" : "s");
}

void do_reset(ChatSession& session, LineReader&, const std::string&) {
  session.talk.reset(session.talk.system());
  say("The conversation starts afresh.\n");
}

void do_system(ChatSession& session, LineReader&, const std::string& text) {
  session.talk.reset(text);
  say("{}; the conversation starts afresh.\n", text.empty() ? "No system prompt" : "System prompt set");
}

void do_save(ChatSession& session, LineReader&, const std::string& path) {
  if (path.empty()) return say("Name a file: /save FILE\n");
  session.talk.save(path);
  say("{} messages written to {}.\n", session.talk.messages.size(), printable(path));
}

void do_load(ChatSession& session, LineReader&, const std::string& path) {
  if (path.empty()) return say("From where? /load FILE\n");
  session.talk.load(path);
  print_turns(session);
}

void do_undo(ChatSession& session, LineReader&, const std::string&) {
  const std::optional<std::string> question = session.talk.undo();
  if (!question) return say("There is no question to take back.\n");
  say("Taken back: {}\n", printable(*question, 80));
}

void do_regen(ChatSession& session, LineReader&, const std::string&) {
  const std::optional<std::string> last = session.talk.last("user");
  if (!last) return say("There is no question to answer again.\n");
  session.answer_instead(*last);
}

// On a terminal, the last question appears in the input line for editing.
void do_edit(ChatSession& session, LineReader& reader, const std::string& text) {
  const std::optional<std::string> last = session.talk.last("user");
  if (!last) return say("There is no question to edit.\n");
  std::string changed = text;
  if (changed.empty() && !reader.is_interactive()) return say("Give the new text: /edit TEXT\n");
  if (changed.empty()) {
    if (last->find('\n') != last->npos) return say("The last question has several lines: /edit TEXT\n");
    changed = read_message(reader, "edit> ", *last).value_or("");
    if (reader.interrupted() || changed.empty()) return say("The question stays as it was.\n");
  }
  session.answer_instead(changed);
}

// Uses the terminal's clipboard command (OSC 52), which also works over ssh.
void do_copy(ChatSession& session, LineReader&, const std::string&) {
  const std::optional<std::string> answer = session.talk.last("assistant");
  if (!answer) return say("There is no answer to copy.\n");
  if (!stdout_is_terminal()) return say("Only a terminal has a clipboard: use /save FILE.\n");
  fmt::print("\033]52;c;{}\aThe answer was given to the terminal's clipboard.\n", to_base64(*answer));
}

void do_model(ChatSession& session, LineReader&, const std::string& path) {
  if (!path.empty()) session.use_model(path);
  say("{}.\n", session.title());
}

void do_file(ChatSession& session, const char* command, const std::string& path, MediaKind kind) {
  if (path == "none") session.drop_waiting(kind);
  if (!path.empty() && path != "none") session.add_file(path, kind);
  const auto n = std::ranges::count(session.waiting(), kind, &MediaFile::kind);
  if (n == 0) return say("The next question has no {}: {} FILE adds one.\n", facts_of(kind).name, command);
  say("The next question has {} {}.\n", n, n == 1 ? facts_of(kind).name : facts_of(kind).names);
}

void do_image(ChatSession& session, LineReader&, const std::string& path) {
  do_file(session, "/image", path, MediaKind::kImage);
}

void do_audio(ChatSession& session, LineReader&, const std::string& path) {
  do_file(session, "/audio", path, MediaKind::kSound);
}

void do_tokens(ChatSession& session, LineReader&, const std::string& text) {
  const LoadedModel& model = session.model();
  if (!text.empty()) return say("{} tokens.\n", model.tokenizer->encode(text).size());
  const TalkPrompt prompt = session.talk.messages.empty() ? TalkPrompt() : session.prompt_of(session.talk.messages);
  say("The conversation has {} of {} tokens{}.\n", prompt.tokens.size(), model.runner->info().n_ctx,
      media_tokens_text(prompt));
}

void do_stats(ChatSession& session, LineReader&, const std::string&) {
  const Usage& last = session.last_usage();
  if (last.output_tokens == 0) return say("There is no answer yet.\n");
  say("{} turns; context {} of {} tokens{}; {}\n", session.talk.n_questions(), last.prompt_tokens + last.output_tokens,
      session.model().runner->info().n_ctx, session.last_media(), speed_line(last));
}

struct ChatCommand {
  const char *name, *argument, *help;
  void (*run)(ChatSession&, LineReader&, const std::string& argument);
};

constexpr ChatCommand kCommands[] = {
    {"/regen", "", "answer the last question again", do_regen},
    {"/edit", "[TEXT]", "change the last question and answer it", do_edit},
    {"/undo", "", "take back the last question and its answer", do_undo},
    {"/image", "[FILE]", "add an image to the next question; none: take the images back", do_image},
    {"/audio", "[FILE]", "add a recording to the next question; none: take the recordings back", do_audio},
    {"/copy", "", "copy the last answer", do_copy},
    {"/save", "FILE", "write the conversation as JSON messages", do_save},
    {"/load", "FILE", "go on with a conversation that /save wrote", do_load},
    {"/reset", "", "forget the conversation", do_reset},
    {"/system", "[TEXT]", "set or clear the system prompt", do_system},
    {"/model", "[MODEL]", "go on with another model; without a name, tell which one answers", do_model},
    {"/tokens", "[TEXT]", "count the tokens of the conversation, or of a text", do_tokens},
    {"/stats", "", "speed of the last answer, context used", do_stats},
};

void print_help() {
  say("{:<16} this list\n", "/help");
  for (const ChatCommand& c : kCommands) say("{:<16} {}\n", fmt::format("{} {}", c.name, c.argument), c.help);
  say(
      "{:<16} leave (also {}); Ctrl-C stops an answer and clears a line\n"
      "A line that ends with \\ continues. Pasted lines are one message, and so are lines between two \"\"\".\n",
      "/quit", keys_of_the_end());
}

}  // namespace

bool run_chat_command(ChatSession& session, LineReader& reader, const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space), rest = space == line.npos ? "" : line.substr(space + 1);
  if (name == "/quit" || name == "/exit" || name == "/bye") return false;
  for (const ChatCommand& c : kCommands) {
    if (name != c.name) continue;
    try {
      c.run(session, reader, rest);
    } catch (const Error& error) {
      tell("ingot: {}\n", error.what());
    }
    return true;
  }
  if (name != "/help") say("There is no command {}.\n", printable(name));
  print_help();
  return true;
}

}  // namespace ingot
