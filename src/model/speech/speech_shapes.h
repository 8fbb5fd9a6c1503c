// Speech models with random weights, in the shapes of OpenAI's models, for benchmarks.
#pragma once
#include <memory>
#include <string>

#include "model/files/weights.h"
#include "model/speech/speech_config.h"
#include "model/speech/speech_tokens.h"

namespace ingot {

std::string speech_shape_names();  // "tiny, base, ..."
// Throws UsageError for an unknown name.
SpeechConfig speech_shape(const std::string& name);
// Matrices in F16.
std::unique_ptr<WeightSource> random_speech();
// Those of OpenAI's multilingual models, without languages.
SpeechTokens tokens_of_shape(const SpeechConfig& config);

}  // namespace ingot
