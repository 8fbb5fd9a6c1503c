// A load generator: sends completion requests to a server with OpenAI's API, and times every token of the streams.
// Requests arrive at random, or a fixed number of requests is in flight. Runs on one thread with libcurl's multi
// interface. Used by `ingot bench serve`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

struct LoadPlan {
  std::string url, api_key, model;  // an empty `model`: the server's first model
  int n_requests = 100;
  double rate = 0;  // arrivals a second (Poisson); 0: `concurrency` requests in flight
  int concurrency = 8;
  std::vector<int> prompt_tokens, output_tokens;  // one entry for each request
  int n_vocab = 1000;                             // prompts are random ids from 4 up to n_vocab
  uint64_t seed = 0;
};

// The result of one request. Times are in seconds since the request was due, unless stated otherwise.
struct LoadResult {
  bool ok = false;
  long status = 0;                 // 0: no response
  int n_prompt = 0, n_output = 0;  // tokens
  int n_events = 0;                // events with text
  double due = 0;                  // since the start of the run
  double first = 0, last = 0;
  std::vector<float> gaps;  // between tokens
};

struct LoadRun {
  double seconds = 0;
  std::vector<LoadResult> results;
};

// Throws Error if the run is interrupted.
LoadRun run_load(const LoadPlan& plan);

// Requests the server's list of models. Sets the model's name (the first id, or plan.model) and, if the server reports
// it, the vocabulary size. Throws Error if the server does not respond or does not have plan.model.
void ask_model(LoadPlan& plan);

}  // namespace ingot
