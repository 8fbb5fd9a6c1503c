// The server on the fake runner: every token is known beforehand, and a step takes as long as it is told, so that load tests
// measure the server and not a model. fake_server PORT STEP_US MAX_SEQS N_CTX QUEUE
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "engine/fake_runner.h"
#include "server/app.h"
#include "server/http_server.h"
#include "text/tokenizer_specs.h"

using namespace ingot;

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int max_seqs = argument(3, 1000), n_ctx = argument(4, 512);
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGPIPE}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  sigdelset(&signals, SIGPIPE);

  FakeOptions fake{.info = {.n_vocab = 259,
                            .n_ctx = n_ctx,
                            .block_size = 16,
                            .n_blocks = max_seqs * (n_ctx / 16 + 1),
                            .max_batch_tokens = std::max(max_seqs, 4096),
                            .max_seqs = max_seqs},
                   .step_us = static_cast<double>(argument(2, 0))};
  const FakeRunner* runner = nullptr;
  const auto load = [&] {
    ServedModelParts parts{.id = "fake",
                           .tokenizer = Tokenizer::create(testing::byte_level_spec()->view()),
                           .chat = ChatTemplate::chatml_default(),
                           .runner = std::make_unique<FakeRunner>(fake),
                           .queue_limit = argument(5, 4 * max_seqs)};
    runner = static_cast<FakeRunner*>(parts.runner.get());
    auto made = std::make_shared<ServedModel>(std::move(parts));
    made->start();
    return made;
  };
  ModelPool pool({{.id = "fake", .load = load}}, {});
  App app(AppOptions{}, pool);
  HttpServer server({.port = argument(1, 0), .max_connections = 20000}, app);
  server.start();
  const auto model = pool.load_now("");
  app.set_phase(Phase::kReady);
  fmt::print("{}\n", server.address());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  app.set_phase(Phase::kDraining);
  server.drain();
  for (int i = 0; i < 3000 && app.n_active() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  model->engine().stop();
  app.stop_workers();
  server.stop();
  if (!runner->violations().empty()) fmt::print(stderr, "violation: {}\n", runner->violations().front());
  return runner->violations().empty() ? 0 : 3;
}
