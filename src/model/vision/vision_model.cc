#include "model/vision/vision_model.h"

#include "base/error.h"

namespace ingot {

void VisionModel::expand(RenderedChat& chat, std::span<const PreparedImage> images) const {
  size_t at = 0, n = 0;
  for (;; ++n) {
    at = chat.find(placeholder(), at);
    if (at == std::string::npos) break;
    if (n == images.size())
      throw Error("the prompt has more placeholders {} than images ({})", printable(placeholder()), images.size());
    const std::string text = prompt_text(images[n]);
    chat.replace(at, placeholder().size(), text);
    at += text.size();
  }
  if (n < images.size())
    throw Error("the prompt has {} placeholders {} for {} images: the chat template may show no images", n,
                printable(placeholder()), images.size());
}

std::vector<PromptEmbedding> VisionModel::place(std::span<const int32_t> tokens,
                                                std::span<const EncodedImage> images) const {
  std::vector<PromptEmbedding> placed;
  size_t at = 0;
  for (const EncodedImage& image : images)
    for (const PromptEmbedding& run : image.runs) {
      while (at < tokens.size() && tokens[at] != image_token()) ++at;
      size_t end = at;
      while (end < tokens.size() && tokens[end] == image_token() && end - at < static_cast<size_t>(run.n_rows)) ++end;
      if (end - at != static_cast<size_t>(run.n_rows))
        throw Error("the prompt has {} image tokens at {}, but the image has {} vectors there", end - at, at,
                    run.n_rows);
      placed.push_back(run);
      placed.back().position = static_cast<int>(at);
      at = end;
    }
  for (; at < tokens.size(); ++at)
    if (tokens[at] == image_token()) throw Error("the prompt has more image tokens than the images have vectors");
  return placed;
}

}  // namespace ingot
