#include "server/answers/embed_run.h"

#include "base/error.h"

namespace ingot {
namespace {

// The state of a request. Its owner is the queue's callback, and later a worker's job.
struct Run {
  std::shared_ptr<ServedModel> model;
  std::shared_ptr<Responder> responder;
  std::string path;  // selects the API's form of errors
  ServedModel::Ticket ticket;
  std::function<std::string(EmbedAnswer)> body;
  size_t n_texts = 0, n_tokens = 0;
  Clock::time_point begin = Clock::now();
  std::atomic<bool> over{false};

  Run(const ApiCall& call, ServedModel::Ticket t, std::function<std::string(EmbedAnswer)> b)
      : model(call.model),
        responder(call.responder),
        path(call.request.path),
        ticket(std::move(t)),
        body(std::move(b)) {}

  void count(RequestEnd end, const EmbedQueue::Result& result) {
    model->metrics.on_end(end, {.prompt_tokens = static_cast<int>(n_tokens),
                                .queue_s = result.queue_s,
                                .prefill_s = result.compute_s,
                                .e2e_s = std::chrono::duration<double>(Clock::now() - begin).count()});
  }
  void abort(uint64_t id) {
    model->embeds().cancel(id);
    if (!over.exchange(true)) count(RequestEnd::kAbort, {});
  }
  void finish(EmbedQueue::Result result) {
    if (over.exchange(true)) return;
    try {
      if (result.failure == kOutOfMemory) throw no_memory();
      if (!result.failure.empty())
        throw ApiError(result.too_late ? 503 : 500, printable(result.failure), "",
                       result.too_late ? "queue_timeout" : "");
      HttpResponse response{.body = body({.rows = std::move(result.rows), .n_texts = n_texts, .n_tokens = n_tokens})};
      responder->note("prompt_tokens", std::to_string(n_tokens));
      count(RequestEnd::kStop, result);
      responder->respond(std::move(response));
    } catch (const ApiError& error) {
      count(RequestEnd::kError, result);
      responder->respond(error_for(path, error));
    }
  }
};

}  // namespace

void run_embeds(const ApiCall& call, ServedModel::Ticket ticket, std::vector<EmbedText> texts,
                std::function<std::string(EmbedAnswer)> body) {
  const auto run = std::make_shared<Run>(call, std::move(ticket), std::move(body));
  run->n_texts = texts.size();
  for (const EmbedText& text : texts) run->n_tokens += text.tokens.size();
  const auto done = [run, &workers = call.pacer.workers()](EmbedQueue::Result result) {
    workers.post(
        [run, result = std::make_shared<EmbedQueue::Result>(std::move(result))] { run->finish(std::move(*result)); });
  };
  const uint64_t id = call.model->embeds().submit(std::move(texts), done);
  call.responder->on_gone([id, weak = std::weak_ptr<Run>(run)] {
    if (const auto gone = weak.lock()) gone->abort(id);
  });
}

}  // namespace ingot
