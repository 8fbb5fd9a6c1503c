#include "server/requests/http.h"

#include <algorithm>

#include "base/json.h"
#include "server/requests/fields.h"

namespace ingot {
namespace {

struct StatusRow {
  int status;
  const char* text;
  const char* type;  // the type in OpenAI's error object
  const char* anthropic_type;
};

constexpr StatusRow kStatuses[] = {
    {101, "Switching Protocols", "", ""},
    {200, "OK", "", ""},
    {204, "No Content", "", ""},
    {304, "Not Modified", "", ""},
    {400, "Bad Request", "invalid_request_error", "invalid_request_error"},
    {401, "Unauthorized", "authentication_error", "authentication_error"},
    {403, "Forbidden", "permission_error", "permission_error"},
    {404, "Not Found", "not_found_error", "not_found_error"},
    {405, "Method Not Allowed", "invalid_request_error", "invalid_request_error"},
    {408, "Request Timeout", "invalid_request_error", "invalid_request_error"},
    {409, "Conflict", "invalid_request_error", "invalid_request_error"},
    {411, "Length Required", "invalid_request_error", "invalid_request_error"},
    {413, "Content Too Large", "invalid_request_error", "request_too_large"},
    {414, "URI Too Long", "invalid_request_error", "invalid_request_error"},
    {415, "Unsupported Media Type", "invalid_request_error", "invalid_request_error"},
    {426, "Upgrade Required", "invalid_request_error", "invalid_request_error"},
    {429, "Too Many Requests", "rate_limit_error", "rate_limit_error"},
    {431, "Request Header Fields Too Large", "invalid_request_error", "invalid_request_error"},
    {500, "Internal Server Error", "server_error", "api_error"},
    {501, "Not Implemented", "not_supported_error", "invalid_request_error"},
    {503, "Service Unavailable", "unavailable_error", "overloaded_error"},
    {505, "HTTP Version Not Supported", "invalid_request_error", "invalid_request_error"},
};

const StatusRow& row_of(int status) {
  const auto row = std::ranges::find(kStatuses, status, &StatusRow::status);
  return row != std::end(kStatuses) ? *row : row_of(500);
}

HttpResponse response_of(const ApiError& error, std::string body) {
  HttpResponse response{.status = error.status(), .body = std::move(body)};
  if (error.status() == 429 || error.status() == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

const char* status_text(int status) { return row_of(status).text; }

const char* ApiError::type() const { return row_of(status_).type; }

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}

ApiError no_memory() { return ApiError(503, "there is not enough memory for this request"); }

std::string error_object(const ApiError& error) {
  auto or_null = [](const std::string& text) { return text.empty() ? JsonValue() : JsonValue(text); };
  return dump_json({{"error",
                     {{"message", error.what()},
                      {"type", error.type()},
                      {"param", or_null(error.param())},
                      {"code", or_null(error.code())}}}});
}

std::string anthropic_error_object(const ApiError& error) {
  const JsonValue detail = {{"type", row_of(error.status()).anthropic_type}, {"message", error.what()}};
  return dump_json({{"type", "error"}, {"error", detail}});
}

std::string ollama_error_object(const ApiError& error) { return dump_json({{"error", error.what()}}); }

HttpResponse ollama_error_response(const ApiError& error) { return response_of(error, ollama_error_object(error)); }

HttpResponse error_for(const std::string& path, const ApiError& error) {
  if (path.starts_with("/v1/messages")) return anthropic_error_response(error);
  return path.starts_with("/api/") ? ollama_error_response(error) : error_response(error);
}

HttpResponse error_response(const ApiError& error) { return response_of(error, error_object(error)); }

HttpResponse anthropic_error_response(const ApiError& error) {
  return response_of(error, anthropic_error_object(error));
}

}  // namespace ingot
