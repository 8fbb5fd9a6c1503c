// The sizes of the inputs that each layer has of its own, as a part of the config.
#pragma once

namespace ingot {

struct LayerInputsConfig {
  int width = 0;  // of one layer's input; 0: layers have none
};

}  // namespace ingot
