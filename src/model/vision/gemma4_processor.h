#pragma once
#include "model/vision/image_processor.h"

namespace ingot {

class Gemma4Processor final : public ImageProcessor {
 public:
  Gemma4Processor(const TowerConfig& tower, const ProcessorConfig& config);
  std::string placeholder() const override { return image_; }
  std::string image_token() const override { return image_; }
  int max_rows() const override;
  PreparedMedia prepare(const Picture& picture, const ImageSettings& settings) const override;
  std::string prompt_text(const PreparedMedia& image) const override {
    return begin_ + repeated(image_, image.n_rows) + end_;
  }
  void set_places(const ImageTile& /*tile*/, PromptEmbedding& run) const override { run.sees_all = sees_all_; }

 private:
  const ProcessorConfig config_;
  const int patch_, merge_;
  const bool sees_all_;
  std::string image_ = "<|image|>", begin_ = "<|image>", end_ = "<image|>";
};

}  // namespace ingot
