// ingot run: answers one prompt.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "cli/chat/answer.h"
#include "cli/chat/generate.h"
#include "cli/chat/media.h"
#include "cli/options/built_in.h"
#include "cli/options/commands.h"
#include "cli/terminal/terminal.h"
#include "text/chat_encode.h"
#include "text/json_value.h"

namespace ingot {
namespace {

struct RunOptions {
  ModelOptions model;
  PromptOptions prompt;
  GenerateOptions generate;
  std::string system;
  std::vector<std::string> images, recordings;  // files
  int seed = -1;
  bool raw = false, json = false;
};

TalkPrompt encode_prompt(const LoadedModel& model, const RunOptions& o, const std::string& text, bool is_chat,
                         MediaCache* media) {
  if (!is_chat && !(o.images.empty() && o.recordings.empty()))
    throw UsageError("{} needs a chat template: leave out --raw, or give --chat-template",
                     o.images.empty() ? "--audio" : "--image");
  if (!is_chat) return {model.tokenizer->encode(text), {}};
  JsonValue messages = JsonValue::array();
  if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
  std::vector<MediaFile> files;
  for (const std::string& path : o.images)
    files.push_back(read_media_file(path, MediaKind::kImage, o.model.images.limits));
  for (const std::string& path : o.recordings)
    files.push_back(read_media_file(path, MediaKind::kSound, o.model.images.limits));
  messages.push_back(user_message(text, files));
  return encode_talk(model, media, messages, nullptr);
}

// Empty for the padding rows of an embedding.
std::string_view token_bytes_of(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.n_vocab() ? tokenizer.token_bytes(id) : "";
}

JsonValue token_json(const Tokenizer& tokenizer, const Sampled& sampled) {
  JsonValue json = {
      {"id", sampled.token}, {"text", token_bytes_of(tokenizer, sampled.token)}, {"logprob", sampled.logprob}};
  for (const TokenLogprob& top : sampled.top)
    json["top"].push_back(
        {{"id", top.token}, {"text", token_bytes_of(tokenizer, top.token)}, {"logprob", top.logprob}});
  return json;
}

void print_json(const LoadedModel& model, const RunOptions& o, const Generation& g, const ChatAnswer& answer,
                const TalkPrompt& prompt) {
  const Usage& u = g.usage;
  JsonValue json = {{"text", answer.content()},
               {"finish_reason", g.finish},
               {"prompt_tokens", u.prompt_tokens},
               {"cached_tokens", u.cached_tokens},
               {"output_tokens", u.output_tokens},
               {"prefill_ms", u.prefill_ms},
               {"decode_ms", u.decode_ms},
               {"prefill_tok_s", prefill_rate(u)},
               {"decode_tok_s", decode_rate(u)},
               {"draft_tokens", u.draft_tokens},
               {"accepted_tokens", u.accepted_tokens},
               {"sampling_steps", u.sampling_steps},
               {"draft_gain", u.draft_gain},
               {"load_ms", model.load_ms},
               {"seed", o.generate.sampling.seed}};
  if (const int n = media_tokens(prompt.media, MediaKind::kImage); n > 0) json["image_tokens"] = n;
  if (const int n = media_tokens(prompt.media, MediaKind::kSound); n > 0) json["audio_tokens"] = n;
  if (!answer.reasoning().empty()) json["reasoning"] = answer.reasoning();
  json["token_ids"] = JsonValue::array();
  for (const Sampled& s : g.tokens) json["token_ids"].push_back(s.token);
  if (o.generate.sampling.n_logprobs >= 0) {
    for (const Sampled& s : g.tokens) json["logprobs"].push_back(token_json(*model.tokenizer, s));
  }
  fmt::print("{}\n", json.dump(-1, ' ', false, JsonValue::error_handler_t::replace));
}

int run(RunOptions& o) {
  if (!o.prompt.has_text && o.prompt.file.empty() && o.model.path.find(' ') != std::string::npos &&
      !std::filesystem::exists(o.model.path))
    throw UsageError("'{}' is not a model: give the question after the model, or with -p", printable(o.model.path, 64));
  if (o.generate.sampling.n_logprobs >= 0 && !o.json) throw UsageError("--logprobs needs --json, which prints them");
  finish_sampling(o.generate.sampling, o.seed);
  if (!o.images.empty() && o.model.path.empty()) o.model.path = kVisionDemo;
  const std::optional<WantedGrammar> wanted = wanted_grammar(o.generate.grammar);
  RunnerOptions runner = runner_options(o.model);
  o.generate.speculate = o.model.speculate;
  const auto draft = open_draft_file(o.model);
  make_room_for_drafts(o.model, draft, runner);
  make_room_for_beams(o.generate, runner);
  // Standard input is either the prompt or a file.
  const bool has_text = o.prompt.has_text || !o.prompt.file.empty();
  const auto n_inputs = std::ranges::count(o.images, "-") + std::ranges::count(o.recordings, "-");
  if (n_inputs + (o.prompt.file == "-") > 1)
    throw UsageError("standard input is either the prompt, an image or a recording");
  const std::string text = is_follower() || (n_inputs > 0 && !has_text) ? "" : read_prompt(o.prompt, "run");
  if (!is_follower()) o.generate.draft = load_draft(draft, runner, o.model.draft_device);
  LoadedModel model = open_model(o.model, runner);
  use_model_defaults(*o.generate.command, model.checkpoint->generation(), o.generate.sampling);
  const bool is_chat = !o.raw && model.chat.has_value();
  const ChatTemplate no_chat = ChatTemplate::chatml_default();
  AnswerModel answers(*model.tokenizer, is_chat ? *model.chat : no_chat, model.runner->info().n_vocab, {});
  std::optional<MediaCache> media;
  open_media_cache(model, o.model.images, media);
  TalkPrompt prompt = encode_prompt(model, o, text, is_chat, media ? &*media : nullptr);
  Question question = make_question(answers, prompt.tokens, is_chat, {}, o.generate, wanted);
  question.embeddings = encode_talk_media(model, media ? &*media : nullptr, prompt);
  const std::unique_ptr<Engine> engine = start_engine(model, o.model);
  ChatAnswer answer(!o.json);
  const Generation g = generate(*engine, *model.tokenizer, question, o.generate,
                                [&](const AnswerEvents& events) { answer.add(events); });
  if (o.json) {
    print_json(model, o, g, answer, prompt);
  } else {
    answer.finish();
    const std::string seen = media ? media_line(prompt, {}, media->figures()) : "";
    tell("{}\n", faint((seen.empty() ? "" : seen + "; ") + speed_line(g.usage) +
                       (g.finish == "interrupted" ? " (interrupted)" : "")));
  }
  return g.finish == "interrupted" ? 130 : 0;
}

}  // namespace

void add_run(CLI::App& app) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Generate an answer to a prompt");
  add_model_argument(*command, o->model);
  command->add_option("QUESTION", o->prompt.text, "text of the prompt, as with -p")->each([o](const std::string&) {
    o->prompt.has_text = true;
  });
  add_prompt_options(*command, o->prompt);
  command->get_option("QUESTION")->excludes("--prompt");
  command
      ->add_option("-i,--image", o->images,
                   "image for the model: JPEG, PNG, WebP or GIF (repeatable); - for standard input")
      ->allow_extra_args(false);
  command
      ->add_option("--audio", o->recordings,
                   "recording for a model that hears, such as Voxtral: WAV, FLAC, MP3 and more (repeatable); - for "
                   "standard input")
      ->allow_extra_args(false);
  command->add_option("--system", o->system, "system prompt, if the model's template supports one");
  command->add_flag("--raw", o->raw, "continue the prompt as plain text, without the model's chat template");
  command->add_flag("--json", o->json, "print one JSON object at the end instead of streaming text");
  command
      ->add_option("--logprobs", o->generate.sampling.n_logprobs,
                   "print log-probabilities, and this many alternatives for each token (with --json); -1: none")
      ->check(CLI::Range(-1, 20))
      ->capture_default_str();
  add_generate_options(*command, o->generate, o->seed);
  add_beam_options(*command, o->generate.beams);
  add_template_options(*command, o->model);
  add_image_options(*command, o->model.images);
  add_speculate_option(*command, o->model);
  add_runner_options(*command, o->model);
  command->footer(
      "Examples:\n"
      "  ingot run -p \"Tell me a story about a fox.\"\n"
      "  ingot run model.gguf \"What is the capital of France?\"\n"
      "  ingot run model.gguf -p \"Summarize this:\" -f article.txt -n 200 --temp 0\n"
      "  ingot run -i shapes.png -p \"What do you see?\"    the built-in model demo-vision\n"
      "  ingot run model.gguf -i cat.jpg -p \"What is this?\"\n"
      "  ingot run ORG/REPO:Q4_K_M -p \"Hello\"    downloads the model from the Hugging Face Hub, once\n"
      "  ingot run -p \"Alice is 30.\" --json-schema '{\"type\": \"object\", \"required\": [\"name\"]}'\n"
      "  echo \"Once upon a time\" | ingot run --raw -n 100");
  command->callback([o] {
    const int code = run(*o);
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace ingot
