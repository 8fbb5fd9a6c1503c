// VisionModel: the vision tower of a model, from pixels to the vectors that replace the image tokens of a prompt.
//
// The way of an image:
//   prepare()  on any thread: resizes, crops and normalises the pixels. The number of tokens is known before any tower
//              runs.
//   expand()   the placeholder in the rendered prompt becomes the text that the model was trained on, with an image
//              token for each vector.
//   encode()   on the caller's thread, never the engine's: runs the tower, on a backend of its own.
//   place()    after the prompt has become tokens: where the vectors go (Request::embeddings).
// All functions may be called from any thread. Calls of encode() run one after another.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/images/picture.h"
#include "model/files/checkpoint.h"
#include "model/vision/prepared_image.h"
#include "text/chat_encode.h"

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

class VisionModel {
 public:
  // identity: of the tower's weights and of the processor's numbers, for digests.
  VisionModel(std::unique_ptr<ImageProcessor> processor, std::unique_ptr<Tower> tower, int32_t image_token,
              int32_t pad_token, std::string identity);
  ~VisionModel();

  // The text that chat templates write for an image: "<image>", "<start_of_image>".
  const std::string& placeholder() const { return placeholder_; }
  int32_t image_token() const { return image_token_; }  // the token that stands for a vector
  std::string processor() const;  // the name of the processor that prepare() follows, in transformers
  int max_rows() const;           // the most vectors of an image without settings

  BoxUnit box_unit() const;
  const TowerConfig& tower() const;

  // Sets what the text model needs for images: the axes of its rope, and the vectors that its first layers add. Throws
  // Error if the text model does not fit the tower.
  void adapt(Config& to) const;

  // Throws Error for a picture that the model cannot read (the ratio of its sides), and for a setting that the family
  // lacks. content: the digest of the picture's file, which then tells this picture from others. Without it, the digest
  // of the pixels does, which takes 3 ms for a million of them.
  PreparedImage prepare(const Picture& picture, const ImageSettings& settings = {},
                        std::string_view content = {}) const;
  // The text that stands for the image in a prompt.
  std::string prompt_text(const PreparedImage& image) const;
  // Throws Error if the tower gives numbers that are not finite.
  EncodedImage encode(const PreparedImage& image);

  // Replaces the placeholders, in order, by the texts of the images. Throws Error if there are not as many
  // placeholders as images.
  void expand(RenderedChat& chat, std::span<const PreparedImage> images) const;
  // The positions of the images' vectors in the prompt. Throws Error if the prompt's runs of image tokens do not fit
  // the images.
  std::vector<PromptEmbedding> place(std::span<const int32_t> tokens, std::span<const EncodedImage> images) const;

 private:
  const std::unique_ptr<ImageProcessor> processor_;
  const std::unique_ptr<Tower> tower_;
  const std::string placeholder_;
  const int32_t image_token_, pad_token_;
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

}  // namespace ingot
