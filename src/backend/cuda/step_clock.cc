#include "backend/cuda/step_clock.h"

#include <fmt/format.h>

#include <utility>

#include "backend/cuda/memory.h"

namespace ingot::cuda {
namespace {

TraceFile::Clock::duration between(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
  return std::chrono::duration_cast<TraceFile::Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

}  // namespace

StepClock::StepClock(std::shared_ptr<TraceFile> file, Device& device)
    : file_(std::move(file)), stream_(device.stream()) {
  device.make_current();
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  last_ = record();
  check(cudaEventSynchronize(last_), "cudaEventSynchronize");
  last_time_ = TraceFile::Clock::now();
}

StepClock::~StepClock() {
  for (const Step& step : steps_) {
    cudaEventDestroy(step.begin);
    if (step.end != nullptr) cudaEventDestroy(step.end);
  }
  for (const cudaEvent_t event : free_) cudaEventDestroy(event);
  cudaEventDestroy(last_);
}

cudaEvent_t StepClock::record() {
  cudaEvent_t event = nullptr;
  if (free_.empty()) {
    check(cudaEventCreate(&event), "cudaEventCreate");
  } else {
    event = free_.back();
    free_.pop_back();
  }
  check(cudaEventRecord(event, stream_), "cudaEventRecord");
  return event;
}

void StepClock::begin(int n_tokens, int n_seqs) {
  end();  // of a step without draws
  steps_.push_back({record(), nullptr, n_tokens, n_seqs});
}

void StepClock::end() {
  if (!steps_.empty() && steps_.back().end == nullptr) steps_.back().end = record();
}

void StepClock::collect() {
  while (!steps_.empty() && steps_.front().end != nullptr && cudaEventQuery(steps_.front().end) == cudaSuccess) {
    const Step step = steps_.front();
    steps_.pop_front();
    const auto begin = last_time_ + between(last_, step.begin), end = begin + between(step.begin, step.end);
    file_->span("gpu", "step", begin, end,
                fmt::format("\"tokens\": {}, \"sequences\": {}", step.n_tokens, step.n_seqs));
    free_.push_back(step.begin);
    free_.push_back(std::exchange(last_, step.end));
    last_time_ = end;
  }
}

}  // namespace ingot::cuda
