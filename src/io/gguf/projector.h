// The GGUF file of a model's vision tower (mmproj, a projector), which repositories keep beside the model's own files.
#pragma once
#include <string>
#include <vector>

namespace ingot {

// The projector among the paths, the one in f16 if there are several; empty: none.
std::string projector_of(const std::vector<std::string>& paths);

// The projector beside a GGUF file: in its folder or, if that folder is named after a quantization, above. Empty: none.
std::string find_projector(const std::string& model_path);

}  // namespace ingot
