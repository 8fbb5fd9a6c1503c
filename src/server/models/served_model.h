// ServedModel: one model that answers requests, with a limit on the number of requests at once. A model generates text
// (engine, tokenizer, template), embeds or ranks (a queue of texts), or transcribes recordings.
#pragma once
#include <fmt/format.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/speculate/modes.h"
#include "io/huggingface/generation_config.h"
#include "model/ears/ear_model.h"
#include "model/media/media_cache.h"
#include "model/speech/speech_model.h"
#include "model/vectors/embedder.h"
#include "model/vision/vision_model.h"
#include "server/models/embed_queue.h"
#include "server/models/metrics.h"
#include "server/models/slots.h"
#include "server/requests/http.h"
#include "text/answers/answer_model.h"
#include "text/chat.h"
#include "text/thinking_controls.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

inline constexpr int kSpeechThreads = 4;  // recordings that are transcribed in turns

struct ModelFacts {
  int64_t n_parameters = 0, n_bytes = 0;
  size_t taken_bytes = 0;  // memory of weights, KV cache and everything else
  int n_ctx_train = 0, dim = 0;
  std::string architecture, quantization, container;  // "llama", "Q4_K", "gguf"
  std::vector<DeviceBytes> devices;  // each device's part of taken_bytes
};

struct ServedModelParts {
  std::string id;
  std::vector<std::string> aliases;
  std::unique_ptr<Tokenizer> tokenizer;  // for a model that generates text
  ChatTemplate chat;
  const CallFormat* call_format = nullptr;  // the form of calls and reasoning; null: derived from the template
  std::unique_ptr<Runner> runner;
  std::unique_ptr<VisionModel> vision = {};  // of a model that also reads images
  std::unique_ptr<EarModel> ears = {};       // of a model that also reads recordings
  MediaLimits media_limits = {};
  size_t media_cache_bytes = size_t{256} << 20;
  std::unique_ptr<Embedder> embedder = {};  // set instead of runner and tokenizer: the model embeds or ranks
  std::unique_ptr<SpeechModel> speech = {};  // or this: the model transcribes recordings
  AudioLimits audio_limits = {};
  GenerationConfig defaults;
  ModelFacts facts;
  EngineOptions engine = {};
  int queue_limit = 64;                    // waiting requests
  std::chrono::seconds queue_timeout{60};  // a request ends if it has not begun by then
  bool lenient_schemas = false, any_order = false;  // as in GrammarText
  Speculate speculate = Speculate::kOff;            // for requests that do not set it
  std::shared_ptr<DraftModel> draft = nullptr;      // for Speculate::kDraft
  SlotFiles slot_files = {};
  size_t constraint_bytes = size_t{256} << 20;  // of cached constraints
};

class ServedModel {
 public:
  explicit ServedModel(ServedModelParts parts)
      : parts_(std::move(parts)), info_(info_of(parts_)), metrics(parts_.id, n_ctx()) {
    if (parts_.speech) return;
    if (parts_.embedder) {
      embeds_.emplace([this](std::vector<EmbedText> texts) { return compute(std::move(texts)); },
                      ranks() ? 1 : parts_.embedder->dim(),
                      EmbedQueue::Limits{.batch_tokens = static_cast<size_t>(info_.max_batch_tokens),
                                         .batch_texts = static_cast<size_t>(info_.max_seqs),
                                         .patience = parts_.queue_timeout});
      return;
    }
    parts_.engine.on_step = [this, next = parts_.engine.on_step](const StepStats& stats) {
      metrics.on_step(stats);
      if (next) next(stats);
    };
    if (parts_.vision || parts_.ears)
      media_.emplace(parts_.vision.get(), parts_.ears.get(), parts_.media_limits, parts_.media_cache_bytes);
    if (parts_.vision) parts_.chat.read(MediaKind::kImage, parts_.vision->placeholder());
    if (parts_.ears) parts_.chat.read(MediaKind::kSound, parts_.ears->placeholder());
    thinking_ = thinking_controls(parts_.chat);
    answers_.emplace(*parts_.tokenizer, parts_.chat, info_.n_vocab,
                     AnswerModel::Options{parts_.call_format, parts_.constraint_bytes, parts_.lenient_schemas});
    slots_.emplace(info_.max_seqs);
    engine_.emplace(*parts_.runner, parts_.engine);
  }
  void start() {
    if (engine_) engine_->start();
    if (embeds_) embeds_->start();
  }
  void stop() {  // fails all remaining requests
    is_stopping_ = true;
    if (engine_) engine_->stop();
    if (embeds_) embeds_->stop();
  }

