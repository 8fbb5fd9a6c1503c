#include "cli/bench/load_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "cli/terminal/terminal.h"
#include "io/hub/libcurl.h"

namespace ingot {
namespace {

using SteadyClock = std::chrono::steady_clock;

// libcurl handles that close themselves.
struct CloseEasy {
  void operator()(CURL* handle) const { libcurl().easy_cleanup(handle); }
};
struct CloseMulti {
  void operator()(CURLM* handle) const { libcurl().multi_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { libcurl().slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeList>;

Headers request_headers(const std::string& api_key) {
  Headers headers(libcurl().slist_append(nullptr, "Content-Type: application/json"));
  if (!api_key.empty()) libcurl().slist_append(headers.get(), ("Authorization: Bearer " + api_key).c_str());
  return headers;
}

// A request in flight.
struct Transfer {
  std::unique_ptr<CURL, CloseEasy> handle;
  std::string body, pending;
  LoadResult* result = nullptr;
  SteadyClock::time_point due, last;
  bool done = false;

  void on_bytes(std::string_view bytes) {
    pending += bytes;
    const auto now = SteadyClock::now();
    size_t begin = 0;
    for (size_t end; (end = pending.find("\n\n", begin)) != std::string::npos; begin = end + 2)
      on_event(std::string_view(pending).substr(begin, end - begin), now);
    pending.erase(0, begin);
  }

  void on_event(std::string_view event, SteadyClock::time_point now) {
    if (event == "data: [DONE]") done = true;
    count_of(event);
    // A token's event has a non-empty text. The last event before the end has a finish reason instead.
    if (event.find("\"text\":\"") == event.npos || event.find("\"text\":\"\"") != event.npos) return;
    if (result->n_events++ == 0) {
      result->first = std::chrono::duration<double>(now - due).count();
    } else {
      result->gaps.push_back(std::chrono::duration<float>(now - last).count());
    }
    last = now;
    result->last = std::chrono::duration<double>(now - due).count();
  }

  // The last event gives the number of tokens. There may be more tokens than events, because one event may have several
  // tokens, and several tokens may form one character.
  void count_of(std::string_view event) {
    constexpr std::string_view kCount = "\"completion_tokens\":";
    size_t at = event.find(kCount);
    if (at == event.npos) return;
    at += kCount.size();
    while (at < event.size() && event[at] == ' ') ++at;
    std::from_chars(event.data() + at, event.data() + event.size(), result->n_output);
  }
};

size_t take_bytes(char* bytes, size_t size, size_t n, void* transfer) {
  static_cast<Transfer*>(transfer)->on_bytes({bytes, size * n});
  return size * n;
}

size_t take_text(char* bytes, size_t size, size_t n, void* text) {
  static_cast<std::string*>(text)->append(bytes, size * n);
  return size * n;
}

class LoadLoop {
 public:
  explicit LoadLoop(const LoadPlan& plan)
      : plan_(plan), multi_(libcurl().multi_init()), headers_(request_headers(plan.api_key)), random_(plan.seed) {
    run_.results.resize(static_cast<size_t>(plan.n_requests));
    transfers_.resize(run_.results.size());
    libcurl().multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, 4096L);
    if (plan.rate > 0) {
      std::exponential_distribution<double> gap(plan.rate);
      for (double t = 0; due_.size() < run_.results.size(); t += gap(random_)) due_.push_back(t);
    }
  }

  LoadRun run() {
    begin_ = SteadyClock::now();
    size_t n_started = 0, n_over = 0;
    while (n_over < run_.results.size()) {
      if (InterruptGuard::interrupted()) throw Error("interrupted");
      while (n_started < run_.results.size() && may_start(n_started, n_over)) start(n_started++);
      int n_running = 0;
      libcurl().multi_perform(multi_.get(), &n_running);
      int n_left = 0;
      while (const CURLMsg* message = libcurl().multi_info_read(multi_.get(), &n_left)) {
        if (message->msg == CURLMSG_DONE) n_over += finish(message->easy_handle, message->data.result);
      }
      if (n_over < run_.results.size()) libcurl().multi_poll(multi_.get(), nullptr, 0, wait_ms(n_started), nullptr);
    }
    run_.seconds = seconds();
    return std::move(run_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(SteadyClock::now() - begin_).count(); }

  bool may_start(size_t n_started, size_t n_over) const {
    if (plan_.rate > 0) return seconds() >= due_[n_started];
    return n_started - n_over < static_cast<size_t>(plan_.concurrency);
  }

  int wait_ms(size_t n_started) const {
    if (plan_.rate <= 0 || n_started == due_.size()) return 100;
    return std::clamp(static_cast<int>((due_[n_started] - seconds()) * 1e3), 0, 100);
  }

  void start(size_t i) {
    LoadResult& result = run_.results[i];
    result.n_prompt = plan_.prompt_tokens[i];
    result.due = plan_.rate > 0 ? due_[i] : seconds();
    nlohmann::json body = {{"stream", true},
                           {"stream_options", {{"include_usage", true}}},
                           {"max_tokens", plan_.output_tokens[i]},
                           {"ignore_eos", true},
                           {"temperature", 0},  // as in other benchmarks, sampling is not measured
                           {"seed", plan_.seed + i}};
    if (!plan_.model.empty()) body["model"] = plan_.model;
    std::uniform_int_distribution<int> id(std::min(4, plan_.n_vocab - 1), plan_.n_vocab - 1);
    for (int k = 0; k < result.n_prompt; ++k) body["prompt"].push_back(id(random_));

    transfers_[i] = std::make_unique<Transfer>();
    Transfer& transfer = *transfers_[i];
    transfer.handle.reset(libcurl().easy_init());
    transfer.body = body.dump();
    transfer.result = &result;
    transfer.due = transfer.last =
        begin_ + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(result.due));
    CURL* handle = transfer.handle.get();
    libcurl().easy_setopt(handle, CURLOPT_URL, (plan_.url + "/v1/completions").c_str());
    libcurl().easy_setopt(handle, CURLOPT_POSTFIELDS, transfer.body.c_str());
    libcurl().easy_setopt(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(transfer.body.size()));
    libcurl().easy_setopt(handle, CURLOPT_HTTPHEADER, headers_.get());
    libcurl().easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_bytes);
    libcurl().easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    libcurl().easy_setopt(handle, CURLOPT_PRIVATE, &transfer);
    libcurl().easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    libcurl().multi_add_handle(multi_.get(), handle);
  }

  size_t finish(CURL* handle, CURLcode code) {
    Transfer* transfer = nullptr;
    libcurl().easy_getinfo(handle, CURLINFO_PRIVATE, &transfer);
    libcurl().easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &transfer->result->status);
    transfer->result->ok = code == CURLE_OK && transfer->result->status == 200 && transfer->done;
    libcurl().multi_remove_handle(multi_.get(), handle);
    transfer->handle.reset();
    transfer->body.clear();
    return 1;
  }

