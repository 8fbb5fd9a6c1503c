// The functions for recordings of the C API, implemented with SpeechModel.
#include <string>

#include "base/threads.h"
#include "capi/capi_guard.h"
#include "model/speech/speech_model.h"
#include "model/speech/transcript_text.h"

struct ingot_speech {
  std::unique_ptr<ingot::SpeechModel> model;
};

namespace ingot {
namespace {

SpeechOptions speech_options_of(const ingot_transcribe_options& o) {
  SpeechOptions options{.translates = o.translate != 0, .word_times = o.word_times != 0};
  if (o.language != nullptr) options.language = o.language;
  if (o.prompt != nullptr) options.prompt = o.prompt;
  if (o.temperature >= 0) options.temperatures = {o.temperature};
  options.seed = o.seed;
  if (o.hotwords != nullptr) options.hotwords = o.hotwords;
  options.n_beams = o.n_beams;
  return options;
}

}  // namespace
}  // namespace ingot

using namespace ingot;

extern "C" {

void ingot_speech_options_init_sized(ingot_speech_options* options, size_t size) {
  init_options(options, size, {.n_beams = 1});
}

ingot_status ingot_speech_load(const char* path, const ingot_speech_options* given, ingot_speech** speech) {
  return guarded([&] {
    required(speech, "speech") = nullptr;
    const ingot_speech_options o = options_of(given, ingot_speech_options_init);
    const std::string name = &required(path, "path");
    check_range("n_threads", o.n_threads, 0, kMaxThreads);
    check_range("n_beams", o.n_beams, 1, kMaxBeams);
    auto result = std::make_unique<ingot_speech>();
    result->model = std::make_unique<SpeechModel>(
        open_speech_files(name, o.quantize != nullptr ? o.quantize : ""),
        BackendOptions{.device = o.device != nullptr ? o.device : "cpu", .n_threads = o.n_threads},
        SpeechLimits{.n_beams = o.n_beams});
    *speech = result.release();
    return INGOT_OK;
  });
}

void ingot_speech_free(ingot_speech* speech) {
  guarded([&] {
    delete speech;
    return INGOT_OK;
  });
}

void ingot_transcribe_options_init_sized(ingot_transcribe_options* options, size_t size) {
  init_options(options, size, {.temperature = -1, .n_beams = 1});
}

ingot_status ingot_transcribe(ingot_speech* speech, const void* bytes, size_t n_bytes,
                              const ingot_transcribe_options* given, const char** json, size_t* n) {
  return guarded([&] {
    SpeechModel& model = *required(speech, "speech").model;
    required(json, "json") = nullptr;
    required(n, "n") = 0;
    const ingot_transcribe_options o = options_of(given, ingot_transcribe_options_init);
    if (bytes == nullptr && n_bytes > 0) throw Error("bytes is NULL");
    const auto* data = static_cast<const std::byte*>(bytes);
    const auto audio = open_audio({data, n_bytes}, {});
    const Transcript transcript = model.transcribe(*audio, speech_options_of(o));
    thread_local std::string result;
    result = render(transcript, TranscriptFormat::kJson);
    *json = result.c_str(), *n = result.size();
    return INGOT_OK;
  });
}

}  // extern "C"
