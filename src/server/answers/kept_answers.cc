#include "server/answers/kept_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

constexpr const char* kKeepHeader = "x-keep-answer";
constexpr size_t kMinAnswerName = 16, kMaxAnswerName = 128;  // a name is a secret if the server has no keys
constexpr size_t kAnswerPieceBytes = 64 << 10;         // sent at once to a client that gets an answer again

std::string key_of(const HttpRequest& request, const std::string& name) { return request.client + '\n' + name; }

ApiError unknown_answer() {
  return {404, "there is no such answer: it has ended some time ago, or it was stopped", "", "answer_not_found"};
}

std::string checked_name(const std::string& name) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  if (name.size() < kMinAnswerName || name.size() > kMaxAnswerName || !std::ranges::all_of(name, is_plain))
    throw ApiError(400, fmt::format("the name of a kept answer must be {} to {} random letters, digits, '-' and '_'",
                                    kMinAnswerName, kMaxAnswerName));
  return name;
}

}  // namespace

// One answer, and the clients that listen to it. `mutex_` guards all members. Callbacks of the handler run without it.
class KeptAnswers::Answer : public std::enable_shared_from_this<Answer> {
 public:
  explicit Answer(const Options& options) : options_(options), memory_(options.memory), since_(options.now()) {}

  // ---- the handler ----
  void respond(HttpResponse response) {
    std::lock_guard lock(mutex_);
    if (over_) return;
    end_with(std::move(response));
  }
  void stream(HttpResponse head) {
    std::lock_guard lock(mutex_);
    if (head_ || over_) return;
    head_ = std::move(head);
    is_stream_ = true;
    for (const Client& client : clients_) client.responder->stream(*head_);
  }
  void write(const std::string& bytes) {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      if (!over_ && !add(bytes)) callback = std::exchange(on_gone_, nullptr);  // the rest would have no room either
      send_all();
    }
    if (callback) callback();
  }
  void end(const std::string& last_bytes) {
    std::lock_guard lock(mutex_);
    if (over_ || !add(last_bytes)) return send_all();
    finish();
  }
  void fail(HttpResponse response, const std::string& last_bytes) {
    std::lock_guard lock(mutex_);
    if (over_) return;
    if (bytes_.empty()) return end_with(std::move(response), last_bytes);
    failure_ = std::move(response);
    if (add(last_bytes)) finish();
  }
  void on_gone(std::function<void()> callback) {
    std::vector<std::shared_ptr<Responder>> listeners;
    {
      std::lock_guard lock(mutex_);
      on_gone_ = callback;
      for (const Client& client : clients_) listeners.push_back(client.responder);
      if (!cancelled_) callback = nullptr;
    }
    if (callback) callback();
    for (const auto& listener : listeners) watch(listener);
  }
  void note(const std::string& name, const std::string& value) {
    std::lock_guard lock(mutex_);
    for (const Client& client : clients_) client.responder->note(name, value);
  }
  // The handler has gone without an answer: each client's own responder says so.
  void drop() {
    std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = dropped_ = true;
    clients_.clear();
  }

  // ---- clients ----
  void add_client(const std::shared_ptr<Responder>& client) {
    {
      std::lock_guard lock(mutex_);
      if (dropped_ || cancelled_) throw unknown_answer();
      if (over_ && !is_stream_) return client->respond(*head_);
      clients_.push_back({client, 0});
      if (head_) client->stream(*head_);
      if (!on_gone_ && !over_) return;  // on_gone() watches the client, when the kind of its answer is known
    }
    watch(client);
    pump();
  }
  void cancel() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      const ApiError stopped(410, "the answer was stopped", "", "answer_stopped");
      if (!over_) {
        end_with_error(stopped);
        callback = std::exchange(on_gone_, nullptr);
      }
    }
    if (callback) callback();
  }
  bool is_done() const {
    std::lock_guard lock(mutex_);
    return over_ && clients_.empty();
  }
  bool is_due(Clock::time_point now) const {
    std::lock_guard lock(mutex_);
    return dropped_ || (clients_.empty() && now - since_ >= options_.time);
  }

 private:
  struct Client {
    std::shared_ptr<Responder> responder;
    size_t n_sent;
  };

  // Ends the answer for want of memory, and returns false, if the bytes have no room.
  bool add(const std::string& bytes) {
    const size_t wanted = bytes_.size() + bytes.size();
    const bool fits = wanted <= options_.max_bytes;
    if (wanted > bytes_.capacity()) {
      const size_t capacity = std::min(std::max(wanted, 2 * bytes_.capacity()), options_.max_bytes);
      if (!fits || !memory_.set(capacity)) {
        refuse(fits);
        return false;
      }
      bytes_.reserve(capacity);
    }
    bytes_ += bytes;
    return true;
  }
  void end_with_error(const ApiError& error) {
    const std::string event = "data: " + error_object(error) + "\n\n";
    if (bytes_.empty()) return end_with(error_response(error), event);
    failure_ = error_response(error);
    bytes_ += event;
    finish();
  }
  void refuse(bool fits) {
    const ApiError error =
        fits ? no_memory()
             : ApiError(507, fmt::format("the answer is longer than {} MiB, the most that the server keeps: ask again "
                                         "without X-Keep-Answer",
                                         options_.max_bytes >> 20));
    end_with_error(error);
  }
  void end_with(HttpResponse response, const std::string& last_bytes = "") {
    const bool was_stream = std::exchange(is_stream_, false);
    head_ = std::move(response);
    over_ = true;
    since_ = options_.now();
    for (const Client& client : clients_)
      was_stream ? client.responder->fail(*head_, last_bytes) : client.responder->respond(*head_);
    clients_.clear();
    if (!memory_.set(head_->body.size())) dropped_ = true;
  }
  void finish() {
    over_ = true;
    since_ = options_.now();
    send_all();
  }
  void send_all() {
    std::erase_if(clients_, [&](Client& client) { return send(client); });
  }
  void pump() {
    std::lock_guard lock(mutex_);
    send_all();
  }
  // Sends what the client's connection has room for. Returns whether the client has the whole answer.
  bool send(Client& client) {
    while (is_stream_ && client.n_sent < bytes_.size() && !client.responder->full()) {
      const bool is_first = client.n_sent == 0;
      std::string piece = bytes_.substr(client.n_sent, kAnswerPieceBytes);
      client.n_sent += piece.size();
      if (!over_ || client.n_sent < bytes_.size()) {
        client.responder->write(std::move(piece));
        continue;
      }
      // fail() before the first byte would send the failure alone, without the text before it.
      failure_ && !is_first ? client.responder->fail(*failure_, std::move(piece))
                            : client.responder->end(std::move(piece));
      return true;
    }
    return false;
  }
  void watch(const std::shared_ptr<Responder>& client) {
    client->on_room([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->pump();
    });
    client->on_gone([weak = weak_from_this(), who = client.get()] {
      if (const auto self = weak.lock()) self->leave(who);
    });
  }
  void leave(const Responder* who) {
    std::lock_guard lock(mutex_);
    std::erase_if(clients_, [&](const Client& client) { return client.responder.get() == who; });
    if (clients_.empty() && !over_) since_ = options_.now();
  }

  const Options options_;
  mutable std::mutex mutex_;
  MemoryBudget::Part memory_;
  std::optional<HttpResponse> head_, failure_;
  bool is_stream_ = false, over_ = false, cancelled_ = false, dropped_ = false;
  std::string bytes_;  // of a stream, from its beginning
  std::vector<Client> clients_;
  std::function<void()> on_gone_;
  Clock::time_point since_;  // when the last client left, or the answer ended
};