  const std::string& id() const { return parts_.id; }
  const std::vector<std::string>& aliases() const { return parts_.aliases; }
  // The model's purpose. A model that neither writes, ranks nor hears embeds.
  bool writes() const { return parts_.embedder == nullptr && parts_.speech == nullptr; }
  bool ranks() const { return parts_.embedder != nullptr && parts_.embedder->ranks(); }
  bool hears() const { return parts_.speech != nullptr; }
  const Tokenizer& tokenizer() const {
    if (parts_.speech) return parts_.speech->tokenizer();
    return parts_.embedder ? parts_.embedder->tokenizer() : *parts_.tokenizer;
  }
  const ChatTemplate& chat() const { return parts_.chat; }
  const ThinkingControls& thinking() const { return thinking_; }  // of a model that writes
  const GenerationConfig& defaults() const { return parts_.defaults; }
  const ModelFacts& facts() const { return parts_.facts; }
  const RunnerInfo& info() const { return info_; }
  int n_ctx() const { return writes() ? context_limit(info_) : info_.n_ctx; }
  std::time_t created() const { return created_; }
  Engine& engine() { return *engine_; }      // of a model that writes
  Slots& slots() { return *slots_; }         // of a model that writes
  const SlotFiles& slot_files() const { return parts_.slot_files; }
  AnswerModel& answers() { return *answers_; }  // of a model that writes
  const AnswerModel& answers() const { return *answers_; }
  bool lenient_schemas() const { return parts_.lenient_schemas; }
  bool any_order() const { return parts_.any_order; }
  Speculate speculate() const { return parts_.speculate; }
  DraftModel* draft() const { return parts_.draft.get(); }
  MediaCache* media() { return media_ ? &*media_ : nullptr; }  // null: the model reads text only
  const MediaCache* media() const { return media_ ? &*media_ : nullptr; }
  bool reads(MediaKind kind) const { return media_ && media_->sense(kind) != nullptr; }
  const VisionModel& vision() const { return *parts_.vision; }  // of a model that reads images
  EmbedQueue& embeds() { return *embeds_; }  // of a model that embeds or ranks
  const Embedder& embedder() const { return *parts_.embedder; }
  SpeechModel& speech() { return *parts_.speech; }  // of a model that hears
  const AudioLimits& audio_limits() const { return parts_.audio_limits; }
  bool is_stopping() const { return is_stopping_; }
  void lose_device(const std::string& why) {  // of a model that hears
    const std::lock_guard lock(fault_mutex_);
    if (speech_fault_.empty()) speech_fault_ = why;
  }
  // For replays after the engine has lost its device. The pool sets a function that calls back with the replacement of
  // this model, or with null and the reason. Set the function before the first request.
  using Fresh = std::function<void(std::shared_ptr<ServedModel> model, const std::string& failure)>;
  void set_fresh(std::function<void(Fresh)> ask) { ask_for_fresh_ = std::move(ask); }
  bool asks_for_fresh() const { return ask_for_fresh_ != nullptr; }
  void ask_for_fresh(Fresh ready) const { ask_for_fresh_(std::move(ready)); }
  // If not empty, the model cannot answer any more requests.
  std::string fault() const {
    const std::lock_guard lock(fault_mutex_);
    return engine_ ? engine_->fault() : embeds_ ? embeds_->fault() : speech_fault_;
  }
  bool lost_device() const { return engine_ ? engine_->lost_device() : !fault().empty(); }
  EngineGauges gauges() const {
    if (parts_.speech) {
      EngineGauges gauges;
      gauges.n_running = std::min(n_taken(), info_.max_seqs), gauges.n_waiting = n_taken() - gauges.n_running;
      gauges.is_working = n_taken() > 0, gauges.progress = parts_.speech->progress();
      return gauges;
    }
    EngineGauges gauges = engine_ ? engine_->gauges() : embeds_->gauges();
    if (parts_.embedder) gauges.progress += parts_.embedder->progress();
    if (parts_.draft) gauges.progress += parts_.draft->progress();
    return gauges;
  }
  std::chrono::seconds queue_timeout() const { return parts_.queue_timeout; }
  int capacity() const { return info().max_seqs + parts_.queue_limit; }

