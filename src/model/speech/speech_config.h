// The sizes of a Whisper model (arXiv:2212.04356), whatever file they come from.
#pragma once
#include <string>

namespace ingot {

class Ct2Model;
class GgmlSpeechFile;
class Json;

struct SpeechConfig {
  std::string source;  // the file that says so, for messages
  int n_mels = 0;      // bands of a frame
  int n_rows = 0;      // of the encoder's output for a window, which has twice as many frames
  int dim = 0;         // of both streams
  int n_encoder_layers = 0, n_encoder_heads = 0, encoder_ffn = 0;
  int n_decoder_layers = 0, n_decoder_heads = 0, decoder_ffn = 0;
  int n_ctx = 0;  // the most tokens of a window, with its prompt
  int n_vocab = 0;

  int n_frames() const { return 2 * n_rows; }
  int n_samples() const;  // of a window
};

// Throws Error naming the file and the key that is missing, out of range or does not fit.
SpeechConfig speech_config_from_hf(const Json& root, const std::string& source);
SpeechConfig speech_config_from_ct2(const Ct2Model& model);
SpeechConfig speech_config_from_ggml(const GgmlSpeechFile& file);

}  // namespace ingot
