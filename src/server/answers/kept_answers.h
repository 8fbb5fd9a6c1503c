// KeptAnswers: answers that outlive their connection. A client that names its answer (header X-Keep-Answer: NAME) may
// lose the connection, for example because its page is reloaded. The answer goes on, and GET /answers/NAME sends it
// again from its beginning and then as it grows. After Options::time without a client, an answer is cancelled, or
// forgotten if it has ended. The budget of requests (MemoryBudget) counts the bytes of kept answers.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/requests/http.h"

namespace ingot {

class KeptAnswers {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::chrono::seconds time{120};  // without a listener, and after the answer's end; 0: nothing is kept
    Clock::time_point (*now)() = Clock::now;
    std::shared_ptr<MemoryBudget> memory = {};  // null: no limit
    size_t max_answers = 256;
    size_t max_bytes = size_t{32} << 20;  // of one answer
  };
  explicit KeptAnswers(const Options& options) : options_(options) {}

  // Returns the responder for the handler of a request: `client` itself if the request names no answer, or if there is
  // no room for another answer. Throws ApiError if the name is bad or taken.
  std::shared_ptr<Responder> keep(const HttpRequest& request, std::shared_ptr<Responder> client);
  // Sends the client the answer with this name. Throws ApiError 404 if there is none. Only the API key that asked for
  // an answer finds it.
  void send(const HttpRequest& request, const std::string& name, std::shared_ptr<Responder> client);
  // Ends and forgets the answer. Returns whether there was one.
  bool cancel(const HttpRequest& request, const std::string& name);
  // Forgets answers whose time has passed. Call from time to time.
  void tick();
  size_t size() const;

 private:
  class Answer;
  class Handle;
  std::shared_ptr<Answer> find(const std::string& key) const;
  bool make_room();

  const Options options_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Answer>> answers_;  // by key_of()
};

}  // namespace ingot
