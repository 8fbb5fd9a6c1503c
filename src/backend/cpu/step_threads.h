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

  // most: the threads of the pool. folder: of the cache; "": no cache. subject: the machine and the model, whose
  // choices are kept together.
  StepThreads(int most, std::string folder, std::string subject)
      : most_(most), folder_(std::move(folder)), subject_(std::move(subject)) {}

  // The program is only a name. Both functions: for its steps of n_tokens.
  int n_threads(const void* program, int n_tokens);             // of the next step
  void add(const void* program, int n_tokens, double seconds);  // the time of a step with n_threads() threads

 private:
  struct Steps {
    ThreadChoice choice;
    int kept = 0;  // the choice in the folder; 0: none
  };
  struct ProgramSteps {
    const void* program;
    std::array<std::optional<Steps>, kMostTokens> steps;  // [n_tokens - 1]
  };

  Steps* steps_of(const void* program, int n_tokens);  // null: all threads
  size_t place_of(const void* program);                // in programs_
  std::string key(size_t place, int n_tokens) const;
  int known(size_t place, int n_tokens) const;
  void keep(Steps& steps, size_t place, int n_tokens);

  const int most_;
  const CacheFolder folder_;
  const std::string subject_;
  std::vector<ProgramSteps> programs_;  // in the order of their first steps
};

}  // namespace ingot::cpu
