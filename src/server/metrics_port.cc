#include "server/metrics_port.h"

#include <fmt/format.h>

#include "base/error.h"

namespace ingot {

std::optional<HttpResponse> MetricsPort::refuse(HttpRequest& head) {
  if (only_local_hosts_ && !is_local_host(head))
    return error_response(ApiError(403, "the Host header does not name this machine: use localhost"));
  if (head.path != "/metrics" && head.path != "/health")
    return error_response(ApiError(
        404, fmt::format("there is no {} on this port: it has /metrics and /health", printable(head.path, 128))));
  if (head.method == "GET") return std::nullopt;
  HttpResponse response = error_response(ApiError(405, head.path + " takes GET"));
  response.headers.emplace_back("Allow", "GET");
  return response;
}

void MetricsPort::handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  responder->respond(request.path == "/metrics" ? app_.metrics(request) : app_.health(request));
}

}  // namespace ingot
