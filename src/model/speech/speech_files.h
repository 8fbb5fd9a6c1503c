// Opens a speech model on the disk: a Hugging Face directory with safetensors, a CTranslate2 directory (model.bin), or
// a file of whisper.cpp (ggml-*.bin).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/files/weights.h"
#include "model/speech/speech_config.h"
#include "model/speech/speech_net.h"
#include "model/speech/speech_tokens.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

struct SpeechFiles {
  SpeechConfig config;
  std::unique_ptr<WeightSource> weights;
  std::unique_ptr<Tokenizer> tokenizer;
  SpeechTokens tokens;
  std::vector<int32_t> suppressed;        // tokens that are never written
  std::vector<int32_t> first_suppressed;  // tokens that are not written first
  std::vector<SpeechHead> alignment;      // heads that follow the sound
  int latest_start = 50;                  // the largest time with which a window may begin, as a number of time tokens
  std::string container;                  // "safetensors", "CTranslate2", "ggml"
};

// Whether the path holds a speech model in one of the containers. Reads only the beginning of files; false if they
// cannot be read.
bool is_speech_model(const std::string& path);

// quantize: as in reformatted_speech(). Throws Error naming the file and the fault.
SpeechFiles open_speech_files(const std::string& path, const std::string& quantize = "");

}  // namespace ingot
