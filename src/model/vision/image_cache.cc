#include "model/vision/image_cache.h"

#include <chrono>

#include "base/error.h"
#include "io/digest.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

// Pixels of a prompt that stay in memory until they are encoded; those of further images are made again.
constexpr size_t kMaxKeptPixels = size_t{256} << 20;  // bytes

std::string key_of(const ImageFile& file) {
  Digest digest = Digest::sha256();
  digest.update({reinterpret_cast<const uint8_t*>(file.bytes->data()), file.bytes->size()});
  const auto number = [](const auto& setting) { return setting ? std::to_string(int(*setting)) : "-"; };
  return fmt::format("{} {} {} {}", digest.finish(), number(file.settings.splits), number(file.settings.min_tokens),
                     number(file.settings.max_tokens));
}

size_t pixel_bytes(const PreparedImage& image) {
  size_t n = 0;
  for (const ImageTile& tile : image.tiles) n += tile.rgb.size();
  return n;
}

void drop_pixels(PreparedImage& image) {
  for (ImageTile& tile : image.tiles) tile.rgb = {};
}

PreparedImage without_pixels(const PreparedImage& image) {
  PreparedImage copy{
      .tile_rows = image.tile_rows, .tile_columns = image.tile_columns, .n_rows = image.n_rows, .digest = image.digest};
  for (const ImageTile& tile : image.tiles)
    copy.tiles.push_back({.width = tile.width, .height = tile.height, .n_rows = tile.n_rows});
  return copy;
}

// f(), with the place of the image before the message of an Error.
template <class F>
auto named(const std::string& where, F f) {
  try {
    return f();
  } catch (const Error& error) {
    if (where.empty()) throw;
    throw Error("{}: {}", where, error.what());
  }
}

}  // namespace

std::vector<PromptImage> ImageCache::prepare(std::vector<ImageFile> files) const {
  std::vector<PromptImage> images;
  size_t n_kept = 0;
  for (ImageFile& file : files) {
    PromptImage image{.file = std::move(file)};
    named(image.file.where, [&] {
      if (image.file.bytes->size() > limits_.max_bytes) decode_image(*image.file.bytes, limits_);  // throws
      image.key = key_of(image.file);
      if (!find(image)) image.prepared = prepared(image);
    });
    const size_t n_bytes = pixel_bytes(image.prepared);
    if (n_kept + n_bytes > kMaxKeptPixels) drop_pixels(image.prepared);
    n_kept += pixel_bytes(image.prepared);
    images.push_back(std::move(image));
  }
  return images;
}

std::vector<PromptEmbedding> ImageCache::encode(std::vector<PromptImage>& images, std::span<const int32_t> tokens) {
  std::vector<EncodedImage> encoded;
  for (PromptImage& image : images) {
    if (!image.encoded) encode(image);
    encoded.push_back(*image.encoded);
  }
  return vision_.place(tokens, encoded);
}

PreparedImage ImageCache::prepared(const PromptImage& image) const {
  return vision_.prepare(decode_image(*image.file.bytes, limits_), image.file.settings, image.key);
}

// One request encodes an image; others with the same image wait, and find it.
void ImageCache::encode(PromptImage& image) {
  {
    std::unique_lock lock(mutex_);
    is_ready_.wait(lock, [&] { return !encoding_.contains(image.key); });
    encoding_.insert(image.key);
  }
  struct Done {
    ImageCache& cache;
    const std::string& key;
    ~Done() {
      std::lock_guard lock(cache.mutex_);
      cache.encoding_.erase(key);
      cache.is_ready_.notify_all();
    }
  } const done{*this, image.key};
  if (find(image)) return;
  named(image.file.where, [&] {
    if (pixel_bytes(image.prepared) == 0)
      image.prepared = prepared(image);
    image.encoded = vision_.encode(image.prepared);
    std::lock_guard counts(mutex_);
    figures_.encode_ms += image.encoded->tower_ms;
    ++figures_.n_encoded;
  });
  drop_pixels(image.prepared);
  keep(image);
}

ImageFigures ImageCache::figures() const {
  std::lock_guard lock(mutex_);
  return figures_;
}

bool ImageCache::find(PromptImage& image) const {
  std::lock_guard lock(mutex_);
  const auto found = places_.find(image.key);
  if (found == places_.end()) return false;
  entries_.splice(entries_.begin(), entries_, found->second);
  image.prepared = found->second->prepared;
  image.encoded = found->second->encoded;
  ++figures_.n_found;
  return true;
}

void ImageCache::keep(const PromptImage& image) {
  constexpr size_t kEntryBytes = 1024;  // besides the vectors, about
  Entry entry{.key = image.key, .prepared = image.prepared, .encoded = *image.encoded, .n_bytes = kEntryBytes};
  for (const PromptEmbedding& run : entry.encoded.runs)
    entry.n_bytes += run.rows.size() * sizeof(float) + run.places.size() * sizeof run.places[0];
  std::lock_guard lock(mutex_);
  if (entry.n_bytes > max_bytes_) return;
  while (figures_.n_bytes + entry.n_bytes > max_bytes_) {
    figures_.n_bytes -= entries_.back().n_bytes;
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
  figures_.n_bytes += entry.n_bytes;
  entries_.push_front(std::move(entry));
  places_.emplace(image.key, entries_.begin());
}

void expand_images(RenderedChat& rendered, const VisionModel& vision, std::span<const PromptImage> images) {
  std::vector<PreparedImage> prepared;
  for (const PromptImage& image : images) prepared.push_back(without_pixels(image.prepared));
  vision.expand(rendered, prepared);
}

std::vector<int32_t> encode_chat_with_images(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                             const nlohmann::ordered_json& messages,
                                             const nlohmann::ordered_json& tools,
                                             const nlohmann::ordered_json& variables, ChatEnd end,
                                             const VisionModel& vision, std::span<const PromptImage> images) {
  RenderedChat rendered = render_chat(tokenizer, chat, messages, tools, variables, end);
  expand_images(rendered, vision, images);
  return encode_rendered(tokenizer, rendered);
}

ImageSettings low_detail(const VisionModel& vision) {
  constexpr int kLowDetailTokens = 256;
  for (const char* divides : {"Idefics3ImageProcessor", "SmolVLMImageProcessor", "Gemma3ImageProcessor"})
    if (vision.processor() == divides) return {.splits = false};
  return {.max_tokens = kLowDetailTokens};
}

int image_tokens(std::span<const PromptImage> images) {
  int n = 0;
  for (const PromptImage& image : images) n += image.prepared.n_rows;
  return n;
}

}  // namespace ingot
