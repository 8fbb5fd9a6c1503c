#include "server/app.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process_use.h"
#include "server/api/realtime.h"
#include "server/fields/known_fields.h"
#include "server/fields/media_fields.h"
#include "server/fields/request_fields.h"
#include "server/fields/speech_fields.h"
#include "server/http/web_socket.h"
#include "server/requests/fields.h"
#include "server/requests/request_memory.h"
#include "server/web.h"

namespace ingot {

// Loading waits for other servers, so one thread would let a slow one delay all images.
constexpr int kImageThreads = 4;

// The kind of model that a route needs.
enum class Needs { kAny, kWriter, kEmbedder, kRanker, kListener };

struct App::Route {
  const char* method;
  const char* path;                                                  // a final '/' makes it a prefix
  HttpResponse (App::*at_once)(const HttpRequest&) const = nullptr;  // or on_worker
  void (*on_worker)(const ApiCall&) = nullptr;
  AnswerSteps (*in_steps)(const ApiCall&) = nullptr;  // or on a worker for recordings, in turns with other answers
  HttpResponse (App::*of_name)(const std::string&) = nullptr;  // or, on a worker, without loading the model
  void (App::*of_answer)(const HttpRequest&, const std::shared_ptr<Responder>&) = nullptr;  // or of a kept answer
  void (App::*of_socket)(const HttpRequest&, const std::shared_ptr<Responder>&) = nullptr;  // or a WebSocket
  ApiRoute api = kChat;  // selects the known fields of the body
  bool takes_form = false;  // the body is a form with a file, not JSON
  Needs needs = Needs::kWriter;
  bool is_public = false;
  bool while_loading = false;
};

const std::vector<App::Route>& App::routes() {
  static const std::vector<Route> kRoutes = {
      {.method = "GET", .path = "/health", .at_once = &App::health, .is_public = true, .while_loading = true},
      {.method = "GET", .path = "/v1/health", .at_once = &App::health, .is_public = true, .while_loading = true},
      {.method = "GET", .path = "/metrics", .at_once = &App::metrics, .while_loading = true},
      {.method = "GET", .path = "/ping", .at_once = &App::health, .is_public = true, .while_loading = true},
      {.method = "POST", .path = "/ping", .at_once = &App::health, .is_public = true, .while_loading = true},
      {.method = "GET", .path = "/version", .at_once = &App::version, .while_loading = true},
      {.method = "GET", .path = "/v1/models", .at_once = &App::list_models},
      {.method = "GET", .path = "/models", .at_once = &App::list_models},
      {.method = "GET", .path = "/v1/models/", .at_once = &App::show_model},
      {.method = "GET", .path = "/props", .at_once = &App::props},
      {.method = "GET", .path = "/slots", .at_once = &App::slots},
      {.method = "POST", .path = "/slots/", .on_worker = answer_slot, .api = kSlot},
      {.method = "GET", .path = "/api/tags", .at_once = &App::ollama_tags},
      {.method = "GET", .path = "/api/ps", .at_once = &App::ollama_ps},
      {.method = "GET", .path = "/api/version", .at_once = &App::ollama_version, .while_loading = true},
      {.method = "POST", .path = "/v1/chat/completions", .on_worker = answer_chat},
      {.method = "POST", .path = "/chat/completions", .on_worker = answer_chat},
      {.method = "POST", .path = "/v1/completions", .on_worker = answer_completions, .api = kCompletions},
      {.method = "POST", .path = "/v1/chat/completions/render", .on_worker = answer_chat_render},
      {.method = "POST", .path = "/v1/completions/render", .on_worker = answer_completions_render, .api = kCompletions},
      {.method = "POST", .path = "/v1/responses", .on_worker = answer_responses, .api = kResponses},
      {.method = "POST", .path = "/v1/messages", .on_worker = answer_messages, .api = kMessages},
      {.method = "POST", .path = "/v1/messages/count_tokens", .on_worker = answer_count_tokens, .api = kCountTokens},
      {.method = "POST",
       .path = "/v1/embeddings",
       .on_worker = answer_embeddings,
       .api = kEmbeddings,
       .needs = Needs::kEmbedder},
      {.method = "POST",
       .path = "/embeddings",
       .on_worker = answer_embeddings,
       .api = kEmbeddings,
       .needs = Needs::kEmbedder},
      {.method = "POST", .path = "/v1/rerank", .on_worker = answer_rerank, .api = kRerank, .needs = Needs::kRanker},
      {.method = "POST", .path = "/rerank", .on_worker = answer_rerank, .api = kRerank, .needs = Needs::kRanker},
      {.method = "POST", .path = "/v1/reranking", .on_worker = answer_rerank, .api = kRerank, .needs = Needs::kRanker},
      {.method = "POST", .path = "/reranking", .on_worker = answer_rerank, .api = kRerank, .needs = Needs::kRanker},
      {.method = "POST",
       .path = "/v1/audio/transcriptions",
       .in_steps = answer_transcriptions,
       .api = kAudio,
       .takes_form = true,
       .needs = Needs::kListener},
      {.method = "POST",
       .path = "/v1/audio/translations",
       .in_steps = answer_translations,
       .api = kAudio,
       .takes_form = true,
       .needs = Needs::kListener},
      {.method = "POST",
       .path = "/inference",
       .in_steps = answer_transcriptions,
       .api = kInference,
       .takes_form = true,
       .needs = Needs::kListener},
      {.method = "GET", .path = "/v1/realtime", .of_socket = &App::open_realtime, .needs = Needs::kListener},
      {.method = "POST", .path = "/tokenize", .on_worker = answer_tokenize, .api = kTokenize, .needs = Needs::kAny},
      {.method = "POST",
       .path = "/detokenize",
       .on_worker = answer_detokenize,
       .api = kDetokenize,
       .needs = Needs::kAny},
      {.method = "POST", .path = "/apply-template", .on_worker = answer_template, .api = kTemplate},
      {.method = "POST", .path = "/completion", .on_worker = answer_llama_completion, .api = kLlamaCompletion},
      {.method = "POST", .path = "/completions", .on_worker = answer_llama_completion, .api = kLlamaCompletion},
      {.method = "POST", .path = "/infill", .on_worker = answer_llama_infill, .api = kLlamaInfill},
      {.method = "GET", .path = "/answers/", .of_answer = &App::send_answer},
      {.method = "DELETE", .path = "/answers/", .of_answer = &App::cancel_answer},
      {.method = "POST", .path = "/models/load", .on_worker = answer_load, .api = kModelName, .needs = Needs::kAny},
      {.method = "POST", .path = "/models/unload", .of_name = &App::unload, .api = kModelName},
      {.method = "POST", .path = "/api/chat", .on_worker = answer_ollama_chat, .api = kOllamaChat},
      {.method = "POST", .path = "/api/generate", .on_worker = answer_ollama_generate, .api = kOllamaGenerate},
      {.method = "POST",
       .path = "/api/embed",
       .on_worker = answer_ollama_embed,
       .api = kOllamaEmbed,
       .needs = Needs::kEmbedder},
      {.method = "POST",
       .path = "/api/embeddings",
       .on_worker = answer_ollama_embeddings,
       .api = kOllamaEmbeddings,
       .needs = Needs::kEmbedder},
      {.method = "POST",
       .path = "/api/show",
       .on_worker = answer_ollama_show,
       .api = kOllamaModel,
       .needs = Needs::kAny},
      {.method = "POST",
       .path = "/api/pull",
       .on_worker = answer_ollama_pull,
       .api = kOllamaModel,
       .needs = Needs::kAny},
  };
  return kRoutes;
}

namespace {

bool matches(std::string_view route, std::string_view path) {
  return route.ends_with('/') && route.size() > 1 ? path.size() > route.size() && path.starts_with(route)
                                                  : path == route;
}

bool is_harmless_id(const std::string& id) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("-_.:").find(c) != std::string_view::npos;
  };
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, is_plain);
}

