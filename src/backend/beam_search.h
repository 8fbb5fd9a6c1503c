// BeamSearch: chooses the likeliest continuations of a prompt (beams) among those that the model ranks, token by token.
// It handles tokens and scores only, so text models and speech models share it. The results are those of Hugging Face
// transformers' generate(num_beams=...): the same candidates, scores, length penalty and early stopping.
//
// In each step, a beam's candidates are its likeliest next tokens. The best max(2, 1 + number of end tokens) * n_beams
// of all beams' candidates count. A candidate among the best n_beams that ends is a finished text. The best n_beams
// candidates that do not end are the next beams. The score of a beam is the sum of its tokens' log-probabilities. The
// score of a finished text is that sum / n_tokens^length_penalty, with the end token.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/sampling.h"

namespace ingot {

enum class EarlyStopping : uint8_t {
  kNo,     // ends when the best beam, if it ended now, would not be better than the worst finished text
  kYes,    // ends when there are n_beams finished texts
  kNever,  // ends when no beam can become better than the worst finished text
};

struct BeamParams {
  int n_beams = 1;
  float length_penalty = 1;  // above 0: longer texts are better; 0: sums are compared
  EarlyStopping early_stopping = EarlyStopping::kNo;
};
inline constexpr int kMaxBeams = 64;

// Throws Error, which names the field out of range.
void validate(const BeamParams& params);

// The candidates that each beam needs in a step.
int beam_candidates(int n_beams, size_t n_end_tokens);

class BeamSearch {
 public:
  struct Text {
    std::vector<int32_t> tokens;  // with the end token, if one ended the text
    std::vector<float> logprobs;  // of the tokens
    float sum = 0;                // of the log-probabilities
    float score = 0;              // of a finished text
    bool has_ended = false;       // by an end token, not at the largest length
  };
  struct Beam {
    int parent = 0;  // the beam of the last step that this beam continues
    int32_t token = 0;
  };
  using IsEnd = std::function<bool(int32_t token)>;

  // is_end: whether a token ends a text.
  BeamSearch(const BeamParams& params, size_t n_end_tokens, int max_tokens, IsEnd is_end);

  int n_beams() const { return static_cast<int>(running_.size()); }  // 1 before the first step
  // candidates: those of each beam, likeliest first. Returns the next beams, best first. Without any, the search is
  // over.
  std::span<const Beam> step(std::span<const std::vector<TokenLogprob>> candidates);
  // The finished texts, best first: at most n_beams. Fewer if the model allowed no more.
  const std::vector<Text>& finished() const { return finished_; }
  const std::vector<Text>& running() const { return running_; }

 private:
  struct Candidate {
    int parent = 0;
    TokenLogprob next;
    float sum = 0;
  };
  void rank(std::span<const std::vector<TokenLogprob>> candidates);
  Text text_of(const Candidate& candidate) const;
  float score(float sum, int n_tokens) const;
  void finish(const Candidate& candidate, bool has_ended);
  bool can_improve() const;

  const BeamParams params_;
  const size_t n_kept_;
  const int max_tokens_;
  const IsEnd is_end_;
  int n_tokens_ = 0;  // of each beam
  bool may_improve_ = true;
  std::vector<Text> running_{1}, finished_;
  std::vector<Candidate> candidates_;  // of this step, best first
  std::vector<Beam> next_;
};

}  // namespace ingot
