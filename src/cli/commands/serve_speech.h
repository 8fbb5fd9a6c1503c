// Speech models of ingot serve.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/audio/decode.h"
#include "server/models/model_pool.h"

namespace ingot {

struct SpeechServing {
  std::string id;
  std::vector<std::string> aliases;
  std::string path;
  std::string quantize;  // empty: as stored
  BackendOptions backend;
  AudioLimits limits;
  int queue_limit = 64;
  bool check_tensors = false, pinned = false;
};

// A model that is_speech_model(). Opens the files now, so an invalid file is reported before the port opens.
ModelSource speech_source(const SpeechServing& serving);

}  // namespace ingot