bool is_json_type(const std::string& type) {
  const std::string_view bare = std::string_view(type).substr(0, type.find(';'));
  const bool is_json = bare == "application/json" || bare == "application/json ";
  const size_t charset = type.find("charset=");
  return is_json &&
         (charset == type.npos || type.find("utf-8", charset) != type.npos || type.find("UTF-8", charset) != type.npos);
}

// Ollama's documentation uses plain `curl -d`, which declares the body as a form. Browsers let pages of other sites
// send this type without a preflight, but always with an Origin header.
bool is_curl_for_ollama(const HttpRequest& head, const std::string& type) {
  return type == "application/x-www-form-urlencoded" && head.path.starts_with("/api/") && !head.header("origin");
}

// Runs a handler and answers with an error if it throws.
template <class F>
void answer_errors(const std::string& path, const std::shared_ptr<Responder>& responder, F f) {
  const auto fail = [&](const ApiError& error) { responder->respond(error_for(path, error)); };
  try {
    f();
  } catch (const ApiError& error) {
    fail(error);
  } catch (const Error& error) {
    fail(ApiError(400, printable(error.what(), 1024)));
  } catch (const std::bad_alloc&) {
    fail(no_memory());
  } catch (const std::exception& error) {
    log_warn("a request failed: {}", error.what());
    fail(ApiError(500, "the request failed inside the server"));
  }
}

