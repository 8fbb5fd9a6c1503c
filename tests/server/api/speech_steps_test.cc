// A recording is answered window by window, so that others can have their turns.
#include <gtest/gtest.h>

#include "model/speech/speech_goldens.h"
#include "server/rig.h"

namespace ingot {
namespace {

// A WAV file of floats.
std::string wav_of(const std::vector<float>& samples) {
  const auto number = [](uint32_t n, int n_bytes) {
    std::string bytes;
    for (int i = 0; i < n_bytes; ++i) bytes += static_cast<char>(n >> 8 * i & 255);
    return bytes;
  };
  const std::string data(reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(float));
  return "RIFF" + number(static_cast<uint32_t>(36 + data.size()), 4) + "WAVEfmt " + number(16, 4) + number(3, 2) +
         number(1, 2) + number(kSpeechRate, 4) + number(4 * kSpeechRate, 4) + number(4, 2) + number(32, 2) + "data" +
         number(static_cast<uint32_t>(data.size()), 4) + data;
}

TEST(SpeechSteps, EachStepIsAWindow) {
  ServedModelParts parts{.id = "speech", .chat = ChatTemplate::chatml_default()};
  parts.speech = std::make_unique<SpeechModel>(open_speech_files(kSpeechData.string()),
                                               BackendOptions{.device = "cpu", .n_threads = 1});
  const auto model = std::make_shared<ServedModel>(std::move(parts));
  constexpr int kWindows = 8;
  const auto n_window = static_cast<size_t>(model->speech().config().n_samples());
  const std::string file = wav_of(golden_sound(kWindows * n_window));
  Workers workers(1);
  Pacer pacer(workers, std::chrono::milliseconds(0));
  ModelPool pool({}, {});
  const HttpRequest request{.method = "POST", .path = "/v1/audio/transcriptions"};
  const JsonValue body = {{"file", "a.wav"}, {"language", "de"}};
  const MediaPolicy images;
  const auto recorder = std::make_shared<Recorder>();
  {
    const AnswerSteps next =
        answer_transcriptions({request, body, model, recorder, pacer, false, pool, "speech", images, file});
    EXPECT_EQ(model->n_taken(), 1);
    int n_steps = 0;
    while (next()) ++n_steps;
    EXPECT_GE(n_steps, kWindows);  // more, because the text of a window may end before it
    EXPECT_EQ(model->n_taken(), 1);
  }
  EXPECT_EQ(model->n_taken(), 0);
  ASSERT_TRUE(recorder->wait());
  EXPECT_EQ(recorder->status(), 200);
  const auto audio = open_audio(std::as_bytes(std::span(file)), {});
  EXPECT_EQ(recorder->json()["text"], model->speech().transcribe(*audio, {.language = "de"}).text());
}

}  // namespace
}  // namespace ingot
