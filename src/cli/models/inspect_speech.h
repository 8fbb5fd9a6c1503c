// ingot inspect of a speech model: what its files say.
#pragma once
#include <string>

#include "base/json.h"

namespace ingot {

// path: of a model that is_speech_model(). Throws Error.
nlohmann::ordered_json describe_speech(const std::string& path);

}  // namespace ingot