// Ollama's older clients call the model `name`.
void use_older_name(JsonValue& body) {
  const auto name = Fields(body).string("name", 1024);
  if (name && !body.contains("model")) body["model"] = *name;
}

// Throws ApiError if the model is of the wrong kind for the route.
void check_kind(Needs needs, const ServedModel& model) {
  const Needs is = model.writes()  ? Needs::kWriter
                   : model.hears() ? Needs::kListener
                   : model.ranks() ? Needs::kRanker
                                   : Needs::kEmbedder;
  if (needs == Needs::kAny || needs == is) return;
  const char* does = is == Needs::kWriter     ? "writes text: use /v1/chat/completions or /v1/completions"
                     : is == Needs::kListener ? "transcribes recordings: use /v1/audio/transcriptions"
                     : is == Needs::kRanker   ? "ranks documents for a query: use /v1/rerank"
                                              : "embeds texts: use /v1/embeddings";
  const char* wanted = needs == Needs::kWriter     ? "this route needs a model that writes text"
                       : needs == Needs::kListener ? "this route needs a speech model"
                       : needs == Needs::kRanker   ? "this route needs a cross-encoder"
                                                   : "this route needs an embedding model";
  throw ApiError(400, fmt::format("the model '{}' {}; {}", printable(model.id(), 128), does, wanted), "model");
}

}  // namespace

// A request that waits for a worker, and perhaps for its model.
struct App::Job {
  Job(App& owner, const Route& to, HttpRequest r, std::shared_ptr<Responder> a)
      : app(owner), route(to), memory(app.options_.memory), request(std::move(r)), responder(std::move(a)) {
    ++app.n_preparing_;
  }
  ~Job() { --app.n_preparing_; }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  App& app;
  const Route& route;
  MemoryBudget::Part memory;  // of `body`
  HttpRequest request;
  JsonValue body;  // the parsed body; request.body is then empty, if it was JSON
  std::string_view file;  // in request.body, of a form
  const std::shared_ptr<Responder> responder;
};

App::App(const AppOptions& options, ModelPool& models)
    : options_(options),
      keys_(options.api_keys, options.api_key_file),
      origins_(options.origins),
      rate_limit_(options.rate_limit, options.now),
      kept_({.time = options.keep_answers, .now = options.now, .memory = options.memory}),
      models_(models),
      prepare_(options.prepare_threads),
      stream_(options.stream_threads),
      image_workers_(kImageThreads),
      speech_workers_(kSpeechThreads),
      pacer_(stream_, options.stream_interval, options.stream_interval_each) {}

App::~App() { stop_workers(); }

void App::stop_workers() {
  prepare_.stop();
  image_workers_.stop();
  speech_workers_.stop();
  stream_.stop();
}

std::vector<std::shared_ptr<ServedModel>> App::models() const {
  std::vector<std::shared_ptr<ServedModel>> loaded;
  for (ModelPool::Row& row : models_.rows())
    if (row.model) loaded.push_back(std::move(row.model));
  return loaded;
}

// ---- the head ----

const App::Route* App::find_route(const std::string& method, const std::string& path) const {
  for (const Route& route : routes())
    if (matches(route.path, path) && method == route.method) return &route;
  return nullptr;
}

const WebAsset* App::find_asset(const HttpRequest& request) const {
  const bool wanted = request.method == "GET" && (options_.web_page || request.path == "/openapi.json");
  return wanted ? find_web_asset(request.path) : nullptr;
}

HttpResponse App::preflight(const HttpRequest& head) const {
  if (!origins_.allows(head))
    return error_response(ApiError(403, "this origin may not use the server: allow it with --cors-origins"));
  return {.status = 204,
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                      {"Access-Control-Allow-Headers",
                       "Authorization, Content-Type, X-Api-Key, X-Request-Id, X-Keep-Answer, *"},
                      {"Access-Control-Max-Age", "86400"}}};
}

