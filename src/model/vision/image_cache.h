// ImageCache: from the files of images to their vectors, with the newest results kept. So the next turn of a
// conversation, which sends all its images again, decodes and encodes none of them. An image is known by the digest of
// its file and by its settings.
//
// A prompt with images is made in steps, so that a prompt that is too long fails before a tower runs:
//   prepare()  decodes the files, or finds them here. Then the number of tokens is known.
//   encode()   runs the tower on what is not here. Slow: never on the engine's thread.
// All functions may be called from any thread.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "io/images/decode.h"
#include "model/vision/vision_model.h"

namespace ingot {

struct ImageFile {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  ImageSettings settings = {};
  std::string where = {};  // for messages: "messages[0].content[1]"
};

// An image of a prompt, between the steps.
struct PromptImage {
  ImageFile file;
  std::string key;         // of the cache
  PreparedImage prepared;  // perhaps without pixels, which encode() then makes again
  std::optional<EncodedImage> encoded;
};

struct ImageFigures {
  uint64_t n_encoded = 0, n_found = 0;  // images that the tower ran on, and images that were here
  size_t n_bytes = 0;                   // of the vectors that are here
  double encode_ms = 0;
};

class ImageCache {
 public:
  // max_bytes: of all vectors together; 0: nothing is kept. The vision model must outlive the cache.
  ImageCache(VisionModel& vision, const ImageLimits& limits, size_t max_bytes)
      : vision_(vision), limits_(limits), max_bytes_(max_bytes) {}

  // Throws Error, which begins with ImageFile::where, for a file that is no image, is too large, or does not fit the
  // model.
  std::vector<PromptImage> prepare(std::vector<ImageFile> files) const;
  // The vectors in the tokens that encode_rendered() made from the expanded chat.
  std::vector<PromptEmbedding> encode(std::vector<PromptImage>& images, std::span<const int32_t> tokens);

  VisionModel& vision() { return vision_; }
  const VisionModel& vision() const { return vision_; }
  const ImageLimits& limits() const { return limits_; }
  ImageFigures figures() const;

 private:
  struct Entry {
    std::string key;
    PreparedImage prepared;  // without pixels
    EncodedImage encoded;
    size_t n_bytes = 0;
  };
  PreparedImage prepared(const PromptImage& image) const;
  bool find(PromptImage& image) const;
  void keep(const PromptImage& image);
  void encode(PromptImage& image);

  VisionModel& vision_;
  const ImageLimits limits_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::set<std::string> encoding_;    // keys of the images that a request encodes: others wait for it
  std::condition_variable is_ready_;  // one of these is done
  mutable std::list<Entry> entries_;  // the most recently used entry first
  std::map<std::string, std::list<Entry>::iterator> places_;
  mutable ImageFigures figures_;
};

// Puts the images' texts in place of the placeholders. Throws Error if their numbers differ.
void expand_images(RenderedChat& rendered, const VisionModel& vision, std::span<const PromptImage> images);

// A prompt's tokens: renders the chat, and puts the images' texts in place of the placeholders. messages: with a part
// {"type": "image"} for each image, in order. Throws Error.
std::vector<int32_t> encode_chat_with_images(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                             const nlohmann::ordered_json& messages,
                                             const nlohmann::ordered_json& tools,
                                             const nlohmann::ordered_json& variables, ChatEnd end,
                                             const VisionModel& vision, std::span<const PromptImage> images);

// The settings for OpenAI's detail "low": few tokens, as far as the family has a choice.
ImageSettings low_detail(const VisionModel& vision);

// The tokens that these images take in a prompt.
int image_tokens(std::span<const PromptImage> images);

}  // namespace ingot
