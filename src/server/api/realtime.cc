#include "server/api/realtime.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <deque>

#include "base/base64.h"
#include "base/check.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "io/audio/resample.h"
#include "model/speech/voice.h"
#include "server/api/partial_text.h"
#include "server/api/realtime_sound.h"
#include "server/fields/request_fields.h"
#include "server/requests/fields.h"

namespace ingot {
namespace {

constexpr size_t kMaxQueuedBytes = kMaxSocketMessage;  // of messages that no worker has read
constexpr int kMessagesAtOnce = 64;                    // that a step reads
constexpr size_t kMessageCost = 256;                   // bytes that a message takes besides its own
constexpr std::chrono::hours kLongestSession{1};
constexpr int kPcmRate = 24000;                          // samples a second that clients send
constexpr int64_t kLongestTurn = 30 * kSpeechRate;       // samples of a turn before it is cut
constexpr int64_t kPartialEvery = 3 * kSpeechRate / 10;  // samples from one partial result to the next
constexpr const char* kTranscription = "conversation.item.input_audio_transcription.";
constexpr int64_t kMostSound = 600 * kSpeechRate;                      // samples that wait for a commit
constexpr int64_t kSeen = 6 * kSpeechRate, kEvery = kSpeechRate / 10;  // of the search for turns
constexpr int64_t kLeastCommit = kSpeechRate / 10;

class RealtimeSession final : public SocketHandler, public std::enable_shared_from_this<RealtimeSession> {
 public:
  RealtimeSession(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, std::shared_ptr<Responder> responder,
                  Workers& workers)
      : model_(std::move(model)), ticket_(std::move(ticket)), responder_(std::move(responder)), workers_(workers) {}

  // ---- the network's thread ----
  void on_message(std::string bytes) override {
    {
      std::lock_guard lock(mutex_);
      if (is_over_ || ends_late()) return;
      if (n_queued_ > kMaxQueuedBytes) return end("more sound has come than the server can transcribe");
      n_queued_ += bytes.size() + kMessageCost;
      queue_.push_back(std::move(bytes));
      if (std::exchange(is_running_, true)) return;
    }
    workers_.post_steps([self = shared_from_this()] { return self->step(); });
  }
  void on_beat() override {
    std::lock_guard lock(mutex_);
    if (!is_over_) ends_late();
  }
  void on_gone() {
    std::lock_guard lock(mutex_);
    is_over_ = true;
    queue_.clear();
  }

  void begin() { send({{"type", "session.created"}, {"session", session_json()}}); }

 private:
  // ---- with the mutex ----
  void end(const char* why) {
    is_over_ = true;
    queue_.clear();
    responder_->end(why);
  }
  bool ends_late() {
    const bool is_late = std::chrono::steady_clock::now() - begun_ > kLongestSession;
    if (is_late) end("the session has lasted an hour: begin a new one");
    return is_late;
  }

  // ---- a worker, one at a time ----
  // Takes a step: reads the messages that wait, up to the next commit, or else writes the next window of a committed
  // part, or else makes a partial result. Returns false if nothing is left to do.
  bool step() {
    int n_read = 0;
    for (std::optional<std::string> text; n_read < kMessagesAtOnce && (text = take_message()); ++n_read)
      guarded([&](std::string& id) {
        const JsonValue event = parse_request_json(*text);
        id = Fields(event).string("event_id", 512).value_or("");
        handle(event);
      });
    if (n_read > 0) return true;
    {
      std::lock_guard lock(mutex_);
      is_running_ = !is_over_ && (!commits_.empty() || !queue_.empty() || wants_partial());
      if (!is_running_) return false;
      if (commits_.empty() && !queue_.empty()) return true;
    }
    guarded([&](std::string&) { commits_.empty() ? send_partial() : write_commit(); });
    return true;
  }

  // The next message, if no part has to be written before.
  std::optional<std::string> take_message() {
    std::lock_guard lock(mutex_);
    if (is_over_ || queue_.empty() || !commits_.empty()) return std::nullopt;
    std::string text = std::move(queue_.front());
    queue_.pop_front();
    n_queued_ -= text.size() + kMessageCost;
    return text;
  }

  // Work may set the id of the client's event, for faults.
  template <class Work>
  void guarded(const Work& work) {
    std::string id;
    try {
      work(id);
    } catch (const ApiError& error) {
      fail(error, id);
    } catch (const std::bad_alloc&) {
      fail(no_memory(), id);
    } catch (const std::exception& error) {
      fail(ApiError(400, printable(error.what(), 1024)), id);
    }
  }

