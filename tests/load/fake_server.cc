// The server on the fake runner: tokens are known in advance and the step time is set, so load tests measure the server
// and not a model. Prints its address when it is ready.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/fake_runner.h"
#include "server/app.h"
#include "server/http/server.h"
#include "text/tokenizers/tokenizer_specs.h"

using namespace ingot;

namespace {

// Blocks the signals that end the server. Called before threads start, so that they inherit the mask.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGPIPE}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  sigdelset(&signals, SIGPIPE);
  return signals;
}

// What the model writes, and where it waits: before byte hold_at, while the file `hold` exists.
struct Written {
  std::string text, hold;
  size_t hold_at = 0;
};

// After the last turn's ChatML header, the model writes the text, then a stop token of the requests.
int32_t next_of(const Written& written, const SampleRow& row) {
  constexpr std::string_view kHeader = "assistant\n";
  const auto header = std::find_end(row.history.begin(), row.history.end(), kHeader.begin(), kHeader.end());
  const size_t n = static_cast<size_t>(std::max<ptrdiff_t>(0, row.history.end() - header - ptrdiff_t{kHeader.size()}));
  while (n == written.hold_at && !written.hold.empty() && std::filesystem::exists(written.hold))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return n < written.text.size() ? static_cast<unsigned char>(written.text[n]) : 256;
}

int serve(const FakeOptions& fake, const HttpServerOptions& http, const AppOptions& options, int queue_limit) {
  const sigset_t signals = block_signals();
  const FakeRunner* runner = nullptr;
  const auto load = [&] {
    ServedModelParts parts{.id = "fake",
                           .tokenizer = Tokenizer::create(testing::byte_level_spec()->view()),
                           .chat = ChatTemplate::chatml_default(),
                           .runner = std::make_unique<FakeRunner>(fake),
                           .queue_limit = queue_limit};
    runner = static_cast<FakeRunner*>(parts.runner.get());
    auto made = std::make_shared<ServedModel>(std::move(parts));
    made->start();
    return made;
  };
  ModelPool pool({{.id = "fake", .load = load}}, {});
  App app(options, pool);
  HttpServer server(http, app);
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
  model->stop();
  app.stop_workers();
  server.stop();
  if (!runner->violations().empty()) fmt::print(stderr, "violation: {}\n", runner->violations().front());
  return runner->violations().empty() ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  FakeOptions fake;
  fake.check_every = 16;  // enough, because clients check every token, which depends on the whole history
  RunnerInfo& info = fake.info;
  info.n_vocab = 259;
  info.n_ctx = 512;
  info.max_seqs = 1000;
  info.pools[0].n_blocks = 0;
  HttpServerOptions http{.port = 0, .max_connections = 20000};
  AppOptions options;
  int queue_limit = -1;
  CLI::App app("ingot's server on a model of known tokens");
  app.add_option("--port", http.port);
  app.add_option("--step-us", fake.step_us, "time of a step");
  app.add_option("--token-us", fake.token_us, "and of each of its tokens");
  app.add_option("--max-seqs", info.max_seqs);
  app.add_option("--ctx", info.n_ctx);
  app.add_option("--blocks", info.pools[0].n_blocks, "KV blocks of 16 tokens; 0: enough");
  app.add_option("--queue", queue_limit, "requests that may wait; -1: four times max-seqs");
  app.add_option("--api-key", options.api_keys);
  Written written;
  app.add_option("--writes", written.text, "every chat's answer, which token 256 ends");
  app.add_option("--hold", written.hold, "while this file exists, answers wait in their middle");
  int interval_ms = static_cast<int>(options.stream_interval.count());
  app.add_option("--stream-interval-ms", interval_ms);
  int ping_ms = static_cast<int>(http.ping_interval.count());
  app.add_option("--ping-ms", ping_ms, "milliseconds of silence before a stream sends a comment");
  CLI11_PARSE(app, argc, argv);
  written.hold_at = written.text.size() / 2;
  if (!written.text.empty()) fake.writes = [written](const SampleRow& row) { return next_of(written, row); };
  options.stream_interval = std::chrono::milliseconds(interval_ms);
  http.ping_interval = std::chrono::milliseconds(ping_ms);
  if (info.pools[0].n_blocks == 0) info.pools[0].n_blocks = info.max_seqs * (info.n_ctx / info.block_size + 1);
  info.max_batch_tokens = std::max(info.max_seqs, 4096);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return serve(fake, http, options, queue_limit >= 0 ? queue_limit : 4 * info.max_seqs);
}
