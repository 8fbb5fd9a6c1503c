#include "cli/commands/serve_speech.h"

#include "base/system.h"
#include "model/speech/speech_files.h"

namespace ingot {
namespace {

std::shared_ptr<ServedModel> load_speech(const SpeechServing& s) {
  SpeechFiles files = open_speech_files(s.path, s.quantize);
  if (s.check_tensors) files.weights = checked_source(std::move(files.weights));
  ServedModelParts parts{.id = s.id,
                         .aliases = s.aliases,
                         .chat = ChatTemplate::chatml_default(),
                         .audio_limits = s.limits,
                         .facts = {.n_bytes = static_cast<int64_t>(files.weights->total_bytes()),
                                   .n_ctx_train = files.config.n_ctx,
                                   .dim = files.config.dim,
                                   .architecture = "whisper",
                                   .container = files.container},
                         .queue_limit = s.queue_limit};
  constexpr int kWindowsAtOnce = 4;  // for requests with a chunking_strategy
  parts.speech = std::make_unique<SpeechModel>(std::move(files), s.backend, SpeechLimits{.n_parallel = kWindowsAtOnce});
  parts.facts.taken_bytes = parts.speech->allocated_bytes();
  parts.facts.devices.push_back({s.backend.device, parts.facts.taken_bytes});
  auto model = std::make_shared<ServedModel>(std::move(parts));
  model->start();
  fmt::print(stderr, "ingot: {} is loaded: it transcribes recordings at /v1/audio/transcriptions; {} of memory taken\n",
             model->id(), human_bytes(model->facts().taken_bytes));
  return model;
}

}  // namespace

ModelSource speech_source(const SpeechServing& serving) {
  return {.id = serving.id,
          .aliases = serving.aliases,
          .load = [serving] { return load_speech(serving); },
          .pinned = serving.pinned,
          .hears = true,
          .bytes = open_speech_files(serving.path).weights->total_bytes()};
}

}  // namespace ingot
