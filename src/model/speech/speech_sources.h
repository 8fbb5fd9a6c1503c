// Weights of speech models in other containers than safetensors: sources that find tensors by the names that
// transformers gives them.
#pragma once
#include <memory>

#include "model/files/weights.h"

namespace ingot {

class Ct2Model;
class GgmlSpeechFile;

std::unique_ptr<WeightSource> ct2_source(std::shared_ptr<const Ct2Model> model);
std::unique_ptr<WeightSource> ggml_speech_source(std::shared_ptr<const GgmlSpeechFile> file);

}  // namespace ingot