  void send(JsonValue event) {
    event["event_id"] = random_id("event_");
    responder_->write(dump_json(event));
  }

  void fail(const ApiError& error, const std::string& id) {
    JsonValue detail = {{"type", error.type()}, {"code", error.code()}, {"message", error.what()}};
    detail["param"] = error.param().empty() ? JsonValue() : JsonValue(error.param());
    detail["event_id"] = id.empty() ? JsonValue() : JsonValue(id);
    send({{"type", "error"}, {"error", std::move(detail)}});
  }

  void handle(const JsonValue& event) {
    const Fields fields(event);
    const std::string type = fields.string("type", 256).value_or("");
    if (type == "session.update" || type == "transcription_session.update") return update(fields, type);
    if (type == "input_audio_buffer.append") return append(fields);
    if (type == "input_audio_buffer.commit") return commit_all();
    if (type == "input_audio_buffer.clear") {
      samples_.clear(), first_ = n_samples_;
      turns_.reset(n_samples_);
      item_.clear(), partial_ = {};
      return send({{"type", "input_audio_buffer.cleared"}});
    }
    fields.refuse("type", "must be session.update, or append, commit or clear of input_audio_buffer");
  }

  // The form of sessions of today, and that of the beta.
  void update(const Fields& fields, const std::string& type) {
    const JsonValue& session = fields.at("session");
    const Fields outer(session, "session.");
    if (outer.string("type", 64).value_or("transcription") != "transcription")
      outer.refuse("type", "must be transcription: this server makes no speech");
    const JsonValue* format = find_member(session, "audio");
    format = format ? find_member(*format, "input") : nullptr;
    const JsonValue& input = format ? *format : session;
    const Fields in(input, format ? "session.audio.input." : "session.");
    if (format) {
      if (const JsonValue* sound = in.find("format")) {
        const Fields f(*sound, "session.audio.input.format.");
        if (f.string("type", 64).value_or("audio/pcm") != "audio/pcm") f.refuse("type", "must be audio/pcm");
        if (f.integer("rate", 1, 1 << 20).value_or(kPcmRate) != kPcmRate) f.refuse("rate", "must be 24000");
      }
    } else if (outer.string("input_audio_format", 64).value_or("pcm16") != "pcm16") {
      outer.refuse("input_audio_format", "must be pcm16");
    }
    SpeechOptions options = options_;
    if (const JsonValue* what = in.find(format ? "transcription" : "input_audio_transcription")) {
      const Fields t(*what, "session.transcription.");
      options.language = t.string("language", 64).value_or("");
      options.prompt = t.string("prompt", 64 << 10).value_or("");
    }
    model_->speech().check(options);
    TurnRules rules = rules_;
    bool has_turns = has_turns_;
    if (const auto turn = input.find("turn_detection"); turn != input.end()) {
      has_turns = !turn->is_null();
      if (has_turns) rules = turn_rules(*turn);
    }
    options_ = std::move(options), rules_ = rules, has_turns_ = has_turns;
    const bool is_beta = type.starts_with("transcription_");
    send({{"type", is_beta ? "transcription_session.updated" : "session.updated"}, {"session", session_json()}});
  }

  static TurnRules turn_rules(const JsonValue& json) {
    const Fields t(json, "session.turn_detection.");
    const std::string type = t.string("type", 64).value_or("server_vad");
    if (type != "server_vad") t.refuse("type", "must be server_vad, or turn_detection null");
    TurnRules rules;
    rules.prefix_ms = t.number("prefix_padding_ms", 0, 5000).value_or(rules.prefix_ms);
    rules.silence_ms = t.number("silence_duration_ms", 100, 10000).value_or(rules.silence_ms);
    t.number("threshold", 0, 1);  // this detector has none
    return rules;
  }

  JsonValue session_json() const {
    JsonValue turns;
    if (has_turns_)
      turns = {
          {"type", "server_vad"}, {"prefix_padding_ms", rules_.prefix_ms}, {"silence_duration_ms", rules_.silence_ms}};
    return {
        {"type", "transcription"},
        {"id", id_},
        {"object", "realtime.transcription_session"},
        {"audio",
         {{"input",
           {{"format", {{"type", "audio/pcm"}, {"rate", kPcmRate}}},
            {"transcription", {{"model", model_->id()}, {"language", options_.language}, {"prompt", options_.prompt}}},
            {"turn_detection", std::move(turns)}}}}}};
  }

