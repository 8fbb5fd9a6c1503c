// Known vision towers by shape, with random weights: for measuring speed without a model file (`ingot bench images`).
#pragma once
#include <memory>
#include <string>

#include "model/vision/vision_model.h"

namespace ingot {

std::string tower_names();  // "gemma-3, qwen3.5, ..."

// A tower whose vectors a text model of this dimension reads. Throws UsageError that lists the known names.
std::unique_ptr<VisionModel> vision_of_shape(const std::string& name, int text_dim, const VisionOptions& options);

// The multiplications and additions of the tower for a picture of so many patches, each counted as an operation.
double tower_flops(const TowerConfig& config, int n_patches);

}  // namespace ingot
