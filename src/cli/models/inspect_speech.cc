#include "cli/models/inspect_speech.h"

#include "model/speech/speech_files.h"

namespace ingot {

nlohmann::ordered_json describe_speech(const std::string& path) {
  const SpeechFiles files = open_speech_files(path);
  const SpeechConfig& c = files.config;
  constexpr double kFramesASecond = 100;
  nlohmann::ordered_json languages = nlohmann::ordered_json::array({"en"});
  if (files.tokens.is_multilingual) {
    languages.clear();
    for (const auto& [code, token] : files.tokens.languages) languages.push_back(code);
  }
  return {{"kind", "speech: ingot transcribe, ingot serve"},
          {"architecture", "whisper"},
          {"container", files.container},
          {"weight_bytes", files.weights->total_bytes()},
          {"translates", files.tokens.is_multilingual},
          {"languages", std::move(languages)},
          {"window_seconds", c.n_frames() / kFramesASecond},
          {"mel_bands", c.n_mels},
          {"dim", c.dim},
          {"encoder", {{"layers", c.n_encoder_layers}, {"heads", c.n_encoder_heads}, {"ffn_dim", c.encoder_ffn}}},
          {"decoder",
           {{"layers", c.n_decoder_layers},
            {"heads", c.n_decoder_heads},
            {"ffn_dim", c.decoder_ffn},
            {"context", c.n_ctx},
            {"vocabulary", c.n_vocab},
            {"alignment_heads", files.alignment.size()}}}};
}

}  // namespace ingot
