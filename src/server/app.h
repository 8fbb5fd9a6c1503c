// App: routes requests. It finds the route and checks the key. Quick requests (health, metrics, pages) are answered at
// once. Workers run the other handlers. `ingot serve` creates the App. Tests call the App without sockets.
#pragma once
#include <atomic>
#include <cstdio>

#include "base/workers.h"
#include "server/answers/kept_answers.h"
#include "server/api/api.h"
#include "server/http_metrics.h"
#include "server/models/model_pool.h"
#include "server/requests/access.h"
#include "server/requests/media_source.h"
#include "server/requests/rate_limit.h"
#include "server/web.h"

namespace ingot {

struct AppOptions {
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> origins;  // allowed in addition to the server's own and this machine's; "*" allows all
  bool only_local_hosts = false;     // refuse other names in the Host header (on loopback without a key)
  bool vllm_metrics = false;         // print the metrics a second time, under vllm:
  bool web_page = true;
  bool keep_billing_header = false;  // Claude Code's first line of /v1/messages stays in the prompt
  std::string version = "unknown", commit = "unknown", compiler = "unknown";
  std::FILE* access_log = nullptr;
  int prepare_threads = 2, stream_threads = 2;
  // How long tokens of a stream wait to share a write (Pacer): stream_interval_each times the number of open streams,
  // at most stream_interval. 0: every token is written separately.
  std::chrono::milliseconds stream_interval{33}, stream_interval_each = Pacer::kEach;
  int rate_limit = 0;  // requests a minute per key, or per address if there are no keys; 0: no limit
  RateLimit::Clock::time_point (*now)() = RateLimit::Clock::now;  // for the rate limit and kept answers
  std::chrono::seconds keep_answers{120};     // how long answers with a name are kept without a listener; 0: not
  size_t max_preparing = 1024;                // requests whose bodies wait for a worker
  std::shared_ptr<MemoryBudget> memory = {};  // for parsed requests; null: no limit
  MediaPolicy media = {};
};

enum class Phase { kLoading, kReady, kDraining, kDead };

class App final : public HttpHandler {
 public:
  App(const AppOptions& options, ModelPool& models);  // options and models must outlive the App
  ~App() override;

  // ---- the server's own state, any thread ----
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }
  int n_active() const { return n_active_; }  // requests in progress
  void reload_keys() { keys_.reload_if_changed(); }
  bool has_keys() const { return !keys_.empty(); }
  std::vector<std::shared_ptr<ServedModel>> models() const;  // the loaded models
  void tick() { kept_.tick(); }                              // call from time to time
  void stop_workers();
  HttpResponse health(const HttpRequest& request) const;
  HttpResponse metrics(const HttpRequest& request) const;

  // ---- HttpHandler ----
  std::optional<HttpResponse> refuse(HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<Responder> responder) override;
  HttpHeaders common_headers(const HttpRequest& head) override;
  void finished(const AccessRecord& record) override;

 private:
  struct Route;
  static const std::vector<Route>& routes();
  const Route* find_route(const std::string& method, const std::string& path) const;
  const WebAsset* find_asset(const HttpRequest& request) const;
  HttpResponse preflight(const HttpRequest& head) const;
  struct Job;
  void dispatch(HttpRequest request, std::shared_ptr<Responder> responder);
  std::string route_name(const std::string& path) const;
  void log_access(const AccessRecord& record) const;
  void run(const std::shared_ptr<Job>& job);
  void run_on_model(const std::shared_ptr<Job>& job, const std::shared_ptr<ServedModel>& model, const std::string& name);
  std::string model_name(const JsonValue& body, bool for_speech);
  std::optional<HttpResponse> over_limit(const HttpRequest& head);

  HttpResponse list_models(const HttpRequest& request) const;
  HttpResponse show_model(const HttpRequest& request) const;
  HttpResponse props(const HttpRequest& request) const;
  HttpResponse slots(const HttpRequest& request) const;
  HttpResponse version(const HttpRequest& request) const;
  HttpResponse ollama_tags(const HttpRequest& request) const;
  HttpResponse ollama_ps(const HttpRequest& request) const;
  HttpResponse ollama_version(const HttpRequest& request) const;
  HttpResponse unload(const std::string& name);
  void send_answer(const HttpRequest& request, const std::shared_ptr<Responder>& responder);
  void cancel_answer(const HttpRequest& request, const std::shared_ptr<Responder>& responder);
  void open_realtime(const HttpRequest& request, const std::shared_ptr<Responder>& responder);

  const AppOptions options_;
  ApiKeys keys_;
  const Origins origins_;
  RateLimit rate_limit_;
  KeptAnswers kept_;
  HttpMetrics http_metrics_;
  const std::time_t started_ = std::time(nullptr);
  std::atomic<Phase> phase_{Phase::kLoading};
  std::atomic<int> n_active_{0};
  std::atomic<size_t> n_preparing_{0};
  std::atomic<int> n_image_jobs_{0};
  std::atomic_flag told_other_name_;  // that a request has named a model other than the only one
  ModelPool& models_;
  Workers prepare_, stream_;
  Workers image_workers_;  // load and encode the images of requests, which takes long
  Workers speech_workers_;
  Pacer pacer_;
};

}  // namespace ingot