std::optional<HttpResponse> App::refuse(HttpRequest& head) {
  const std::string* id = head.header("x-request-id");
  head.id = id && is_harmless_id(*id) ? *id : random_id("req-");
  head.client = ApiKeys::shown(head);
  const auto refused = [&](int status, const std::string& message) {
    return error_for(head.path, ApiError(status, message));
  };
  if (options_.only_local_hosts && keys_.empty()) {
    if (!is_local_host(head))
      return refused(403,
                     "the Host header does not name this machine: use localhost, or start the server with --api-key");
    if (!origins_.allows(head)) return refused(403, "this origin may not use the server: allow it with --cors-origins");
  }
  if (head.method == "OPTIONS") return preflight(head);
  const WebAsset* asset = find_asset(head);
  const Route* route = find_route(head.method, head.path);
  const bool is_public = asset || (route && route->is_public);
  if (!is_public && !keys_.accept(head))
    return refused(401, "a valid API key is needed: send it as 'Authorization: Bearer KEY'");
  if (asset) return std::nullopt;
  if (!route) {
    std::string allowed;
    for (const Route& other : routes())
      if (matches(other.path, head.path)) allowed += (allowed.empty() ? "" : ", ") + std::string(other.method);
    if (allowed.empty()) return refused(404, fmt::format("there is no {}", printable(head.path, 128)));
    HttpResponse response = refused(405, fmt::format("{} takes {}", head.path, allowed));
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (!route->while_loading && phase_ != Phase::kReady)
    return refused(503, phase_ == Phase::kLoading ? "the model is being loaded" : "the server is shutting down");
  const bool has_body = route->on_worker || route->in_steps || route->of_name;
  if (has_body || route->of_socket)
    if (auto refusal = over_limit(head)) return refusal;
  const std::string* type = head.header("content-type");
  if (has_body && route->takes_form && (!type || !type->starts_with("multipart/form-data")))
    return refused(415, "the body must be a form with a file: send it as Content-Type: multipart/form-data");
  if (has_body && !route->takes_form && type && !is_json_type(*type) && !is_curl_for_ollama(head, *type))
    return refused(415, "the body must be JSON in UTF-8: send it as Content-Type: application/json");
  return std::nullopt;
}

// Keys identify clients only if the server checks the keys. Otherwise addresses identify them.
std::optional<HttpResponse> App::over_limit(const HttpRequest& head) {
  const auto seconds = rate_limit_.take(keys_.empty() ? head.peer : head.client);
  if (!seconds) return std::nullopt;
  const std::string message =
      fmt::format("more than {} requests a minute: try again in {} s", options_.rate_limit, *seconds);
  HttpResponse response = error_for(head.path, ApiError(429, message, "", "rate_limit_exceeded"));
  for (auto& [name, value] : response.headers)
    if (name == "Retry-After") value = std::to_string(*seconds);
  return response;
}

HttpHeaders App::common_headers(const HttpRequest& head) {
  HttpHeaders headers = origins_.headers(head);
  if (!head.id.empty()) headers.emplace_back("X-Request-Id", head.id);
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  return headers;
}

// ---- the request ----

void App::handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  const std::string path = request.path;
  ++n_active_;  // from here on, nothing may throw: finished() counts down
  try {
    answer_errors(path, responder, [&] { dispatch(std::move(request), responder); });
  } catch (const std::exception& error) {  // the destroyed responder answers
    log_warn("a request was dropped: {}", error.what());
  }
}

void App::dispatch(HttpRequest request, std::shared_ptr<Responder> responder) {
  if (const WebAsset* asset = find_asset(request)) return responder->respond(web_response(*asset, request));
  const Route* route = find_route(request.method, request.path);  // not null: refuse() has checked the path
  if (route->at_once) {
    return answer_errors(request.path, responder, [&] { responder->respond((this->*route->at_once)(request)); });
  }
  if (route->of_answer) {
    return answer_errors(request.path, responder, [&] { (this->*route->of_answer)(request, responder); });
  }
  if (route->of_socket) {
    return answer_errors(request.path, responder, [&] { (this->*route->of_socket)(request, responder); });
  }
  if (n_preparing_ >= options_.max_preparing)
    return responder->respond(error_for(
        request.path, ApiError(429, "the server is busy reading requests; try again soon", "", "queue_full")));
  responder = kept_.keep(request, std::move(responder));
  prepare_.post(
      [this, job = std::make_shared<Job>(*this, *route, std::move(request), std::move(responder))] { run(job); });
}