  const LoadPlan& plan_;
  std::unique_ptr<CURLM, CloseMulti> multi_;
  const Headers headers_;
  std::mt19937_64 random_;
  std::vector<double> due_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  LoadRun run_;
  SteadyClock::time_point begin_;
};

}  // namespace

void ask_model(LoadPlan& plan) {
  std::string answer;
  const std::unique_ptr<CURL, CloseEasy> handle(libcurl().easy_init());
  const Headers headers = request_headers(plan.api_key);
  libcurl().easy_setopt(handle.get(), CURLOPT_URL, (plan.url + "/v1/models").c_str());
  libcurl().easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  libcurl().easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, take_text);
  libcurl().easy_setopt(handle.get(), CURLOPT_WRITEDATA, &answer);
  libcurl().easy_setopt(handle.get(), CURLOPT_TIMEOUT, 30L);
  const CURLcode code = libcurl().easy_perform(handle.get());
  if (code != CURLE_OK) throw Error("{} does not answer: {}", printable(plan.url), libcurl().easy_strerror(code));
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  if (!json.is_object() || !json.contains("data") || !json["data"].is_array() || json["data"].empty())
    throw Error("{}/v1/models is not a list of models: {}", printable(plan.url), printable(answer, 200));
  for (const auto& model : json["data"]) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
    if (!plan.model.empty() && model["id"] != plan.model) continue;
    plan.model = model["id"];
    if (model.contains("meta") && model["meta"].is_object())
      plan.n_vocab = model["meta"].value("n_vocab", plan.n_vocab);
    return;
  }
  throw Error("{} has no model '{}'", printable(plan.url), printable(plan.model));
}

LoadRun run_load(const LoadPlan& plan) { return LoadLoop(plan).run(); }

}  // namespace ingot
