// An image on its way from pixels to the vectors of a prompt (vision_model.h).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/program/prompt_embedding.h"

namespace ingot {

// What a request may change of the checkpoint's processor. Settings that the family lacks are errors of prepare().
struct ImageSettings {
  std::optional<bool> splits;     // also reads the image in tiles (Idefics3, SmolVLM), or in crops (Gemma 3)
  std::optional<int> min_tokens;  // of an image, for families that choose its resolution (Qwen)
  std::optional<int> max_tokens;
};

// The unit of coordinates in a model's answers, as the family's makers document it.
struct BoxUnit {
  // 0: thousandths of the image's width and height. Otherwise pixels of the image as the tower sees it: its sides are
  // multiples of this number, and its area is within the limits.
  int multiple = 0;
  int64_t min_pixels = 0, max_pixels = 0;
};

// A picture that the tower reads: the whole image, or a tile of it.
struct ImageTile {
  int width = 0, height = 0;  // in pixels
  int n_rows = 0;             // vectors that the tower makes of the tile
  std::vector<uint8_t> rgb;           // [height, width, 3], and zeros up to a multiple of four; empty: dropped
  std::array<float, 3 * 256> values;  // [3, 256]: what the tower reads in place of a byte, rescaled and normalised
};

struct PreparedImage {
  std::vector<ImageTile> tiles;         // in the order of the prompt
  int tile_rows = 0, tile_columns = 0;  // of the tiles beside the whole image; 0: the image has no tiles
  int n_rows = 0;                       // of all tiles: tokens of the prompt that vectors replace
  std::array<uint64_t, 2> digest{};     // of the pixels, the settings and the tower
};

// The vectors of an image: a PromptEmbedding, without its position, for each run of image tokens.
struct EncodedImage {
  std::vector<PromptEmbedding> runs;
  double tower_ms = 0;  // that the tower took
};

}  // namespace ingot
