// LoadClient: sends completions to a server that speaks OpenAI's API, as an arrival process would or a fixed number at
// a time, and times every token of the streams that come back. One thread, libcurl's multi interface. Used by `ingot
// bench serve`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

struct LoadPlan {
  std::string url, api_key, model;  // model: empty: the server's first
  int n_requests = 100;
  double rate = 0;  // arrivals a second, Poisson; 0: `concurrency` at a time instead
  int concurrency = 8;
  std::vector<int> prompt_tokens, output_tokens;  // of each request
  int n_vocab = 1000;                             // prompts are random ids from 4 to this
  uint64_t seed = 0;
};

// One request, in seconds since it was due.
struct LoadResult {
  bool ok = false;
  long status = 0;                 // 0: no answer
  int n_prompt = 0, n_output = 0;  // tokens
  int n_events = 0;                // that brought text
  double due = 0;                  // since the run began
  double first = 0, last = 0;
  std::vector<float> gaps;  // between tokens
};

struct LoadRun {
  double seconds = 0;
  std::vector<LoadResult> results;
};

// Throws Error when it is interrupted.
LoadRun run_load(const LoadPlan& plan);

// The server's own list: the first model's id (or plan.model's) and, where it says so, its vocabulary. Throws Error
// when the server does not answer, or has no such model.
void ask_model(LoadPlan& plan);

}  // namespace ingot
