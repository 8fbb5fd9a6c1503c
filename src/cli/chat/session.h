// A talk with a loaded model: questions, answers, tool calls and their results. `ingot chat` reads the user's input.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/chat/generate.h"
#include "cli/chat/images.h"
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
  // Replaces the last question, which must exist, and answers the new question with the images of the old one. A failed
  // turn changes nothing.
  void answer_instead(const std::string& question);

  // Adds an image file to the next question.
  void add_image(const std::string& path);
  bool reads_images() const { return images_.has_value(); }
  size_t n_waiting_images() const { return waiting_.size(); }
  void drop_waiting_images() { waiting_.clear(); }

  TalkPrompt prompt_of(const nlohmann::ordered_json& messages);
  const LoadedModel& model() const { return model_; }
  const Usage& last_usage() const { return last_; }  // of the last answer
  int last_image_tokens() const { return n_image_tokens_; }  // part of its prompt
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
  std::optional<ImageCache> images_;   // of a model that reads images
  std::vector<ImageFile> waiting_;     // images of the next question
  std::unique_ptr<AnswerModel> answers_;
  std::unique_ptr<Engine> engine_;
  std::optional<ToolRunner> runner_;
  uint64_t n_answers_ = 0;
  Usage last_;
  int n_image_tokens_ = 0;
};

}  // namespace ingot
