// The types behind the C API's handles: a model with its engine, and a request with the sink that converts its tokens
// to events. A request keeps its model alive, so handles can be freed in any order.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/speculate/drafting.h"
#include "ingot/ingot.h"
#include "model/loader.h"
#include "model/media/media_cache.h"
#include "text/answers/answer_model.h"
#include "text/stream_decoder.h"

namespace ingot {

inline constexpr size_t kCapiMediaCacheBytes = size_t{256} << 20;
inline constexpr int kScoredRows = 32;  // rows of logits in one step of ingot_logits; each row takes memory

struct CapiModel {
  CapiModel(LoadedModel model, const EngineOptions& options, Speculate how, std::shared_ptr<DraftModel> draft_model)
      : loaded(std::move(model)),
        speculate(how),
        draft(std::move(draft_model)),
        fallback(ChatTemplate::chatml_default()),
        answers(*loaded.tokenizer, chat(), loaded.runner->info().n_vocab, {}),
        engine(std::make_unique<Engine>(*loaded.runner, options)) {
    if (loaded.vision || loaded.ears)
      media.emplace(loaded.vision.get(), loaded.ears.get(), MediaLimits(), kCapiMediaCacheBytes);
    place_media(loaded, loaded.chat ? *loaded.chat : fallback);
    engine->start();
  }
  const ChatTemplate& chat() const { return loaded.chat ? *loaded.chat : fallback; }

  LoadedModel loaded;
  const Speculate speculate;
  const std::shared_ptr<DraftModel> draft;  // null: none
  ChatTemplate fallback;
  std::optional<MediaCache> media;  // of a model that reads images or recordings
  AnswerModel answers;
  std::unique_ptr<Engine> engine;  // destroyed before the runner
};

// Decodes the images and recordings of a call; the content tells which a file is. Throws Error if the model reads none.
std::vector<PromptMedia> prepare_media(CapiModel& model, const ingot_image* files, size_t n);

// True if this thread is running a callback.
bool in_callback();
// Of the event that this thread has got last.
const std::vector<ingot_top_logprob>& last_top();

class CapiSink final : public TokenSink {
 public:
  CapiSink(const std::unique_ptr<Tokenizer>& tokenizer, const std::vector<int32_t>& prompt, ingot_callback callback,
           void* user);
  void on_token(const Sampled& token) override;
  void on_finish(const Finish& finish) override;
  ingot_status poll(int timeout_ms, ingot_event* event);

 private:
  struct Event {
    ingot_event event = {};
    std::string text;  // an error's message; other texts are decoded when the event is read
    std::vector<ingot_top_logprob> top = {};
  };
  void pass(Event event);
  ingot_event with_text(Event& event);

  StreamDecoder decoder_;
  const ingot_callback callback_;
  void* const user_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> waiting_;
  Event last_;          // owns the text of the event polled last
  bool ended_ = false;  // the finish has been polled
};

}  // namespace ingot

struct ingot_model {
  std::shared_ptr<ingot::CapiModel> shared;
};

struct ingot_request {
  std::shared_ptr<ingot::CapiModel> model;
  std::shared_ptr<ingot::CapiSink> events;
  ingot::RequestId id = 0;
};