// Runs on a worker. The handler runs on that worker too, or on the thread that loads the model.
void App::run(const std::shared_ptr<Job>& job) {
  const auto guarded = [](const Job& j, auto f) { answer_errors(j.request.path, j.responder, f); };
  guarded(*job, [&] {
    if (job->route.takes_form) {
      job->body = form_as_json(job->request, job->request.body, job->file);
    } else {
      take_memory(job->memory, json_bytes(job->request.body));
      const bool may_be_empty = job->route.api == kSlot;  // action=erase needs no fields
      job->body = may_be_empty && job->request.body.empty() ? JsonValue::object()
                                                            : parse_request_json(std::exchange(job->request.body, {}));
    }
    check_fields(job->route.api, job->body);
    if (job->route.api == kOllamaModel) use_older_name(job->body);
    const std::string name = model_name(job->body, job->route.needs == Needs::kListener);
    if (job->route.of_name) return job->responder->respond((this->*job->route.of_name)(name));
    models_.acquire(name, [this, job, guarded, name](std::shared_ptr<ServedModel> model, const std::string& failure) {
      guarded(*job, [&] {
        if (!model) throw ApiError(503, "the model could not be loaded: " + printable(failure, 512));
        check_kind(job->route.needs, *model);
        if (job->route.in_steps)
          return speech_workers_.post([this, job, guarded, model, name] {
            guarded(*job, [&] { run_on_model(job, model, name); });
          });
        if (!model->media() || !has_media(job->body)) return run_on_model(job, model, name);
        if (n_image_jobs_ >= options_.media.max_queue)
          throw ApiError(
              429,
              fmt::format("the server is busy with {} requests that have images or recordings; try again soon",
                          n_image_jobs_.load()),
              "", "image_queue_full");
        ++n_image_jobs_;
        const std::shared_ptr<void> counted(this, [](void* app) { --static_cast<App*>(app)->n_image_jobs_; });
        image_workers_.post([this, job, guarded, model, name, counted] {
          guarded(*job, [&] { run_on_model(job, model, name); });
        });
      });
    });
  });
}

void App::run_on_model(const std::shared_ptr<Job>& job, const std::shared_ptr<ServedModel>& model,
                       const std::string& name) {
  const ApiCall call{job->request, job->body, model,          job->responder, pacer_, options_.keep_billing_header,
                     models_,      name,      options_.media, job->file};
  if (!job->route.in_steps) return job->route.on_worker(call);
  speech_workers_.post_steps([job, next = job->route.in_steps(call)] {
    bool goes_on = false;
    answer_errors(job->request.path, job->responder, [&] { goes_on = next(); });
    return goes_on;
  });
}

// The model that the body names. With a single model, any name means that model. The same holds for the only speech
// model on routes for recordings, and for the only other model on the other routes.
std::string App::model_name(const JsonValue& body, bool for_speech) {
  const std::string name = Fields(body).string("model", 1024).value_or("");
  if (models_.size() == 1) {
    if (!name.empty() && !models_.knows(name) && !told_other_name_.test_and_set())
      log_warn(
          "a request names the model '{}', but the server's only model answers all requests; this warning is shown "
          "once",
          printable(name, 128));
    return "";
  }
  const bool is_known = !name.empty() && models_.knows(name);
  if (const auto only = is_known ? std::nullopt : models_.only_of(for_speech)) return *only;
  if (name.empty())
    throw ApiError(400, "model is missing: the server has several models; /v1/models lists them", "model");
  if (models_.knows(name)) return name;
  throw ApiError(404, fmt::format("there is no model '{}'; /v1/models lists them", printable(name, 128)), "model",
                 "model_not_found");
}

static std::string answer_name(const HttpRequest& request) {
  return request.path.substr(std::string_view("/answers/").size());
}

void App::send_answer(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  kept_.send(request, answer_name(request), responder);
}

void App::cancel_answer(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  const bool stopped = kept_.cancel(request, answer_name(request));
  responder->respond({.body = dump_json({{"stopped", stopped}})});
}

