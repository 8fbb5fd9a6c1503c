#pragma once
#include "model/vision/image_processor.h"

namespace ingot {

class QwenProcessor final : public ImageProcessor {
 public:
  // max_rows: the most vectors of an image, whatever the file says.
  QwenProcessor(const TowerConfig& tower, const ProcessorConfig& config, int max_rows);
  std::string placeholder() const override { return "<|image_pad|>"; }
  std::string image_token() const override { return "<|image_pad|>"; }
  // A long picture whose short side is one group may have more than max_rows_.
  int max_rows() const override;
  BoxUnit box_unit() const override;
  PreparedMedia prepare(const Picture& picture, const ImageSettings& settings) const override;
  std::string prompt_text(const PreparedMedia& image) const override { return repeated(image_token(), image.n_rows); }
  void set_places(const ImageTile& tile, PromptEmbedding& run) const override;

 private:
  int64_t pixels_of(int n_rows) const { return int64_t{n_rows} * factor_ * factor_; }

  const ProcessorConfig config_;
  const bool answers_in_pixels_;  // Qwen2.5-VL; its successors answer in thousandths
  const int factor_;  // pixels of the side of a group of patches, which becomes one vector
  int max_rows_;
};

}  // namespace ingot
