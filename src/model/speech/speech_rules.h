// Which tokens a speech model may write next (arXiv:2212.04356, section 4.5, and OpenAI's code): no suppressed ones,
// times in pairs that do not decrease, and a time wherever times together are likelier than any other token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/speech/speech_tokens.h"

namespace ingot {

class SpeechRules {
 public:
  // latest_start: as in SpeechFiles. with_times: false for text without times.
  SpeechRules(const SpeechTokens& tokens, std::span<const int32_t> suppressed,
              std::span<const int32_t> first_suppressed, int latest_start, bool with_times);

  // Sets the logits of forbidden tokens to -infinity. written: the tokens of the window so far, without its prompt.
  void apply(std::span<float> logits /* [n_vocab] */, std::span<const int32_t> written) const;

 private:
  void apply_times(std::span<float> logits, std::span<const int32_t> written) const;

  SpeechTokens tokens_;
  std::vector<int32_t> suppressed_, first_suppressed_;
  int latest_start_;
  bool with_times_;
};

}  // namespace ingot