  void append(const Fields& fields) {
    const auto bytes = from_base64(fields.string("audio", kMaxSocketMessage).value_or(""));
    if (!bytes || bytes->size() % 2 != 0) fields.refuse("audio", "must be PCM of 16 bits, in Base64");
    constexpr size_t kAtOnce = kPcmRate / 10;  // 100 ms
    std::vector<float> pcm;
    for (size_t begin = 0; begin < bytes->size(); begin += 2 * kAtOnce) {
      pcm.clear();
      for (size_t at = begin; at < std::min(begin + 2 * kAtOnce, bytes->size()); at += 2) {
        int16_t sample;
        std::memcpy(&sample, bytes->data() + at, sizeof sample);
        pcm.push_back(static_cast<float>(sample) / 32768);
      }
      const size_t n_before = samples_.size();
      resampler_.add(pcm, false, samples_);
      n_samples_ += static_cast<int64_t>(samples_.size() - n_before);
      if (has_turns_) find_turns();
    }
    if (std::ssize(samples_) > kMostSound) {
      samples_.clear(), first_ = n_samples_;
      throw ApiError(400, "ten minutes of sound wait for a commit: they are dropped", "audio", "audio_too_long");
    }
  }

  void find_turns() {
    if (n_samples_ - searched_ < kEvery) return;
    searched_ = n_samples_;
    const auto seen = static_cast<size_t>(std::min(std::ssize(samples_), kSeen));
    const auto turn = turns_.find(std::span(samples_).last(seen), n_samples_, rules_);
    if (turn && turn->begins) {
      const auto prefix = static_cast<int64_t>(rules_.prefix_ms * kSpeechRate / 1000);
      drop_before(turn->voice - prefix);
      begin_turn(turn->at);
    } else if (turn) {
      end_turn(turn->at);
    } else if (turns_.is_speaking() && std::ssize(samples_) >= kLongestTurn) {
      const int64_t end = first_ + last_pause(samples_, voice_spans(samples_, rules_.quietest), kLongestTurn / 2);
      end_turn(end);
      turns_.cut(end);
      begin_turn(end);
    } else if (!turns_.is_speaking()) {
      drop_before(n_samples_ - kSeen);
    }
  }

  static int64_t ms(int64_t at) { return at * 1000 / kSpeechRate; }

  void begin_turn(int64_t at) {
    item_ = random_id("item_");
    partial_ = {}, guessed_.clear(), peeked_ = first_, partial_step_ = kPartialEvery;
    send({{"type", "input_audio_buffer.speech_started"}, {"audio_start_ms", ms(at)}, {"item_id", item_}});
  }

  void end_turn(int64_t at) {
    send({{"type", "input_audio_buffer.speech_stopped"}, {"audio_end_ms", ms(at)}, {"item_id", item_}});
    commit(at);
  }

  // Whether a turn has so much more sound than at its last partial result, or at its beginning.
  bool wants_partial() const {
    return turns_.is_speaking() && n_samples_ - peeked_ >= partial_step_ &&
           std::ssize(samples_) <= model_->speech().config().n_samples();
  }

