// The matrices of a decoder layer, in the order of the layer's products. NVRTC reads this file too.
#pragma once

namespace ingot::cuda {

enum LayerWeight { kWeightQ, kWeightK, kWeightV, kWeightOut, kWeightGate, kWeightUp, kWeightDown, kLayerWeights };

}  // namespace ingot::cuda
