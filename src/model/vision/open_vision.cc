#include "model/vision/vision_model.h"

namespace ingot {

std::unique_ptr<VisionModel> open_vision(const Checkpoint&, const Config&, const Tokenizer&, const VisionOptions&) {
  return nullptr;
}

}  // namespace ingot
