#include "capi/capi_request.h"

#include "capi/capi_guard.h"

#include <chrono>
#include <utility>

namespace ingot {
namespace {

thread_local int callback_depth = 0;
thread_local std::vector<ingot_top_logprob> top_of_last;

ingot_finish finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return INGOT_FINISH_STOP;
    case FinishReason::kLength: return INGOT_FINISH_LENGTH;
    case FinishReason::kCancelled: return INGOT_FINISH_CANCELLED;
    case FinishReason::kDeadline:
    case FinishReason::kNotBegun: return INGOT_FINISH_TIMEOUT;
    case FinishReason::kError: break;
  }
  return INGOT_FINISH_ERROR;
}

}  // namespace

std::vector<PromptMedia> prepare_media(CapiModel& model, const ingot_image* given, size_t n) {
  constexpr size_t kMaxCapiFiles = 4096;
  if (n == 0) return {};
  required(given, "images");
  if (!model.media) throw Error("the model reads text only: images need a model with a vision tower, or mmproj");
  if (n > kMaxCapiFiles) throw Error("n_images is {}: at most {}", n, kMaxCapiFiles);
  std::vector<MediaFile> files;
  for (size_t i = 0; i < n; ++i) {
    const auto* bytes = static_cast<const std::byte*>(given[i].bytes);
    if (given[i].n_bytes > 0) required(bytes, "the bytes of an image");
    files.push_back({.bytes = std::make_shared<const std::vector<std::byte>>(bytes, bytes + given[i].n_bytes),
                     .kind = kind_of_file({bytes, given[i].n_bytes}),
                     .where = fmt::format("images[{}]", i)});
  }
  return model.media->prepare(std::move(files));
}

bool in_callback() { return callback_depth > 0; }
const std::vector<ingot_top_logprob>& last_top() { return top_of_last; }

CapiSink::CapiSink(const std::unique_ptr<Tokenizer>& tokenizer, const std::vector<int32_t>& prompt,
                   ingot_callback callback, void* user)
    : decoder_(*tokenizer, {.previous = prompt.empty() ? std::nullopt : std::optional(prompt.back())}),
      callback_(callback),
      user_(user) {}

void CapiSink::on_token(const Sampled& token) {
  Event event{{.kind = INGOT_EVENT_TOKEN, .token = token.token, .logprob = token.logprob}, "", {}};
  for (const TokenLogprob& one : token.top) event.top.push_back({one.token, one.logprob});
  pass(std::move(event));
}

void CapiSink::on_finish(const Finish& finish) {
  pass({{.kind = INGOT_EVENT_FINISH,
         .token = finish.stop_token,
         .finish = finish_of(finish.reason),
         .prompt_tokens = finish.usage.prompt_tokens,
         .cached_tokens = finish.usage.cached_tokens,
         .output_tokens = finish.usage.output_tokens},
        finish.error});
}

// Runs on the polling thread or, with a callback, on the engine's thread.
ingot_event CapiSink::with_text(Event& event) {
  top_of_last = std::move(event.top);
  if (event.event.kind == INGOT_EVENT_TOKEN) event.text = decoder_.push(event.event.token);
  if (event.event.kind == INGOT_EVENT_FINISH && event.event.finish != INGOT_FINISH_ERROR) event.text = decoder_.flush();
  ingot_event result = event.event;
  result.text = event.text.c_str();
  result.n_bytes = event.text.size();
  return result;
}

void CapiSink::pass(Event event) {
  if (callback_ != nullptr) {
    const ingot_event shown = with_text(event);
    ++callback_depth;
    callback_(&shown, user_);
    --callback_depth;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(event));
  }
  changed_.notify_one();
}

ingot_status CapiSink::poll(int timeout_ms, ingot_event* event) {
  std::unique_lock lock(mutex_);
  if (ended_ || callback_ != nullptr) return INGOT_END;
  const auto there = [&] { return !waiting_.empty(); };
  if (timeout_ms < 0) {
    changed_.wait(lock, there);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), there)) {
    return INGOT_TIMEOUT;
  }
  last_ = std::move(waiting_.front());
  waiting_.pop_front();
  ended_ = last_.event.kind == INGOT_EVENT_FINISH;
  *event = with_text(last_);
  return INGOT_OK;
}

}  // namespace ingot
