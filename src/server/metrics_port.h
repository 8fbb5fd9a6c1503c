// MetricsPort: answers /metrics and /health on a separate port. The port serves only these figures and needs no key, so
// Prometheus and probes need none. `ingot serve --metrics-port` creates the MetricsPort.
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
