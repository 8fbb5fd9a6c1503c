// ServedModel: one model that answers requests: its engine, tokenizer and template, and how much it takes on at once.
#pragma once
#include <atomic>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "io/generation_config.h"
#include "server/metrics.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace ingot {

struct ModelFacts {
  int64_t n_parameters = 0, n_bytes = 0;
  int n_ctx_train = 0, dim = 0;
  std::string architecture;
};

struct ServedModelParts {
  std::string id;
  std::vector<std::string> aliases;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
  std::unique_ptr<Runner> runner;
  GenerationConfig defaults;
  ModelFacts facts;
  EngineOptions engine = {};
  int queue_limit = 64;                    // requests beyond those that run
  std::chrono::seconds queue_timeout{60};  // after which one that has not begun is given up
};

class ServedModel {
 public:
  explicit ServedModel(ServedModelParts parts)
      : parts_(std::move(parts)), metrics(parts_.id, context_limit(parts_.runner->info())) {
    parts_.engine.on_step = [this, next = parts_.engine.on_step](const StepStats& stats) {
      metrics.on_step(stats);
      if (next) next(stats);
    };
    engine_.emplace(*parts_.runner, parts_.engine);
  }
  void start() { engine_->start(); }

  const std::string& id() const { return parts_.id; }
  const std::vector<std::string>& aliases() const { return parts_.aliases; }
  const Tokenizer& tokenizer() const { return *parts_.tokenizer; }
  const ChatTemplate& chat() const { return parts_.chat; }
  const GenerationConfig& defaults() const { return parts_.defaults; }
  const ModelFacts& facts() const { return parts_.facts; }
  const RunnerInfo& info() const { return parts_.runner->info(); }
  int n_ctx() const { return context_limit(info()); }
  std::time_t created() const { return created_; }
  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  std::chrono::seconds queue_timeout() const { return parts_.queue_timeout; }
  int capacity() const { return info().max_seqs + parts_.queue_limit; }

  // Room for n more sequences, given back when the ticket goes; none when the queue is full.
  class Ticket {
   public:
    Ticket(std::atomic<int>& taken, int n) : taken_(&taken), n_(n) {}
    Ticket(Ticket&& other) noexcept : taken_(other.taken_), n_(std::exchange(other.n_, 0)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() { *taken_ -= n_; }

   private:
    std::atomic<int>* taken_;
    int n_;
  };
  std::optional<Ticket> admit(int n) {
    if (taken_.fetch_add(n) + n > capacity()) {
      taken_ -= n;
      return std::nullopt;
    }
    return std::optional<Ticket>(std::in_place, taken_, n);
  }
  int n_taken() const { return taken_; }

 private:
  ServedModelParts parts_;
  const std::time_t created_ = std::time(nullptr);
  std::atomic<int> taken_{0};

 public:
  ModelMetrics metrics;

 private:
  std::optional<Engine> engine_;  // last: its thread uses the others
};

}  // namespace ingot
