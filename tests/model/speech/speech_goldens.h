// The tiny speech model of tests/data/speech (tools/goldens/make_speech.py), in the three forms that ingot reads.
#pragma once
#include <filesystem>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "io/ct2_bytes.h"
#include "io/ggml_bytes.h"
#include "io/huggingface/safetensors.h"
#include "model/golden_models.h"
#include "model/speech/golden_sound.h"
#include "model/speech/speech_model.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

inline const fs::path kSpeechData = fs::path(INGOT_TEST_DATA) / "speech";
inline constexpr size_t kGoldenSamples = 4 * 9600 + 5000;

inline nlohmann::json speech_goldens() {
  return nlohmann::json::parse(read_file((kSpeechData / "goldens.json").string()));
}

inline void write_text(const fs::path& path, const std::string& text) {
  write_file(path.string(), {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// A folder of the test that is removed at the end.
struct SpeechFolder {
  SpeechFolder() : path(fs::temp_directory_path() / fmt::format("ingot_speech_{}_{}", ::getpid(), n_made++)) {
    fs::create_directories(path);
  }
  ~SpeechFolder() { fs::remove_all(path); }
  static inline int n_made = 0;
  const fs::path path;
};

// Writes the checkpoint's tensors in other containers.
class SpeechForms {
 public:
  SpeechForms() : weights_(Safetensors::open_file((kSpeechData / "model.safetensors").string())) {}

  // A directory of CTranslate2: f16, or matrices of layers as int8 with a scale for each row.
  void write_ct2(const fs::path& folder, bool is_int8) const {
    std::vector<std::string> variables;
    for (const char* side : {"encoder", "decoder"}) {
      for (const char* module : {"conv1", "conv2"})
        if (side == std::string("encoder"))
          for (const char* kind : {"weight", "bias"})
            variables.push_back(
                plain(fmt::format("encoder/{}/{}", module, kind), {fmt::format("model.encoder.{}.{}", module, kind)}));
      variables.push_back(plain(fmt::format("{}/position_encodings/encodings", side),
                                {fmt::format("model.{}.embed_positions.weight", side)}));
      norm(variables, fmt::format("{}/layer_norm", side), fmt::format("model.{}.layer_norm", side));
      variables.push_back(ct2_variable(fmt::format("{}/num_heads", side), {}, 2,
                                       little(static_cast<int16_t>(side == std::string("encoder") ? 2 : 4))));
      const int n_layers = side == std::string("encoder") ? 1 : 2;
      for (int i = 0; i < n_layers; ++i) {
        const std::string to = fmt::format("{}/layer_{}/", side, i), from = fmt::format("model.{}.layers.{}.", side, i);
        norm(variables, to + "self_attention/layer_norm", from + "self_attn_layer_norm");
        linear(variables, to + "self_attention/linear_0", from,
               {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, is_int8);
        linear(variables, to + "self_attention/linear_1", from, {"self_attn.out_proj"}, is_int8);
        if (side == std::string("decoder")) {
          norm(variables, to + "attention/layer_norm", from + "encoder_attn_layer_norm");
          linear(variables, to + "attention/linear_0", from, {"encoder_attn.q_proj"}, is_int8);
          linear(variables, to + "attention/linear_1", from, {"encoder_attn.k_proj", "encoder_attn.v_proj"}, is_int8);
          linear(variables, to + "attention/linear_2", from, {"encoder_attn.out_proj"}, is_int8);
        }
        norm(variables, to + "ffn/layer_norm", from + "final_layer_norm");
        linear(variables, to + "ffn/linear_0", from, {"fc1"}, is_int8);
        linear(variables, to + "ffn/linear_1", from, {"fc2"}, is_int8);
      }
    }
    variables.push_back(plain("decoder/embeddings/weight", {"model.decoder.embed_tokens.weight"}));
    write_text(folder / "model.bin",
               ct2_model(variables, "WhisperSpec", {{"decoder/projection/weight", "decoder/embeddings/weight"}}));
    fs::copy(kSpeechData / "tokenizer.json", folder / "tokenizer.json");
    write_text(folder / "config.json", R"({"suppress_ids": [1, 2, 7, 60, 61], "suppress_ids_begin": [220, 256]})");
  }

  void write_ggml(const fs::path& path) const {
    const GgmlSpeechFile::Sizes sizes{.n_vocab = 298,
                                      .n_audio_ctx = 30,
                                      .audio_dim = 16,
                                      .n_audio_heads = 2,
                                      .n_audio_layers = 1,
                                      .n_text_ctx = 32,
                                      .text_dim = 16,
                                      .n_text_heads = 4,
                                      .n_text_layers = 2,
                                      .n_mels = 8,
                                      .file_type = 1};
    std::vector<std::string> tokens, tensors;
    const auto json = nlohmann::json::parse(read_file((kSpeechData / "tokenizer.json").string()));
    tokens.resize(256);
    for (const auto& [token, id] : json["model"]["vocab"].items())
      if (id < 256) tokens[id] = *bytes_from_gpt2(token);
    constexpr std::pair<const char*, const char*> kNames[] = {{"model.", ""},
                                                              {"layers.", "blocks."},
                                                              {"encoder.layer_norm", "encoder.ln_post"},
                                                              {"decoder.layer_norm", "decoder.ln"},
                                                              {"embed_positions.weight", "positional_embedding"},
                                                              {"embed_tokens", "token_embedding"},
                                                              {"encoder_attn_layer_norm", "cross_attn_ln"},
                                                              {"encoder_attn", "cross_attn"},
                                                              {"self_attn_layer_norm", "attn_ln"},
                                                              {"self_attn", "attn"},
                                                              {"q_proj", "query"},
                                                              {"k_proj", "key"},
                                                              {"v_proj", "value"},
                                                              {"out_proj", "out"},
                                                              {"fc1", "mlp.0"},
                                                              {"fc2", "mlp.2"},
                                                              {"final_layer_norm", "mlp_ln"}};
    for (const SafeTensor& t : weights_.tensors()) {
      std::string name(t.name);
      for (const auto& [from, to] : kNames)
        if (const size_t at = name.find(from); at != name.npos) name.replace(at, std::string(from).size(), to);
      std::vector<int32_t> shape;
      for (int d = 0; d < t.n_dims; ++d) shape.push_back(static_cast<int32_t>(t.shape[d]));
      if (name.starts_with("encoder.conv") && name.ends_with("bias")) shape.push_back(1);
      const auto data = weights_.data(t);
      tensors.push_back(ggml_tensor(name, shape, 1, std::string(data.begin(), data.end())));
    }
    write_text(path, ggml_speech_file(sizes, tokens, tensors));
  }

 private:
  std::string data_of(const std::string& name) const {
    const SafeTensor* t = weights_.find(name);
    if (t == nullptr) return "";
    const auto data = weights_.data(*t);
    return {data.begin(), data.end()};
  }

  std::string plain(const std::string& to, const std::vector<std::string>& names) const {
    const SafeTensor& first = *weights_.find(names.back());
    std::vector<uint32_t> shape(first.shape.begin(), first.shape.begin() + first.n_dims);
    std::string data;
    for (const std::string& name : names) {
      const std::string part = data_of(name);
      data += part.empty() ? std::string(data_of(names.back()).size(), '\0') : part;  // keys have no bias
    }
    shape[0] *= static_cast<uint32_t>(names.size());
    return ct2_variable(to, shape, 4, data);
  }

  void norm(std::vector<std::string>& variables, const std::string& to, const std::string& from) const {
    variables.push_back(plain(to + "/gamma", {from + ".weight"}));
    variables.push_back(plain(to + "/beta", {from + ".bias"}));
  }

  void linear(std::vector<std::string>& variables, const std::string& to, const std::string& from,
              std::vector<std::string> modules, bool is_int8) const {
    std::vector<std::string> matrices, biases;
    for (const std::string& module : modules)
      matrices.push_back(from + module + ".weight"), biases.push_back(from + module + ".bias");
    variables.push_back(plain(to + "/bias", biases));
    if (!is_int8) return variables.push_back(plain(to + "/weight", matrices));
    std::string codes, scales;
    uint32_t n_rows = 0, n_cols = 0;
    for (const std::string& name : matrices) {
      const SafeTensor& t = *weights_.find(name);
      const std::string data = data_of(name);
      n_cols = static_cast<uint32_t>(t.shape[1]);
      for (int64_t row = 0; row < t.shape[0]; ++row, ++n_rows) {
        std::vector<float> values(n_cols);
        for (uint32_t i = 0; i < n_cols; ++i) {
          uint16_t half;
          std::memcpy(&half, data.data() + (static_cast<size_t>(row) * n_cols + i) * 2, 2);
          values[i] = float_from_f16(half);
        }
        float amax = 0;
        for (const float x : values) amax = std::max(amax, std::abs(x));
        const float scale = 127 / amax;
        scales += little(scale);
        for (const float x : values) codes += little(static_cast<int8_t>(std::lround(x * scale)));
      }
    }
    variables.push_back(ct2_variable(to + "/weight", {n_rows, n_cols}, 1, codes));
    variables.push_back(ct2_variable(to + "/weight_scale", {n_rows}, 0, scales));
  }

  Safetensors weights_;
};

}  // namespace ingot