  // Room for n more sequences, returned when the ticket is destroyed. admit() returns no ticket if the queue is full, and
  // throws ApiError if an empty queue could not hold the n sequences.
  class Ticket {
   public:
    Ticket(std::atomic<int>& taken, int n) : taken_(&taken), n_(n) {}
    Ticket(Ticket&& other) noexcept : taken_(other.taken_), n_(std::exchange(other.n_, 0)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() { *taken_ -= n_; }

   private:
    std::atomic<int>* taken_;
    int n_;
  };
  std::optional<Ticket> admit(int n) {
    if (n > capacity())
      throw ApiError(400,
                     fmt::format("this request asks for {} answers at once, but the server runs and queues at most {}",
                                 n, capacity()),
                     "n");
    if (taken_.fetch_add(n) + n > capacity()) {
      taken_ -= n;
      return std::nullopt;
    }
    return std::optional<Ticket>(std::in_place, taken_, n);
  }
  int n_taken() const { return taken_; }

 private:
  static RunnerInfo info_of(const ServedModelParts& parts) {
    if (parts.speech)
      return {.n_vocab = parts.speech->config().n_vocab,
              .n_ctx = parts.speech->config().n_ctx,
              .max_batch_tokens = parts.speech->config().n_ctx,
              .max_seqs = kSpeechThreads};
    if (!parts.embedder) return parts.runner->info();
    const Embedder& e = *parts.embedder;
    return {.n_vocab = e.n_vocab(), .n_ctx = e.max_tokens(), .max_batch_tokens = e.max_batch_tokens(), .max_seqs = 256};
  }

  // Returns vectors; for a model that ranks, one score for each text.
  std::vector<float> compute(std::vector<EmbedText> texts) {
    if (ranks()) {
      std::vector<Embedder::Pair> pairs;
      for (EmbedText& text : texts) pairs.push_back({std::move(text.tokens), text.second});
      return parts_.embedder->score(pairs);
    }
    std::vector<std::vector<int32_t>> tokens;
    std::vector<int> n_before;
    for (EmbedText& text : texts)
      n_before.push_back(std::max(0, text.second)), tokens.push_back(std::move(text.tokens));
    return parts_.embedder->embed(tokens, n_before);
  }

  ServedModelParts parts_;
  std::function<void(Fresh)> ask_for_fresh_;
  const RunnerInfo info_;
  const std::time_t created_ = std::time(nullptr);
  std::atomic<int> taken_{0};
  std::atomic<bool> is_stopping_{false};
  mutable std::mutex fault_mutex_;
  std::string speech_fault_;
  ThinkingControls thinking_;
  std::optional<AnswerModel> answers_;
  std::optional<Slots> slots_;
  std::optional<MediaCache> media_;

 public:
  ModelMetrics metrics;

 private:
  // At most one of engine_ and embeds_ is set. Both come last, because their threads use the other members.
  std::optional<Engine> engine_;
  std::optional<EmbedQueue> embeds_;
};

}  // namespace ingot
