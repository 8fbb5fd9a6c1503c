// SpeechNet: a Whisper model on a backend of its own: weights, a program for the encoder and one for the decoder, of
// the blocks that text models use. The keys that the decoder reads of the encoder's output are made once for each
// window, in the step that brings the output.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/shared_floats.h"
#include "model/files/weights.h"
#include "model/speech/speech_config.h"

namespace ingot {

struct CrossAttentionBlock;

// Some tokens of a text that is decoded. A text has a slot, which keeps the keys of its tokens. The window that the
// text is about has a slot of its own, which keeps the keys of its sound. Several texts may be about one window
// (beams).
struct SpeechStep {
  int text = 0, window = 0;  // slots
  std::span<const int32_t> tokens;
  int position = 0;                   // of the first of the tokens; tokens from here on are written again
  std::span<const float> sound = {};  // [n, dim]: the encoder's n <= n_rows rows, in the first step of a window
  std::vector<int> logit_rows = {};   // which of the tokens get logits
};

// A head of the decoder's cross attention.
struct SpeechHead {
  int layer = 0, head = 0;
};

inline constexpr size_t kSpeechDraft = 8;  // tokens with logits that a step of a single text may bring

// What a net has room for.
struct SpeechRoom {
  int windows = 1;  // decoded at once
  int heard = 1;    // encoded at once; a step brings the sounds of at most as many
  int texts = 1;    // decoded at once; at least `windows`
};

class SpeechNet {
 public:
  // alignment: the heads of align(). Throws Error naming a tensor that is missing or has another shape, and MemoryError
  // if the model does not fit.
  SpeechNet(const SpeechConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
            const SpeechRoom& room, std::vector<SpeechHead> alignment = {});
  ~SpeechNet();

  // Memory from which the backend copies fast, for features.
  std::shared_ptr<float[]> host_floats(size_t n);
  // The encoder's rows, [n_windows, n_rows, dim]. features: [n_windows, n_frames, n_mels]; one window may be shorter.
  SharedFloats encode(std::span<const float> features);
  // The logits of the steps' rows, one after another, [n, n_vocab]. The caller may change them. They are valid until
  // the next call. Steps have distinct texts. Sounds that lie one after another in memory, as encode() makes them, are
  // not copied.
  std::span<float> decode(std::span<const SpeechStep> steps);
  // Lets text `to` go on like the first n tokens of text `from`: shares the full blocks of keys, and copies the open
  // one.
  void fork(int to, int from, int n);

  // What each token looks at in the first n_rows rows of the sound, for each head of `alignment`: the shares of a
  // softmax, [n_heads, n_tokens, n_rows].
  std::vector<float> align(std::span<const int32_t> tokens, std::span<const float> sound, int n_rows);

  const SpeechConfig& config() const { return config_; }
  const SpeechRoom& room() const { return room_; }
  const Backend& backend() const;

 private:
  struct Parts;
  const CrossAttentionBlock& cross_attention(int layer);
  void load();
  void allocate();
  void make_room(int text, int position, int n);
  void release_from(int text, size_t block);
  int32_t take_block();

  const SpeechConfig config_;
  const SpeechRoom room_;
  const std::vector<SpeechHead> alignment_;
  std::unique_ptr<WeightSource> source_;  // the backend may read its data
  std::unique_ptr<Parts> parts_;
};

}  // namespace ingot
