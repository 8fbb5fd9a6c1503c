// /v1/audio/transcriptions and /v1/audio/translations of OpenAI's API, and /inference of whisper.cpp's server: what a
// recording says, whole or window by window. The handlers run on workers of their own, because a recording takes
// seconds. Needs a speech model.
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

void run_speech(const ApiCall& call, bool translates) {
  const SpeechRequest request = read_speech_request(call, translates);
  ServedModel::Ticket ticket = admit(*call.model, 1);
  if (call.model->is_stopping()) throw ApiError(503, "the server is shutting down");
  const auto start = SpeechClock::now();
  const auto is_gone = std::make_shared<std::atomic<bool>>(false);
  std::optional<SpeechEvents> events;
  const auto count = [&](RequestEnd end, int n_tokens) {
    call.model->metrics.on_end(
        end, {.output_tokens = n_tokens, .e2e_s = std::chrono::duration<double>(SpeechClock::now() - start).count()});
  };
  try {
    const auto audio = open_audio(std::as_bytes(std::span(call.file)), call.model->audio_limits());
    call.responder->on_gone([is_gone] { *is_gone = true; });
    if (request.streams) events.emplace(*call.responder);
    int n_tokens = 0;
    const Transcript transcript = call.model->speech().transcribe(
        *audio, request.options,
        {.on_window = [&](std::span<const SpeechSegment> added, double, std::optional<double>) {
          if (events) events->add(added);
          for (const SpeechSegment& segment : added) n_tokens += static_cast<int>(segment.tokens.size());
          if (call.model->is_stopping()) throw ApiError(503, "the server is shutting down");
          return !*is_gone;
        }});
    count(*is_gone ? RequestEnd::kAbort : RequestEnd::kStop, n_tokens);
    call.responder->note("audio_seconds", fmt::format("{:.3f}", transcript.seconds));
    if (events) return events->finish(transcript);
    call.responder->respond(response_of(transcript, request.format));
  } catch (const ApiError& error) {
    count(RequestEnd::kError, 0);
    if (!events) throw;
    events->fail(error);
  } catch (const DeviceLost& error) {
    call.model->lose_device(error.what());
    count(RequestEnd::kError, 0);
    const ApiError lost(500, printable(error.what()));
    if (!events) throw lost;
    events->fail(lost);
  } catch (const Error& error) {
    count(RequestEnd::kError, 0);
    const ApiError bad(400, printable(error.what(), 1024), "file");
    if (!events) throw bad;
    events->fail(bad);
  }
}

}  // namespace

void answer_transcriptions(const ApiCall& call) { run_speech(call, false); }
void answer_translations(const ApiCall& call) { run_speech(call, true); }

}  // namespace ingot
