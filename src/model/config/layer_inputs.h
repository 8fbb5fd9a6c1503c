// The sizes of the inputs that each layer has of its own, as a part of the config.
#pragma once

namespace ingot {

struct LayerInputsConfig {
  int width = 0;   // of one layer's input; 0: layers have none
  int n_rows = 0;  // of the table, if it has fewer than the vocabulary; other tokens have its row 0
};

}  // namespace ingot
