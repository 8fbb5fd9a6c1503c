// /v1/audio/transcriptions and /v1/audio/translations of OpenAI's API, and /inference of whisper.cpp's server: what a
// recording says, whole or window by window. The handlers run on workers of their own, because a recording takes
// seconds, and recordings take turns after each window, so that a long one does not hold up a short one. Needs a speech
// model.
#include <fmt/format.h>

#include <chrono>

#include "base/device_lost.h"
#include "base/error.h"
#include "base/json.h"
#include "server/api/api.h"
#include "server/fields/request_fields.h"
#include "server/fields/speech_fields.h"

namespace ingot {
namespace {

using SpeechClock = std::chrono::steady_clock;

// An answer in pieces: events of OpenAI's API.
class SpeechEvents {
 public:
  explicit SpeechEvents(Responder& responder) : responder_(responder) {
    responder_.stream({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
  }
  void add(std::span<const SpeechSegment> segments) {
    for (const SpeechSegment& segment : segments) {
      std::string delta = segment.text;
      if (is_first_) delta.erase(0, delta.find_first_not_of(' ') == delta.npos ? 0 : delta.find_first_not_of(' '));
      is_first_ = false;
      write({{"type", "transcript.text.delta"}, {"delta", delta}});
    }
  }
  void finish(const Transcript& transcript) {
    write({{"type", "transcript.text.done"}, {"text", transcript.text()}});
    responder_.end("data: [DONE]\n\n");
  }
  void fail(const ApiError& error) { responder_.fail(error_response(error), "data: " + error_object(error) + "\n\n"); }

 private:
  void write(const JsonValue& event) { responder_.write("data: " + dump_json(event) + "\n\n"); }
  Responder& responder_;
  bool is_first_ = true;
};

HttpResponse response_of(const Transcript& transcript, const std::string& format) {
  if (format == "json") return {.body = dump_json({{"text", transcript.text()}})};
  if (format == "verbose_json") return {.body = render(transcript, TranscriptFormat::kJson)};
  HttpResponse response{.content_type = "text/plain; charset=utf-8"};
  response.body = format == "text"
                      ? transcript.text() + "\n"
                      : render(transcript, format == "srt" ? TranscriptFormat::kSrt : TranscriptFormat::kVtt);
  return response;
}

// A recording that is transcribed and answered step by step.
class SpeechAnswer {
 public:
  SpeechAnswer(const ApiCall& call, bool translates)
      : call_(call), request_(read_speech_request(call_, translates)), ticket_(admit(*call_.model, 1)) {
    if (call_.model->is_stopping()) throw ApiError(503, "the server is shutting down");
  }
  SpeechAnswer(const SpeechAnswer&) = delete;
  SpeechAnswer& operator=(const SpeechAnswer&) = delete;

  // False after the answer. Throws ApiError if nothing has been sent.
  bool step() {
    try {
      if (!transcription_) begin();
      if (transcription_->step()) return true;
      finish();
    } catch (const ApiError& error) {
      fail(error);
    } catch (const DeviceLost& error) {
      call_.model->lose_device(error.what());
      fail(ApiError(500, printable(error.what())));
    } catch (const Error& error) {
      fail(ApiError(400, printable(error.what(), 1024), "file"));
    }
    return false;
  }

 private:
  void begin() {
    audio_ = open_audio(std::as_bytes(std::span(call_.file)), call_.model->audio_limits());
    call_.responder->on_gone([is_gone = is_gone_] { *is_gone = true; });
    if (request_.streams) events_.emplace(*call_.responder);
    transcription_.emplace(call_.model->speech().begin(
        *audio_, request_.options,
        {.on_window = [this](std::span<const SpeechSegment> added, double, std::optional<double>) {
          if (events_) events_->add(added);
          for (const SpeechSegment& segment : added) n_tokens_ += static_cast<int>(segment.tokens.size());
          if (call_.model->is_stopping()) throw ApiError(503, "the server is shutting down");
          return !*is_gone_;
        }}));
  }

  void finish() {
    const Transcript transcript = transcription_->finish();
    count(*is_gone_ ? RequestEnd::kAbort : RequestEnd::kStop, n_tokens_);
    call_.responder->note("audio_seconds", fmt::format("{:.3f}", transcript.seconds));
    if (events_) return events_->finish(transcript);
    call_.responder->respond(response_of(transcript, request_.format));
  }

  void fail(const ApiError& error) {
    count(RequestEnd::kError, 0);
    if (!events_) throw error;
    events_->fail(error);
  }

  void count(RequestEnd end, int n_tokens) {
    call_.model->metrics.on_end(
        end, {.output_tokens = n_tokens, .e2e_s = std::chrono::duration<double>(SpeechClock::now() - start_).count()});
  }

  const ApiCall call_;
  const SpeechRequest request_;
  const ServedModel::Ticket ticket_;
  const SpeechClock::time_point start_ = SpeechClock::now();
  const std::shared_ptr<std::atomic<bool>> is_gone_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<SpeechEvents> events_;
  std::unique_ptr<AudioStream> audio_;
  std::optional<SpeechModel::Transcription> transcription_;
  int n_tokens_ = 0;
};

AnswerSteps steps_of(const ApiCall& call, bool translates) {
  return [answer = std::make_shared<SpeechAnswer>(call, translates)] { return answer->step(); };
}

}  // namespace

AnswerSteps answer_transcriptions(const ApiCall& call) { return steps_of(call, false); }
AnswerSteps answer_translations(const ApiCall& call) { return steps_of(call, true); }

}  // namespace ingot
