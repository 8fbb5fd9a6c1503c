// MetricsPort: answers /metrics and /health on a port of its own. No key is needed there, so that Prometheus and probes
// need none; the port gives figures only. `ingot serve --metrics-port` makes it.
#pragma once
#include "server/app.h"

namespace ingot {

class MetricsPort final : public HttpHandler {
 public:
  // `app` must outlive the MetricsPort. `only_local_hosts`: as in AppOptions, for a port on loopback.
  MetricsPort(const App& app, bool only_local_hosts) : app_(app), only_local_hosts_(only_local_hosts) {}

  std::optional<HttpResponse> refuse(HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<Responder> responder) override;
  HttpHeaders common_headers(const HttpRequest&) override { return {{"X-Content-Type-Options", "nosniff"}}; }
  void finished(const AccessRecord&) override {}

 private:
  const App& app_;
  const bool only_local_hosts_;
};

}  // namespace ingot
