// Sense: how a text model sees images (model/vision) or hears recordings (model/ears): from a file to the vectors that
// replace tokens of a prompt.
//
// The way of a file:
//   prepare()  on any thread: decodes the file. The number of tokens is known before any tower runs.
//   expand()   the placeholder in the rendered prompt becomes the text that the model was trained on, with a token for
//              each vector.
//   encode()   on the caller's thread, never the engine's: runs the tower, on a backend of its own.
//   place()    after the prompt has become tokens: where the vectors go (Request::embeddings).
// All functions may be called from any thread.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/media/prepared.h"
#include "text/chat_encode.h"

namespace ingot {

class Sense {
 public:
  virtual ~Sense() = default;

  MediaKind kind() const { return kind_; }
  // The text that chat templates write for an image or a recording: "<image>", "[AUDIO]".
  const std::string& placeholder() const { return placeholder_; }
  int32_t token() const { return token_; }  // that stands for a vector

  // Throws Error for a file that cannot be decoded, exceeds a limit or does not fit the model. content: the digest of
  // the file, which tells it from others.
  virtual PreparedMedia prepare(const MediaFile& file, const MediaLimits& limits, std::string_view content) const = 0;
  // The text that stands for it in a prompt.
  virtual std::string prompt_text(const PreparedMedia& media) const = 0;
  // Throws Error if the tower gives numbers that are not finite.
  virtual EncodedMedia encode(const PreparedMedia& media) = 0;

  // Replaces the placeholders, in order, by the texts of the media. Throws Error if there are not as many.
  void expand(RenderedChat& chat, std::span<const PreparedMedia> media) const;
  // The positions of the vectors in the prompt. Throws Error if the prompt's runs of tokens do not fit.
  std::vector<PromptEmbedding> place(std::span<const int32_t> tokens, std::span<const EncodedMedia> media) const;

 protected:
  // begin, end: texts around the tokens, unless the template has written them.
  Sense(MediaKind kind, std::string placeholder, int32_t token, std::string begin = "", std::string end = "")
      : kind_(kind),
        placeholder_(std::move(placeholder)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        token_(token) {}

 private:
  const MediaKind kind_;
  const std::string placeholder_, begin_, end_;
  const int32_t token_;
};

// The vectors are finite. Without branches, so that the compiler uses vectors: there are millions.
bool are_finite(std::span<const float> values);

// The digest of a prepared file: of the tower's identity, the settings and the content.
std::array<uint64_t, 2> media_digest(std::string_view text, std::span<const uint8_t> more = {});

}  // namespace ingot
