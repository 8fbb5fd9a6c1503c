#pragma once
#include "model/vision/image_processor.h"

namespace ingot {

class Gemma3Processor final : public ImageProcessor {
 public:
  Gemma3Processor(const TowerConfig& tower, const ProcessorConfig& config);
  std::string placeholder() const override { return "<start_of_image>"; }
  std::string image_token() const override { return "<image_soft_token>"; }
  int max_rows() const override { return rows_of_tile_ * (config_.splits ? config_.max_crops + 1 : 1); }
  PreparedMedia prepare(const Picture& picture, const ImageSettings& settings) const override;
  std::string prompt_text(const PreparedMedia& image) const override;
  void set_places(const ImageTile& /*tile*/, PromptEmbedding& run) const override { run.sees_all = true; }

 private:
  std::vector<Picture> crops_of(const Picture& picture) const;

  const ProcessorConfig config_;
  const int image_size_, rows_of_tile_;
};

}  // namespace ingot
