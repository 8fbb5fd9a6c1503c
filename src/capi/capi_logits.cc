// ingot_logits: a request whose sink writes each row of logits to the caller's buffer.
#include <algorithm>
#include <future>

#include "base/error.h"
#include "capi/capi_guard.h"
#include "capi/capi_request.h"

namespace ingot {
namespace {

class LogitSink final : public TokenSink {
 public:
  LogitSink(int first, float* rows /* [n - first, n_vocab] */) : first_(first), rows_(rows) {}
  void on_logits(int position, std::span<const float> row) override {
    if (position < first_) return;
    std::ranges::copy(row, rows_ + static_cast<size_t>(position - first_) * row.size());
    ++n_written_;
  }
  void on_token(const Sampled&) override {}
  void on_finish(const Finish& finish) override { ended_.set_value(finish.error); }

  // Waits for the end of the request. Returns "" if all n_rows were written, otherwise the reason.
  std::string wait(size_t n_rows) {
    const std::string error = ended_.get_future().get();
    if (n_written_ == n_rows) return "";
    return error.empty() ? "the model was freed while its logits were computed" : error;
  }

 private:
  const int first_;
  float* const rows_;
  size_t n_written_ = 0;
  std::promise<std::string> ended_;
};

}  // namespace
}  // namespace ingot

using namespace ingot;

extern "C" ingot_status ingot_logits(ingot_model* model, const int32_t* tokens, size_t n, size_t first, float* logits,
                                     size_t capacity) {
  return guarded([&] {
    const std::shared_ptr<CapiModel> shared = required(model, "model").shared;
    if (n > 0) required(tokens, "tokens");
    if (n > 0 && first >= n)
      throw Error("first is {}, but there are {} tokens: it must be less than their number", first, n);
    const size_t n_rows = n - first, n_vocab = static_cast<size_t>(shared->engine->info().n_vocab);
    if (n > 0) required(logits, "logits");
    if (capacity / n_vocab < n_rows)
      throw Error("{} rows of logits need {} numbers each, but there is room for only {} in all", n_rows, n_vocab,
                  capacity);
    const auto sink = std::make_shared<LogitSink>(static_cast<int>(std::min<size_t>(first, INT32_MAX)), logits);
    Request request;
    request.prompt.assign(tokens, tokens + n);
    request.sampling.temperature = 0;
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.prompt_logprobs = n_rows > 1 ? 0 : -1;
    request.wants_logits = true;
    request.sink = sink;
    if (!shared->engine->try_submit(std::move(request))) {
      last_error() = "the queue is full: try again later";
      return INGOT_FULL;
    }
    if (const std::string error = sink->wait(n_rows); !error.empty()) throw Error("{}", error);
    return INGOT_OK;
  });
}