// What the handler holds. A handler's output is never full, because the answer is in memory anyway: a client that reads
// slowly gets it later.
class KeptAnswers::Handle final : public Responder {
 public:
  explicit Handle(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~Handle() override { answer_->drop(); }
  void respond(HttpResponse response) override { answer_->respond(std::move(response)); }
  void stream(HttpResponse head) override { answer_->stream(std::move(head)); }
  void write(std::string bytes) override { answer_->write(bytes); }
  void end(std::string last_bytes) override { answer_->end(last_bytes); }
  void fail(HttpResponse response, std::string last) override { answer_->fail(std::move(response), last); }
  bool full() const override { return false; }
  void on_gone(std::function<void()> callback) override { answer_->on_gone(std::move(callback)); }
  void on_room(std::function<void()>) override {}
  void note(std::string name, std::string value) override { answer_->note(name, value); }

 private:
  const std::shared_ptr<Answer> answer_;
};

std::shared_ptr<Responder> KeptAnswers::keep(const HttpRequest& request, std::shared_ptr<Responder> client) {
  const std::string* name = request.header(kKeepHeader);
  if (!name || options_.time.count() == 0) return client;
  const std::string key = key_of(request, checked_name(*name));
  const auto answer = std::make_shared<Answer>(options_);
  {
    std::lock_guard lock(mutex_);
    if (answers_.contains(key)) throw ApiError(409, "X-Keep-Answer names an answer that the server keeps already");
    if (answers_.size() >= options_.max_answers && !make_room()) return client;
    answers_.emplace(key, answer);
  }
  auto handle = std::make_shared<Handle>(answer);
  answer->add_client(client);
  return handle;
}

// Forgets one answer that is over, if there is one.
bool KeptAnswers::make_room() {
  const auto over = std::ranges::find_if(answers_, [](const auto& entry) { return entry.second->is_done(); });
  if (over == answers_.end()) return false;
  answers_.erase(over);
  return true;
}

std::shared_ptr<KeptAnswers::Answer> KeptAnswers::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = answers_.find(key);
  if (found == answers_.end()) throw unknown_answer();
  return found->second;
}

void KeptAnswers::send(const HttpRequest& request, const std::string& name, std::shared_ptr<Responder> client) {
  find(key_of(request, name))->add_client(client);
}

bool KeptAnswers::cancel(const HttpRequest& request, const std::string& name) {
  std::shared_ptr<Answer> answer;
  {
    std::lock_guard lock(mutex_);
    const auto found = answers_.find(key_of(request, checked_name(name)));
    if (found == answers_.end()) return false;
    answer = std::move(found->second);
    answers_.erase(found);
  }
  answer->cancel();
  return true;
}

void KeptAnswers::tick() {
  std::vector<std::shared_ptr<Answer>> due;
  {
    std::lock_guard lock(mutex_);
    const Clock::time_point now = options_.now();
    for (auto entry = answers_.begin(); entry != answers_.end();) {
      if (!entry->second->is_due(now)) {
        ++entry;
        continue;
      }
      due.push_back(std::move(entry->second));
      entry = answers_.erase(entry);
    }
  }
  for (const auto& answer : due) answer->cancel();
}

size_t KeptAnswers::size() const {
  std::lock_guard lock(mutex_);
  return answers_.size();
}

}  // namespace ingot
