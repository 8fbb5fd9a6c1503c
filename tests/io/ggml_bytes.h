// whisper.cpp's files in memory.
#pragma once
#include <string>
#include <vector>

#include "io/audio_bytes.h"
#include "io/ggml/speech_file.h"

namespace ingot {

// shape: outermost first. type: ggml's number. shape may be wrong on purpose.
inline std::string ggml_tensor(const std::string& name, const std::vector<int32_t>& shape, int32_t type,
                               const std::string& data) {
  std::string bytes =
      little(static_cast<int32_t>(shape.size())) + little(static_cast<int32_t>(name.size())) + little(type);
  for (auto size = shape.rbegin(); size != shape.rend(); ++size) bytes += little(*size);
  return bytes + name + data;
}

inline std::string ggml_speech_file(const GgmlSpeechFile::Sizes& s, const std::vector<std::string>& tokens,
                                    const std::vector<std::string>& tensors) {
  std::string bytes = "lmgg";
  for (const int32_t size : {s.n_vocab, s.n_audio_ctx, s.audio_dim, s.n_audio_heads, s.n_audio_layers, s.n_text_ctx,
                             s.text_dim, s.n_text_heads, s.n_text_layers, s.n_mels, s.file_type})
    bytes += little(size);
  bytes += little(int32_t{1}) + little(int32_t{2}) + std::string(8, '\0');  // filters, which nothing reads
  bytes += little(static_cast<int32_t>(tokens.size()));
  for (const std::string& token : tokens) bytes += little(static_cast<uint32_t>(token.size())) + token;
  for (const std::string& tensor : tensors) bytes += tensor;
  return bytes;
}

}  // namespace ingot
