#include "model/media/sense.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/error.h"
#include "io/digest.h"

namespace ingot {

bool are_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t bad = 0;
  for (const float value : values) bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
  return bad == 0;
}

std::array<uint64_t, 2> media_digest(std::string_view text, std::span<const uint8_t> more) {
  Digest digest = Digest::sha256();
  digest.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!more.empty()) digest.update(more);
  const std::string hex = digest.finish();
  std::array<uint64_t, 2> words{};
  for (size_t i = 0; i < 2; ++i) std::from_chars(hex.data() + 16 * i, hex.data() + 16 * (i + 1), words[i], 16);
  return words;
}

MediaKind kind_of_file(std::span<const std::byte> beginning) {
  return is_audio(beginning) && !is_image(beginning) ? MediaKind::kSound : MediaKind::kImage;
}

size_t PreparedMedia::n_bytes() const {
  size_t n = samples.size() * sizeof(float);
  for (const ImageTile& tile : tiles) n += tile.rgb.size();
  return n;
}

void PreparedMedia::drop() {
  for (ImageTile& tile : tiles) tile.rgb = {};
  samples = {};
}

PreparedMedia PreparedMedia::dropped() const {
  PreparedMedia copy{.tile_rows = tile_rows, .tile_columns = tile_columns, .n_rows = n_rows, .digest = digest};
  for (const ImageTile& tile : tiles)
    copy.tiles.push_back({.width = tile.width, .height = tile.height, .n_rows = tile.n_rows});
  return copy;
}

void Sense::expand(RenderedChat& chat, std::span<const PreparedMedia> media) const {
  size_t at = 0, n = 0;
  for (;; ++n) {
    at = chat.find(placeholder_, at);
    if (at == std::string::npos) break;
    if (n == media.size())
      throw Error("the prompt has more placeholders {} than {} ({})", printable(placeholder_), facts_of(kind_).names,
                  media.size());
    // Where the template has not written them. A user's own text does not count.
    const size_t after = at + placeholder_.size(), before = at - std::min(at, begin_.size());
    const bool begins = begin_.empty() || chat.find(begin_, before) == before;
    const bool ends = end_.empty() || chat.find(end_, after) == after;
    const std::string text = (begins ? "" : begin_) + prompt_text(media[n]) + (ends ? "" : end_);
    chat.replace(at, placeholder_.size(), text);
    at += text.size();
  }
  if (n < media.size())
    throw Error("the prompt has {} placeholders {} for {} {}: the chat template may show none", n,
                printable(placeholder_), media.size(), facts_of(kind_).names);
}

std::vector<PromptEmbedding> Sense::place(std::span<const int32_t> tokens, std::span<const EncodedMedia> media) const {
  std::vector<PromptEmbedding> placed;
  size_t at = 0;
  for (const EncodedMedia& one : media)
    for (const PromptEmbedding& run : one.runs) {
      while (at < tokens.size() && tokens[at] != token_) ++at;
      size_t end = at;
      while (end < tokens.size() && tokens[end] == token_ && end - at < static_cast<size_t>(run.n_rows)) ++end;
      if (end - at != static_cast<size_t>(run.n_rows))
        throw Error("the prompt has {} {} tokens at {}, but the {} has {} vectors there", end - at,
                    facts_of(kind_).name, at, facts_of(kind_).name, run.n_rows);
      placed.push_back(run);
      placed.back().position = static_cast<int>(at);
      at = end;
    }
  for (; at < tokens.size(); ++at)
    if (tokens[at] == token_)
      throw Error("the prompt has more {} tokens than the {} have vectors", facts_of(kind_).name,
                  facts_of(kind_).names);
  return placed;
}

}  // namespace ingot
