// StepThreads: the number of threads for steps of few tokens, whose time is that of reading weights. Each number of tokens
// has a choice of its own (base/thread_choice.h). A choice of fewer than all threads is kept in the user's cache folder,
// by machine and model, so that the next run begins with it.
#pragma once
#include <array>
#include <optional>
#include <string>

#include "base/cache_folder.h"
#include "base/thread_choice.h"

namespace ingot::cpu {

class StepThreads {
 public:
  static constexpr int kMostTokens = 8;  // larger steps use all threads: products limit them, not the memory

  // most: the threads of the pool. folder: of the cache; "": no cache.
  StepThreads(int most, std::string folder) : most_(most), folder_(std::move(folder)) {}

  // The machine and the model, whose choices are kept together. Called before the first step.
  void set_subject(std::string subject) { subject_ = std::move(subject); }
  bool has_subject() const { return !subject_.empty(); }

  int n_threads(int n_tokens);  // for the next step of so many tokens
  void add(int n_tokens, double seconds);  // the time of a step with n_threads(n_tokens) threads

 private:
  ThreadChoice* choice(int n_tokens);  // null: all threads
  std::string key(int n_tokens) const;
  int known(int n_tokens) const;
  void keep(int n_tokens, int n_threads);

  int most_;
  CacheFolder folder_;
  std::string subject_;
  std::array<std::optional<ThreadChoice>, kMostTokens> choices_;  // [n_tokens - 1]
};

}  // namespace ingot::cpu
