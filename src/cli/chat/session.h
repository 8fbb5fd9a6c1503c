// A talk with a loaded model: questions, answers, tool calls and their results. `ingot chat` reads the user's input.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/chat/generate.h"
#include "cli/chat/media.h"
#include "cli/chat/talk.h"
#include "cli/chat/tools.h"

namespace ingot {

struct ChatOptions {
  ModelOptions model;
  GenerateOptions generate;
  std::string system;
  int seed = -1;
  std::string tools, tool_parser;
  bool run_tools = false;
  int tool_timeout_s = 30;
  bool resume = false;
  std::string talk_file = last_talk_path();
};

class ChatSession {
 public:
  // Reads the tools and the grammar before loading the model, so errors in them are reported early.
  ChatSession(ChatOptions& options, LineReader& reader);

  // Loads another model and keeps the talk. If the model cannot be loaded, throws Error and keeps the old model.
  void use_model(const std::string& path);

  // Answers a question and runs all calls. If the turn fails, prints the reason, leaves the talk unchanged and returns
  // false.
  bool answer(const std::string& question);
  // Replaces the last question, which must exist, and answers the new question with the files of the old one. A failed
  // turn changes nothing.
  void answer_instead(const std::string& question);

  // Adds an image or a recording to the next question.
  void add_file(const std::string& path, MediaKind kind);
  const std::vector<MediaFile>& waiting() const { return waiting_; }  // files of the next question
  void drop_waiting(MediaKind kind) {
    std::erase_if(waiting_, [&](const MediaFile& f) { return f.kind == kind; });
  }

  TalkPrompt prompt_of(const nlohmann::ordered_json& messages);
  const LoadedModel& model() const { return model_; }
  const Usage& last_usage() const { return last_; }  // of the last answer
  const std::string& last_media() const { return media_of_last_; }  // media_tokens_text() of its prompt
  std::string title() const;                         // "NAME, context N tokens"

  Talk talk;

 private:
  void load();
  void prepare_tools();
  AnswerForm form();
  bool answer_once(nlohmann::ordered_json& messages);

  ChatOptions& options_;
  LineReader& reader_;
  const SamplingParams given_;  // sampling set by the flags, without the model's defaults
  const std::optional<ToolFile> tools_;
  const std::optional<WantedGrammar> wanted_;
  LoadedModel model_;
  std::optional<MediaCache> media_;  // of a model that reads images or recordings
  std::vector<MediaFile> waiting_;
  std::unique_ptr<AnswerModel> answers_;
  std::unique_ptr<Engine> engine_;
  std::optional<ToolRunner> runner_;
  uint64_t n_answers_ = 0;
  Usage last_;
  std::string media_of_last_;
};

}  // namespace ingot
