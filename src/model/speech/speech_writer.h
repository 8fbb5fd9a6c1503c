// SpeechWriter: hears windows and writes their texts, several at once: the likeliest token each time, a draw, or
// a search with beams (backend/beam_search.h). Each step computes one token of each text.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/beam_search.h"
#include "base/threads.h"
#include "model/speech/log_mel.h"
#include "model/speech/speech_net.h"
#include "model/speech/speech_rules.h"
#include "model/speech/speech_tokens.h"

namespace ingot {

// How the text of a window is written.
struct SpeechTask {
  std::span<const float> sound;       // [n_rows, dim]: the encoder's output
  std::span<const int32_t> prompt;    // read before the text; has the token of the start
  const SpeechRules* rules = nullptr;
  float temperature = 0;              // above 0: tokens are drawn
  uint64_t seed = 0, n_drawn = 0;     // of the draws: draw i has the number n_drawn + i
  BeamParams beams = {};              // without a temperature; one beam: the likeliest token each time
  int max_tokens = 0;                 // 0: half the context
  // What the text may be: a step reads some tokens of the draft, as long as they are the likeliest ones. The text is
  // the same, and comes sooner. Only for one task, without a temperature and beams.
  std::span<const int32_t> draft = {};
};

struct WrittenText {
  std::vector<int32_t> tokens;  // without the end
  std::vector<float> logprobs;  // of the tokens
  float avg_logprob = 0;        // of the tokens and the end
  float no_speech = 0;          // the probability of silence
};

class SpeechWriter {
 public:
  // n_threads: of the host, to choose tokens; 0: one for each core.
  // `tokens` must live as long as the writer.
  SpeechWriter(SpeechNet& net, const SpeechTokens& tokens, int n_threads);

  // The encoder's outputs, [n_rows, dim] each, in the order of the windows. windows: samples. n_frames: of each window,
  // an even number; 0: as many as the model has. Fewer only for one window.
  std::vector<SharedFloats> hear(std::span<const std::span<const float>> windows, int n_frames = 0);

  // At most room().windows tasks; beams together at most room().texts. Throws Error if the model's numbers are not
  // finite. One thread at a time.
  std::vector<WrittenText> write(std::span<const SpeechTask> tasks);

  // The likeliest token of a language after the start of the text.
  int32_t detect_language(std::span<const float> sound);

 private:
  struct Text;    // that is being written
  struct Window;  // a task with its texts

  void read_prompts(std::span<Window> windows);
  void choose(Window& window, Text& text);
  void advance(Window& window);
  bool has_next(Window& window) const;
  void spread(Window& window, std::span<const BeamSearch::Beam> next);
  void take_candidates(Text& text, const Window& window);

  SpeechNet& net_;
  const LogMel mel_;
  const SpeechTokens& tokens_;
  ThreadPool pool_;
};

}  // namespace ingot
