#pragma once
#include "model/vision/image_processor.h"

namespace ingot {

class Idefics3Processor final : public ImageProcessor {
 public:
  // Throws Error if the tiles are not the images of the tower.
  Idefics3Processor(const TowerConfig& tower, const ProcessorConfig& config);
  std::string placeholder() const override { return "<image>"; }
  std::string image_token() const override { return "<image>"; }
  int max_rows() const override;
  PreparedMedia prepare(const Picture& picture, const ImageSettings& settings) const override;
  std::string prompt_text(const PreparedMedia& image) const override;

 private:
  const ProcessorConfig config_;
  const int rows_of_tile_;
};

}  // namespace ingot