  // Transcribes the open turn, and sends what is certain enough. Takes at most half of the time: where a result takes
  // long, the next one waits for twice as much sound.
  void send_partial() {
    peeked_ = n_samples_;
    const auto start = std::chrono::steady_clock::now();
    try {
      if (auto guess = model_->speech().peek(samples_, options_, guessed_)) {
        send_delta(item_, partial_.add(guess->pieces));
        guessed_ = std::move(guess->tokens);
      }
    } catch (const DeviceLost& error) {
      lose_device(error);
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    partial_step_ = std::max(kPartialEvery, static_cast<int64_t>(2 * taken.count() * kSpeechRate));
  }

  void send_delta(const std::string& item, const std::string& delta) {
    if (delta.empty()) return;
    send({{"type", kTranscription + std::string("delta")}, {"item_id", item}, {"content_index", 0}, {"delta", delta}});
  }

  void lose_device(const DeviceLost& error) {
    model_->lose_device(error.what());
    responder_->end("the model has failed");
  }

  void drop_before(int64_t at) {
    if (at <= first_) return;
    CHECK_LE(at, n_samples_);
    samples_.erase(samples_.begin(), samples_.begin() + (at - first_));
    first_ = at;
  }

  void commit_all() {
    if (std::ssize(samples_) < kLeastCommit)
      throw ApiError(400, "the buffer has less than 100 ms of sound", "", "input_audio_buffer_commit_empty");
    if (item_.empty()) item_ = random_id("item_");
    turns_.reset(n_samples_);
    commit(n_samples_);
  }

  // Takes the sound up to a sample as a part that is transcribed before the next message is read.
  void commit(int64_t end) {
    const auto middle = samples_.begin() + (end - first_);
    std::vector<float> part(samples_.begin(), middle);
    drop_before(end);
    const std::string item = std::exchange(item_, "");
    send({{"type", "input_audio_buffer.committed"},
          {"item_id", item},
          {"previous_item_id", last_item_.empty() ? JsonValue() : JsonValue(last_item_)}});
    last_item_ = item;
    send({{"type", "conversation.item.created"},
          {"item",
           {{"id", item},
            {"type", "message"},
            {"role", "user"},
            {"status", "completed"},
            {"content", {{{"type", "input_audio"}, {"transcript", nullptr}}}}}}});
    commits_.push_back(std::make_unique<Commit>(item, std::move(part), std::exchange(partial_, {})));
  }

  // Writes the next window of the oldest part. The last one completes it.
  void write_commit() {
    Commit& part = *commits_.front();
    bool goes_on = false;
    try {
      if (!part.transcription)
        part.transcription.emplace(model_->speech().begin(
            part.sound, options_,
            {.on_window = [this, &part](std::span<const SpeechSegment> added, double, std::optional<double>) {
              for (const SpeechSegment& segment : added) {
                part.text += part.text.empty() ? trimmed(segment.text) : segment.text;
                send_delta(part.item, part.partial.add_certain(part.text));
              }
              return !model_->is_stopping();
            }}));
      goes_on = part.transcription->step();
      if (!goes_on)
        send({{"type", kTranscription + std::string("completed")},
              {"item_id", part.item},
              {"content_index", 0},
              {"transcript", part.transcription->finish().text()},
              {"usage", {{"type", "duration"}, {"seconds", part.seconds}}}});
    } catch (const DeviceLost& error) {
      lose_device(error);
    } catch (const Error& error) {
      send({{"type", kTranscription + std::string("failed")},
            {"item_id", part.item},
            {"content_index", 0},
            {"error", {{"type", "transcription_error"}, {"message", printable(error.what(), 1024)}}}});
    } catch (...) {
      commits_.pop_front();
      throw;
    }
    if (!goes_on) commits_.pop_front();
  }

  // A part that was committed.
  struct Commit {
    Commit(std::string id, std::vector<float> samples, PartialText sent)
        : item(std::move(id)),
          seconds(static_cast<double>(samples.size()) / kSpeechRate),
          sound(std::move(samples)),
          partial(std::move(sent)) {}
    const std::string item;
    const double seconds;
    SampleStream sound;
    PartialText partial;
    std::string text;  // so far
    std::optional<SpeechModel::Transcription> transcription;
  };

  const std::shared_ptr<ServedModel> model_;
  const ServedModel::Ticket ticket_;
  const std::shared_ptr<Responder> responder_;
  Workers& workers_;
  const std::string id_ = random_id("sess_");
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();

  std::mutex mutex_;
  std::deque<std::string> queue_;
  size_t n_queued_ = 0;  // bytes
  bool is_running_ = false, is_over_ = false;

  // Used only by the worker that runs.
  SpeechOptions options_;
  TurnRules rules_;
  bool has_turns_ = true;
  Resampler resampler_{kPcmRate};
  TurnFinder turns_;
  std::vector<float> samples_;                        // from first_ on, of those that were not committed
  int64_t first_ = 0, n_samples_ = 0, searched_ = 0;  // since the session began
  std::string item_, last_item_;
  std::deque<std::unique_ptr<Commit>> commits_;  // that are not complete
  PartialText partial_;                   // of the open turn
  std::vector<int32_t> guessed_;          // its last partial result
  int64_t peeked_ = 0;                    // n_samples_ at its last partial result
  int64_t partial_step_ = kPartialEvery;  // samples to the next one
};

}  // namespace

void start_realtime(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, HttpHeaders accept,
                    const std::shared_ptr<Responder>& responder, Workers& workers) {
  const auto session = std::make_shared<RealtimeSession>(std::move(model), std::move(ticket), responder, workers);
  responder->upgrade(std::move(accept), session);
  responder->on_gone([weak = std::weak_ptr(session)] {
    if (const auto self = weak.lock()) self->on_gone();
  });
  session->begin();
}

}  // namespace ingot
