// StepThreads: the number of threads for steps of few tokens, whose time is that of reading weights. Each program and
// each number of tokens has a choice of its own (base/thread_choice.h). A choice of fewer than all threads is kept in
// the user's cache folder, by machine and model, so that the next run begins with it.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

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

  // The program is only a name. Both functions: for its steps of n_tokens.
  int n_threads(const void* program, int n_tokens);             // of the next step
  void add(const void* program, int n_tokens, double seconds);  // the time of a step with n_threads() threads

 private:
  struct ProgramSteps {
    const void* program;
    std::array<std::optional<ThreadChoice>, kMostTokens> choices;  // [n_tokens - 1]
  };

  ThreadChoice* choice(const void* program, int n_tokens);  // null: all threads
  size_t place_of(const void* program);                     // in programs_
  std::string key(size_t place, int n_tokens) const;
  int known(size_t place, int n_tokens) const;
  void keep(size_t place, int n_tokens, int n_threads);

  int most_;
  CacheFolder folder_;
  std::string subject_;
  std::vector<ProgramSteps> programs_;  // in the order of their first steps
};

}  // namespace ingot::cpu
