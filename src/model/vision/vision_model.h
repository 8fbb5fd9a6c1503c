// VisionModel: the vision tower of a model, from pixels to the vectors that replace the image tokens of a prompt. Calls
// of encode() run one after another.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/images/picture.h"
#include "model/files/checkpoint.h"
#include "model/media/sense.h"
#include "model/vision/box_unit.h"

namespace ingot {

class ImageProcessor;
struct ProcessorConfig;
class Tower;
struct TowerConfig;

struct VisionOptions {
  BackendOptions backend;
  std::string mmproj;  // a GGUF file with the tower; empty: the tower in the checkpoint's directory
  std::shared_ptr<const Gguf> projector;  // the file itself, in place of its path
  // The most vectors of an image in models that keep its size (Qwen-VL), if the processor allows more. The memory of
  // the tower is for such an image.
  int max_image_tokens = 4096;
  bool check_tensors = false;
  bool is_needed = true;  // false: if the tower cannot be loaded, load_model() warns, and the model reads text only
};

class VisionModel final : public Sense {
 public:
  // identity: of the tower's weights and of the processor's numbers, for digests.
  VisionModel(std::unique_ptr<ImageProcessor> processor, std::unique_ptr<Tower> tower, int32_t image_token,
              int32_t pad_token, std::string identity);
  ~VisionModel() override;

  std::string processor() const;  // the name of the processor that prepare() follows, in transformers
  int max_rows() const;           // the most vectors of an image without settings

  BoxUnit box_unit() const;
  const TowerConfig& tower() const;

  // Sets what the text model needs for images: the axes of its rope, and the vectors that its first layers add. Throws
  // Error if the text model does not fit the tower.
  void adapt(Config& to) const;

  // Throws Error also for a picture that the model cannot read (the ratio of its sides), and for a setting that the
  // family lacks.
  PreparedMedia prepare(const MediaFile& file, const MediaLimits& limits, std::string_view content) const override;
  // content: as above. Without it, the digest of the pixels tells the picture from others, which takes 3 ms for a
  // million of them.
  PreparedMedia prepare(const Picture& picture, const ImageSettings& settings = {},
                        std::string_view content = {}) const;
  std::string prompt_text(const PreparedMedia& image) const override;
  EncodedMedia encode(const PreparedMedia& image) override;

 private:
  const std::unique_ptr<ImageProcessor> processor_;
  const std::unique_ptr<Tower> tower_;
  const int32_t pad_token_;
  const std::string identity_;
};

// The tower of a checkpoint: of its directory, or in options.mmproj. Null: it has none. text: the config of the text
// model. Throws Error naming the file and the key or tensor that is missing or does not fit.
std::unique_ptr<VisionModel> open_vision(const Checkpoint& checkpoint, const Config& text, const Tokenizer& tokenizer,
                                         const VisionOptions& options);

struct VisionTokens {
  int32_t of_images = 0, padding = 0;
};
// digest: of the tower's weights. Throws Error as open_vision().
std::unique_ptr<VisionModel> make_vision(const TowerConfig& config, const ProcessorConfig& processor,
                                         std::unique_ptr<WeightSource> source, const VisionOptions& options,
                                         const VisionTokens& tokens, const std::string& digest);

// The settings for OpenAI's detail "low": few tokens, as far as the family has a choice.
ImageSettings low_detail(const VisionModel& vision);

}  // namespace ingot
