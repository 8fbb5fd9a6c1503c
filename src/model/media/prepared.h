// An image or a recording on its way from a file to the vectors of a prompt (sense.h).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/audio/decode.h"
#include "io/images/decode.h"
#include "model/program/prompt_embedding.h"
#include "text/media_kind.h"

namespace ingot {

struct MediaLimits {
  ImageLimits images;
  AudioLimits sounds{.max_bytes = uint64_t{256} << 20, .max_seconds = 2400};
};

// What a request may change of the checkpoint's image processor. Settings that the family lacks are errors.
struct ImageSettings {
  std::optional<bool> splits;     // also reads the image in tiles (Idefics3, SmolVLM), or in crops (Gemma 3)
  std::optional<int> min_tokens;  // of an image, for families that choose its resolution (Qwen)
  std::optional<int> max_tokens;
};

struct MediaFile {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  MediaKind kind = MediaKind::kImage;
  ImageSettings settings = {};
  std::string where = {};  // for messages: "messages[0].content[1]"
};

// A picture that the tower reads: the whole image, or a tile of it.
struct ImageTile {
  int width = 0, height = 0;          // in pixels
  int n_rows = 0;                     // vectors that the tower makes of the tile
  std::vector<uint8_t> rgb;           // [height, width, 3], and zeros up to a multiple of four; empty: dropped
  std::array<float, 3 * 256> values;  // [3, 256]: what the tower reads in place of a byte, rescaled and normalised
};

// What a file is, by its content; an image if that does not tell.
MediaKind kind_of_file(std::span<const std::byte> beginning);

struct PreparedMedia {
  std::vector<ImageTile> tiles;         // of an image, in the order of the prompt
  int tile_rows = 0, tile_columns = 0;  // of the tiles beside the whole image; 0: the image has no tiles
  std::vector<float> samples;           // of a recording, kSpeechRate a second; empty: dropped
  int n_rows = 0;                       // of all tiles or windows: tokens of the prompt that vectors replace
  std::array<uint64_t, 2> digest{};     // of the content, the settings and the tower

  size_t n_bytes() const;         // of pixels or samples
  void drop();                    // the pixels or samples
  PreparedMedia dropped() const;  // a copy without them
};

// The vectors of an image or a recording: a PromptEmbedding, without its position, for each run of its tokens.
struct EncodedMedia {
  std::vector<PromptEmbedding> runs;
  double tower_ms = 0;  // that the tower took
};

}  // namespace ingot