// Sessions run on the workers for recordings.
void App::open_realtime(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  const HttpHeaders accept = accept_socket(request);
  models_.acquire(model_name(JsonValue::object(), true), [this, accept, responder, path = request.path](
                                                             std::shared_ptr<ServedModel> model,
                                                             const std::string& failure) {
    answer_errors(path, responder, [&] {
      if (!model) throw ApiError(503, "the model could not be loaded: " + printable(failure, 512));
      check_kind(Needs::kListener, *model);
      ServedModel::Ticket ticket = admit(*model, 1);
      start_realtime(std::move(model), std::move(ticket), accept, responder, speech_workers_);
    });
  });
}

void App::finished(const AccessRecord& r) {
  if (r.handled) --n_active_;
  try {
    http_metrics_.count(route_name(r.path), r.method, r.status, r.ms * 1e-3);
    if (options_.access_log) log_access(r);
  } catch (const std::exception& error) {
    log_warn("a line of the access log is lost: {}", error.what());
  }
}

// For metrics: the route's own path, "page" for the pages' files, or "other". The list of names is finite.
std::string App::route_name(const std::string& path) const {
  for (const Route& route : routes())
    if (matches(route.path, path)) return route.path;
  return find_web_asset(path) ? "page" : "other";
}

void App::log_access(const AccessRecord& r) const {
  JsonValue line = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                    {"id", r.id},
                    {"peer", r.peer},
                    {"method", r.method},
                    {"path", r.path},
                    {"status", r.status},
                    {"ms", std::round(r.ms * 1e3) / 1e3},
                    {"bytes_in", r.bytes_in},
                    {"bytes_out", r.bytes_out}};
  if (r.gone) line["gone"] = true;
  for (const auto& [name, value] : r.notes) line[name] = JsonValue::parse(value, nullptr, false);
  std::fprintf(options_.access_log, "%s\n", dump_json(line).c_str());
  std::fflush(options_.access_log);
}

// ---- answers without a worker ----

HttpResponse App::health(const HttpRequest&) const {
  const auto models = this->models();
  // This check finds a fault earlier than the watchdog.
  const bool is_well = std::ranges::all_of(models, [](const auto& model) { return model->fault().empty(); });
  if (phase_ == Phase::kReady && is_well) return {.body = R"({"status":"ok"})"};
  const char* message = phase_ == Phase::kLoading    ? "Loading model"
                        : phase_ == Phase::kDraining ? "Shutting down"
                                                     : "The engine does not answer";
  return {.status = 503,
          .body = dump_json({{"error", {{"code", 503}, {"message", message}, {"type", "unavailable_error"}}}}),
          .headers = {{"Retry-After", "1"}}};
}

static void print_process(std::string& out, std::time_t started, const AppOptions& options) {
  const auto line = [&](const char* name, const char* type, const char* help, const std::string& value) {
    if (value != "0") out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
  };
  const ProcessUse use = process_use();
  line("process_start_time_seconds", "gauge", "When the server started.", std::to_string(started));
  line("process_cpu_seconds_total", "counter", "Processor time of all threads.", fmt::format("{}", use.cpu_s));
  line("process_resident_memory_bytes", "gauge", "Memory in use.", std::to_string(use.resident_bytes));
  line("process_virtual_memory_bytes", "gauge", "Memory that is mapped.", std::to_string(use.virtual_bytes));
  line("process_open_fds", "gauge", "Open files and connections.", std::to_string(use.open_files));
  line("process_max_fds", "gauge", "Limit of open files and connections.", std::to_string(use.max_open_files));
  const std::string build = fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{0}", "ingot_build_info",
                                        "The program: its version, the commit and the compiler of its build.");
  out += fmt::format("{}{{version=\"{}\",commit=\"{}\",compiler=\"{}\"}} 1\n", build, options.version, options.commit,
                     options.compiler);
}

HttpResponse App::metrics(const HttpRequest&) const {
  std::string out;
  print_process(out, started_, options_);
  http_metrics_.print(out);
  const auto all = models();  // keeps the models alive
  std::vector<MetricsSource> sources;
  for (const auto& model : all)
    sources.push_back({model->metrics, model->gauges(), model->info(), model->facts().devices,
                       model->media() ? model->media()->figures() : MediaFigures{}});
  print_metrics(out, "ingot:", sources);
  if (options_.vllm_metrics) print_metrics(out, "vllm:", sources);
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(out)};
}

}  // namespace ingot
