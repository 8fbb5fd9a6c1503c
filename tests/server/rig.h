// Shared by the server's tests: a byte-level model on the fake runner, whose tokens are known in advance, and a
// Responder that records its calls.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "base/json.h"
#include "engine/collector.h"
#include "server/app.h"
#include "text/tokenizers/tokenizer_specs.h"

namespace ingot {

class Recorder final : public Responder {
 public:
  void respond(HttpResponse response) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "answered twice";
    head_ = std::move(response);
    over_ = true;
    changed_.notify_all();
  }
  void stream(HttpResponse head) override {
    std::lock_guard lock(mutex_);
    head_ = std::move(head);
    is_stream_ = true;
  }
  void write(std::string bytes) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "bytes after the end";
    if (!gone_) body_ += bytes;
    ++n_writes_;
    changed_.notify_all();
  }
  void end(std::string last_bytes) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "ended twice";
    EXPECT_TRUE(gone_ || !last_bytes.empty()) << "a ping could follow the last line";
    if (!gone_) body_ += last_bytes;
    ++n_writes_;
    over_ = true;
    changed_.notify_all();
  }
  void fail(HttpResponse response, std::string last_bytes) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "failed after its end";
    over_ = failed_ = true;
    if (body_.empty()) {
      head_ = std::move(response);
      is_stream_ = false;
    } else {
      body_ += last_bytes;
    }
    changed_.notify_all();
  }
  bool full() const override { return full_; }
  void on_gone(std::function<void()> callback) override {
    std::lock_guard lock(mutex_);
    on_gone_ = std::move(callback);
  }
  void on_room(std::function<void()> callback) override {
    std::lock_guard lock(mutex_);
    on_room_ = std::move(callback);
  }
  void note(std::string name, std::string value) override {
    std::lock_guard lock(mutex_);
    notes[name] = value;
  }

  void leave() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      gone_ = true;
      callback = on_gone_;
    }
    if (callback) callback();
  }
  void make_room() {
    full_ = false;
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      callback = on_room_;
    }
    if (callback) callback();
  }
  bool wait(std::chrono::seconds timeout = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return over_; });
  }
  bool wait_for_bytes(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return over_ || body_.size() >= n; });
  }
  size_t n_bytes() const {
    std::lock_guard lock(mutex_);
    return body_.size();
  }
  // After wait().
  int n_writes() const { return n_writes_; }
  int status() const { return head_.status; }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : head_.headers)
      if (key == name) return value;
    return "";
  }
  bool is_stream() const { return is_stream_; }
  bool failed() const { return failed_; }
  const std::string& body() const { return is_stream_ ? body_ : head_.body; }
  nlohmann::json json() const { return nlohmann::json::parse(head_.body); }

  std::atomic<bool> full_{false};
  std::map<std::string, std::string> notes;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HttpResponse head_;
  std::string body_;
  int n_writes_ = 0;
  bool is_stream_ = false, over_ = false, failed_ = false, gone_ = false;
  std::function<void()> on_gone_, on_room_;
};

// The server without its sockets.
struct Rig {
  using Change = std::function<void(ServedModelParts&)>;

  explicit Rig(
      FakeOptions options = {}, int queue_limit = 64, const AppOptions& app_options = {},
      const Change& change = [](ServedModelParts&) {}, const ModelPool::Limits& limits = {})
      : pool(sources(options, queue_limit, change), limits), app(app_options, pool) {
    model = pool.load_now("bytes");
    app.set_phase(Phase::kReady);
  }

  std::vector<ModelSource> sources(const FakeOptions& options, int queue_limit, const Change& change) {
    return {
        {.id = "bytes", .aliases = {"other"}, .load = [=, this] { return make_model(options, queue_limit, change); }}};
  }

  std::shared_ptr<ServedModel> make_model(FakeOptions options, int queue_limit, const Change& change) {
    options.info.n_vocab = 259;
    ServedModelParts parts{.id = "bytes",
                           .aliases = {"other"},
                           .tokenizer = Tokenizer::create(testing::byte_level_spec()->view()),
                           .chat = ChatTemplate::chatml_default(),
                           .runner = std::make_unique<FakeRunner>(options),
                           .queue_limit = queue_limit};
    change(parts);
    runner = static_cast<FakeRunner*>(parts.runner.get());
    auto made = std::make_shared<ServedModel>(std::move(parts));
    made->start();
    return made;
  }

  ~Rig() {
    model->engine().stop();
    app.stop_workers();
    EXPECT_TRUE(runner->violations().empty()) << runner->violations().front();
  }

  std::shared_ptr<Recorder> post(const std::string& path, const nlohmann::json& body, const HttpHeaders& headers = {}) {
    return send("POST", path, body.dump(), headers);
  }
  std::shared_ptr<Recorder> send(const std::string& method, const std::string& path, const std::string& body = "",
                                 const HttpHeaders& headers = {}) {
    auto recorder = std::make_shared<Recorder>();
    HttpRequest request{.method = method, .path = path, .headers = headers, .body = body};
    request.headers.emplace_back("host", "localhost");
    if (auto refusal = app.refuse(request)) {
      recorder->respond(std::move(*refusal));
    } else {
      app.handle(std::move(request), recorder);
    }
    return recorder;
  }

  // The fake model's text after a prompt.
  std::string expected(const std::vector<int32_t>& prompt, uint64_t seed, int n) const {
    Request request{.prompt = prompt, .max_tokens = n};
    request.sampling.seed = seed;
    const Expected e = expected_output(request, model->info());
    StreamDecoder decoder(model->tokenizer(), {.previous = prompt.back()});
    std::string text;
    for (int32_t token : e.tokens) text += decoder.push(token);
    return text + decoder.flush();
  }

  bool wait_idle() {
    for (int i = 0; i < 20000; ++i) {
      const EngineGauges g = model->engine().gauges();
      if (g.n_running + g.n_waiting == 0 && g.blocks_used == 0 && model->n_taken() == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  FakeRunner* runner = nullptr;
  ModelPool pool;
  App app;
  std::shared_ptr<ServedModel> model;
};

// Returns the text of choice 0 of a completion's stream. Checks each event and the end.
inline std::string streamed_text(const std::string& body) {
  std::string text;
  size_t begin = 0, n_finishes = 0;
  bool done = false;
  while (begin < body.size()) {
    const size_t end = body.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos);
    EXPECT_FALSE(done) << "an event after [DONE]";
    const std::string event = body.substr(begin, end - begin);
    begin = end + 2;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    if (event == "data: [DONE]") {
      done = true;
      continue;
    }
    const auto json = nlohmann::json::parse(event.substr(6));
    for (const auto& choice : json.at("choices")) {
      if (choice.contains("text")) text += choice["text"].get<std::string>();
      if (choice.contains("delta"))
        text += choice["delta"].value("content", nlohmann::json("")).is_string() ? choice["delta"].value("content", "")
                                                                                 : "";
      n_finishes += !choice["finish_reason"].is_null();
    }
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(n_finishes, 1u);
  return text;
}

}  // namespace ingot
