// TokenStream: a sink that hands a request's tokens to another thread, where they become text.
#pragma once
#include <optional>
#include <vector>

#include "base/queue.h"
#include "engine/request.h"

namespace ingot {

struct TokenEvent {
  Sampled token;                 // when finish is empty
  std::optional<Finish> finish;  // the last event
};

class TokenStream final : public TokenSink {
 public:
  void on_token(const Sampled& token) override { events_.push({token, {}}); }
  void on_finish(const Finish& finish) override {
    events_.push({{}, finish});
    events_.close();
  }

  // What has come, oldest first. wait() blocks until there is something; empty only after the finish has been taken.
  std::vector<TokenEvent> wait() { return events_.drain(true); }
  std::vector<TokenEvent> poll() { return events_.drain(false); }

 private:
  Queue<TokenEvent> events_;
};

}  // namespace ingot
