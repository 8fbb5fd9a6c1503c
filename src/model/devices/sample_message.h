// What the last stage of a pipeline needs to draw tokens, and the tokens drawn, as bytes: rank 0 has the requests, and
// the last stage has the logits.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "backend/sampling.h"

namespace ingot {

// Of a row's history, the message has only the tokens that the draw reads.
std::vector<uint8_t> message_of(std::span<const SampleRow> rows, int n_vocab);

// The rows of a message. Holds the arrays that they point at.
class ReceivedRows {
 public:
  ReceivedRows(std::span<const uint8_t> message, int n_vocab);
  ReceivedRows(const ReceivedRows&) = delete;
  ReceivedRows& operator=(const ReceivedRows&) = delete;
  std::vector<SampleRow> rows;

 private:
  struct Held {
    SamplingParams params;
    std::vector<int32_t> history;
    std::vector<uint32_t> mask;
    std::vector<float> mu;  // of Mirostat: one number, or none
  };
  std::deque<Held> held_;
};

// The draws of the rows, with the states of Mirostat after them.
std::vector<uint8_t> message_of(std::span<const Sampled> drawn, std::span<const SampleRow> rows);
// Also sets the states of the rows.
std::vector<Sampled> read_draws(std::span<const uint8_t> message, std::span<const SampleRow> rows);

}  // namespace ingot
