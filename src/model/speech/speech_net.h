// SpeechNet: a Whisper model on a backend of its own: weights, a program for the encoder and one for the decoder, of
// the blocks that text models use. The keys that the decoder reads of the encoder's output are made once for each
// window, in the step that brings the output.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/files/weights.h"
#include "model/speech/speech_config.h"

namespace ingot {

struct CrossAttentionBlock;

// Some tokens of a window that is decoded. Each window has a slot, which keeps the keys of its tokens and of its sound.
struct SpeechStep {
  int slot = 0;
  std::span<const int32_t> tokens;
  int position = 0;                   // of the first of the tokens; tokens from here on are written again
  std::span<const float> sound = {};  // [n_rows, dim]: the encoder's output, in the first step of a window
  std::vector<int> logit_rows = {};   // which of the tokens get logits
};

// A head of the decoder's cross attention.
struct SpeechHead {
  int layer = 0, head = 0;
};

class SpeechNet {
 public:
  // alignment: the heads of align(). max_windows: that are encoded or decoded at once. Throws Error naming a tensor that is missing or has another
  // shape, and MemoryError if the model does not fit.
  SpeechNet(const SpeechConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
            int max_windows, std::vector<SpeechHead> alignment = {});
  ~SpeechNet();

  // The encoder's output of windows, [n_windows, n_rows, dim]. features: [n_windows, n_frames, n_mels].
  std::vector<float> encode(std::span<const float> features);
  // The logits of the steps' rows, one after another, [n, n_vocab]. Valid until the next call. Steps have distinct
  // slots.
  std::span<const float> decode(std::span<const SpeechStep> steps);

  // What each token looks at in the first n_rows rows of the sound, for each head of `alignment`: the shares of a
  // softmax, [n_heads, n_tokens, n_rows].
  std::vector<float> align(std::span<const int32_t> tokens, std::span<const float> sound, int n_rows);

  const SpeechConfig& config() const { return config_; }
  int max_windows() const { return max_windows_; }
  const Backend& backend() const;

 private:
  struct Parts;
  const CrossAttentionBlock& cross_attention(int layer);
  void load();
  void allocate();

  const SpeechConfig config_;
  const int max_windows_;
  const std::vector<SpeechHead> alignment_;
  std::unique_ptr<WeightSource> source_;  // the backend may read its data
  std::unique_ptr<Parts> parts_;
};

}  // namespace ingot
