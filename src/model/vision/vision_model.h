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
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/images/picture.h"
#include "model/files/checkpoint.h"
#include "model/program/prompt_embedding.h"
#include "text/chat_encode.h"

namespace ingot {

// What a request may change of the checkpoint's processor. Settings that the family lacks are errors of prepare().
struct ImageSettings {
  std::optional<bool> splits;     // also reads the image in tiles (Idefics3, SmolVLM), or in crops (Gemma 3)
  std::optional<int> min_tokens;  // of an image, for families that choose its resolution (Qwen)
  std::optional<int> max_tokens;
};

// A picture that the tower reads: the whole image, or a tile of it.
struct ImageTile {
  int width = 0, height = 0;  // in pixels
  int n_rows = 0;             // vectors that the tower makes of the tile
  std::vector<float> pixels;  // [3, height, width], normalised
};

struct PreparedImage {
  std::vector<ImageTile> tiles;         // in the order of the prompt
  int tile_rows = 0, tile_columns = 0;  // of the tiles before the whole image; 0: the image has no tiles
  int n_rows = 0;                       // of all tiles: tokens of the prompt that vectors replace
  std::array<uint64_t, 2> digest{};     // of the pixels, the settings and the tower
};

// The vectors of an image: a PromptEmbedding, without its position, for each run of image tokens.
struct EncodedImage {
  std::vector<PromptEmbedding> runs;
};

struct VisionOptions {
  BackendOptions backend;
  std::string mmproj;  // a GGUF file with the tower; empty: the tower in the checkpoint's directory
  bool check_tensors = false;
};

class VisionModel {
 public:
  virtual ~VisionModel() = default;

  // The text of the image token, which chat templates write for an image: "<image>", "<|image_pad|>".
  virtual const std::string& placeholder() const = 0;
  virtual int32_t image_token() const = 0;  // the token that stands for a vector
  virtual std::string processor() const = 0;  // the name of the processor that prepare() follows, in transformers
  virtual int max_rows() const = 0;  // the most vectors of an image without settings

  // Throws Error for a picture that the model cannot read (the ratio of its sides), and for a setting that the family
  // lacks.
  virtual PreparedImage prepare(const Picture& picture, const ImageSettings& settings = {}) const = 0;
  // The text that stands for the image in a prompt.
  virtual std::string prompt_text(const PreparedImage& image) const = 0;
  // Throws Error if the tower gives numbers that are not finite.
  virtual EncodedImage encode(const PreparedImage& image) = 0;

  // Replaces the placeholders, in order, by the texts of the images. Throws Error if there are not as many
  // placeholders as images.
  void expand(RenderedChat& chat, std::span<const PreparedImage> images) const;
  // The positions of the images' vectors in the prompt. Throws Error if the prompt's runs of image tokens do not fit
  // the images.
  std::vector<PromptEmbedding> place(std::span<const int32_t> tokens, std::span<const EncodedImage> images) const;
};

// The tower of a checkpoint: of its directory, or in options.mmproj. Null: it has none. text: the config of the text
// model. Throws Error naming the file and the key or tensor that is missing or does not fit.
std::unique_ptr<VisionModel> open_vision(const Checkpoint& checkpoint, const Config& text, const Tokenizer& tokenizer,
                                         const VisionOptions& options);

}  // namespace ingot
