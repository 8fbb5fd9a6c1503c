// EarConfig: every number of the ears of a text model, read once from the keys of either dialect and checked before any
// use. The ears are Whisper's encoder and a projector.
#pragma once
#include <span>
#include <string>

#include "model/speech/sound_encoder.h"

namespace ingot {

class Gguf;
class Json;

enum class EarProjector : uint8_t {
  kMlp,     // two matrices on the rows of neighbouring frames, side by side
  kGated,   // as kMlp, between two norms, and one half of the first product gates the other
  kAverage  // one matrix on the mean of two rows
};

// A family of ears: the facts that no key of a checkpoint states.
struct EarFamily {
  const char* gguf_name;  // clip.projector_type
  const char* hf_name;    // model_type of config.json; empty: no checkpoint of Hugging Face is read
  EarProjector projector;
  // The token of the text model that stands for a vector, or, where the vocabulary lacks it, another; and the tokens
  // around a recording.
  const char *token, *other_token, *begin, *end;
  const char *gguf1, *gguf2, *hf1, *hf2;  // the projector's matrices
};
std::span<const EarFamily> ear_families();

struct EarConfig {
  const EarFamily* family = nullptr;
  std::string source;  // the file, for messages: safe to print
  SoundEncoderSizes encoder;
  int n_merged = 1;  // rows of the encoder that become one vector
  int out_dim = 0;   // of the vectors: the text model's embedding

  int window_rows() const { return (encoder.n_rows + n_merged - 1) / n_merged; }  // vectors of a window
  int window_samples() const;
};

// Whether ingot has the ears of this config.json.
bool has_known_ears(const Json& root);
// root: of config.json, with audio_config. Throws Error naming the key.
EarConfig ear_config_from_hf(const Json& root, const std::string& source, int text_dim);
// Throws Error naming the key, also if the ears are of an unknown kind.
EarConfig ear_config_from_gguf(const Gguf& file, int text_dim);

// What an mmproj file has.
bool gguf_has_ears(const Gguf& file);
bool gguf_has_eyes(const Gguf& file);

}  // namespace ingot
