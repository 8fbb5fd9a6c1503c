// What a client sends over /v1/realtime. The first byte chooses: bytes of a WebSocket, which are read whole and in
// pieces; or lines, each the text of a message for a session with the tiny speech model. A line "~N" is an append of N
// times 20 ms of a sound like a voice, "_N" of silence: real sound would need thousands of bytes.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <future>
#include <mutex>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"
#include "io/walk.h"
#include "server/api/realtime.h"
#include "server/http/web_socket.h"

namespace ingot {
namespace {

struct ReadFrames {
  std::vector<std::pair<SocketFrame, std::string>> messages;
  int fault = 0;  // code
  bool operator==(const ReadFrames&) const = default;
};

// step: bytes that come at once.
ReadFrames read_frames(std::string_view bytes, size_t step) {
  constexpr size_t kMost = 1000;
  SocketReader reader(kMost);
  ReadFrames read;
  std::string left;
  try {
    for (size_t at = 0; at < bytes.size(); at += step) {
      left += bytes.substr(at, step);
      std::string_view in = left;
      while (auto message = reader.next(in)) {
        ensure(message->bytes.size() <= kMost, "a message keeps to the limit");
        read.messages.emplace_back(message->kind, std::move(message->bytes));
      }
      left = std::string(in);
      ensure(left.size() < 14, "only the head of a frame waits");
    }
  } catch (const SocketReader::Fault& fault) {
    ensure(fault.code >= 1000 && fault.code < 5000, "a fault has a code of RFC 6455");
    read.fault = fault.code;
  }
  return read;
}

void fuzz_frames(std::string_view bytes) {
  const ReadFrames whole = read_frames(bytes, std::max<size_t>(1, bytes.size()));
  for (const size_t step : {1, 2, 7}) ensure(read_frames(bytes, step) == whole, "pieces of any size are the same");
}

// Checks what the server sends.
class CheckedResponder final : public Responder {
 public:
  void respond(HttpResponse) override { ensure(false, "a socket has no answer"); }
  void stream(HttpResponse) override { ensure(false, "a socket has no stream"); }
  void upgrade(HttpHeaders, std::shared_ptr<SocketHandler> given) override { handler = std::move(given); }
  void write(std::string bytes) override {
    const JsonValue event = JsonValue::parse(bytes);
    const std::string type = event.at("type");
    ensure(!event.at("event_id").get<std::string>().empty(), "events have ids");
    const std::lock_guard lock(mutex_);
    if (type == "error") {
      for (const char c : event.at("error").at("message").get<std::string>())
        ensure(static_cast<unsigned char>(c) >= 0x20, "messages are printable");
    } else if (type == "input_audio_buffer.speech_started" || type == "input_audio_buffer.committed") {
      items_.insert(event.at("item_id"));
    } else if (type.starts_with("conversation.item.input_audio_transcription.")) {
      ensure(items_.contains(event.at("item_id")), "texts are of the open turn, or of a part that is not complete");
      if (!type.ends_with("delta")) items_.erase(event.at("item_id"));
      if (type.ends_with("delta")) ensure(!event.at("delta").get<std::string>().empty(), "deltas have text");
    }
  }
  void end(std::string) override {}
  void fail(HttpResponse, std::string) override {}
  bool full() const override { return false; }
  void on_gone(std::function<void()> callback) override { gone = std::move(callback); }
  void on_room(std::function<void()>) override {}
  void note(std::string, std::string) override {}

  std::shared_ptr<SocketHandler> handler;
  std::function<void()> gone;

 private:
  std::mutex mutex_;
  std::set<std::string> items_;
};

// An append of n times 20 ms: a buzz with four syllables a second, or silence.
std::string append_of(int n, bool has_voice) {
  constexpr int kRate = 24000;
  std::vector<int16_t> pcm(static_cast<size_t>(n) * kRate / 50);
  for (size_t i = 0; has_voice && i < pcm.size(); ++i) {
    const double t = static_cast<double>(i) / kRate, loudness = std::max(0.0, std::sin(2 * M_PI * 4 * t));
    for (int k = 1; k <= 20; ++k)
      pcm[i] = static_cast<int16_t>(pcm[i] + 600 * loudness * std::sin(2 * M_PI * 120 * k * t + k * k));
  }
  const std::string_view bytes(reinterpret_cast<const char*>(pcm.data()), pcm.size() * sizeof(int16_t));
  return JsonValue{{"type", "input_audio_buffer.append"}, {"audio", to_base64(bytes)}}.dump();
}

// left: the most pieces of 20 ms, of which the line takes some.
std::string message_of(std::string_view line, int& left) {
  int n = 0;
  if (line.empty() || (line[0] != '~' && line[0] != '_') ||
      std::from_chars(line.data() + 1, line.data() + line.size(), n).ec != std::errc())
    return std::string(line);
  n = std::clamp(n, 0, left), left -= n;
  return append_of(n, line[0] == '~');
}

std::shared_ptr<ServedModel> tiny_model() {
  SpeechFiles files = open_speech_files(INGOT_SPEECH);
  ServedModelParts parts{.id = "speech", .chat = ChatTemplate::chatml_default()};
  parts.speech = std::make_unique<SpeechModel>(std::move(files), BackendOptions{.device = "cpu", .n_threads = 1});
  return std::make_shared<ServedModel>(std::move(parts));
}

void fuzz_session(std::string_view text) {
  static const std::shared_ptr<ServedModel> model = tiny_model();
  constexpr size_t kMostLines = 32;
  constexpr int kTurns = 150;
  int n_pieces = 400;  // 8 s
  const auto responder = std::make_shared<CheckedResponder>();
  {
    Workers workers(1);
    start_realtime(model, *model->admit(1), {}, responder, workers);
    for (size_t i = 0; i < kMostLines && !text.empty(); ++i) {
      const size_t end = std::min(text.find('\n'), text.size());
      responder->handler->on_message(message_of(text.substr(0, end), n_pieces));
      text.remove_prefix(std::min(text.size(), end + 1));
    }
    responder->handler->on_beat();
    // Each turn takes a step of the session: messages, a window or a partial result.
    for (int turn = 0; turn < kTurns; ++turn) {
      std::promise<void> over;
      workers.post([&over] { over.set_value(); });
      over.get_future().wait();
    }
  }
  responder->gone();
  responder->handler.reset();
  ensure(model->n_taken() == 0, "a session gives its place back");
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] % 2 == 0 ? fuzz_frames(bytes) : fuzz_session(bytes);
  return 0;
}
