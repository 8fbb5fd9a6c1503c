#include "model/media/media_cache.h"

#include <algorithm>

#include "base/error.h"
#include "io/digest.h"

namespace ingot {
namespace {

// Pixels and samples of a prompt that stay in memory until they are encoded; those of further files are made again.
constexpr size_t kMaxKeptContent = size_t{256} << 20;  // bytes

std::string key_of(const MediaFile& file) {
  Digest digest = Digest::sha256();
  digest.update({reinterpret_cast<const uint8_t*>(file.bytes->data()), file.bytes->size()});
  const auto number = [](const auto& setting) { return setting ? std::to_string(int(*setting)) : "-"; };
  return fmt::format("{} {} {} {} {}", facts_of(file.kind).name, digest.finish(), number(file.settings.splits),
                     number(file.settings.min_tokens), number(file.settings.max_tokens));
}

// f(), with the place of the file before the message of an Error.
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

Sense& MediaCache::sense_of(const PromptMedia& media) const {
  Sense* const sense = media.file.kind == MediaKind::kImage ? eyes_ : ears_;
  if (sense == nullptr)
    throw Error("the model has no {}: it reads {}", media.file.kind == MediaKind::kImage ? "eyes" : "ears",
                eyes_   ? "text and images"
                : ears_ ? "text and recordings"
                        : "text only");
  return *sense;
}

std::vector<PromptMedia> MediaCache::prepare(std::vector<MediaFile> files) const {
  std::vector<PromptMedia> all;
  size_t n_kept = 0;
  for (MediaFile& file : files) {
    PromptMedia media{.file = std::move(file)};
    named(media.file.where, [&] {
      const uint64_t most = media.file.kind == MediaKind::kImage ? limits_.images.max_bytes : limits_.sounds.max_bytes;
      if (media.file.bytes->size() > most) prepared(media);  // throws
      media.key = key_of(media.file);
      if (!find(media)) media.prepared = prepared(media);
    });
    if (n_kept + media.prepared.n_bytes() > kMaxKeptContent) media.prepared.drop();
    n_kept += media.prepared.n_bytes();
    all.push_back(std::move(media));
  }
  return all;
}

std::vector<PromptEmbedding> MediaCache::encode(std::vector<PromptMedia>& media, std::span<const int32_t> tokens) {
  for (PromptMedia& one : media)
    if (!one.encoded) encode(one);
  std::vector<PromptEmbedding> placed;
  for (const MediaKind kind : kMediaKinds) {
    std::vector<EncodedMedia> encoded;
    for (const PromptMedia& one : media)
      if (one.file.kind == kind) encoded.push_back(*one.encoded);
    if (encoded.empty()) continue;
    for (PromptEmbedding& run : sense(kind)->place(tokens, encoded)) placed.push_back(std::move(run));
  }
  std::ranges::sort(placed, {}, &PromptEmbedding::position);
  return placed;
}

PreparedMedia MediaCache::prepared(const PromptMedia& media) const {
  return sense_of(media).prepare(media.file, limits_, media.key);
}

// One request encodes a file; others with the same file wait, and find it.
void MediaCache::encode(PromptMedia& media) {
  {
    std::unique_lock lock(mutex_);
    is_ready_.wait(lock, [&] { return !encoding_.contains(media.key); });
    encoding_.insert(media.key);
  }
  struct Done {
    MediaCache& cache;
    const std::string& key;
    ~Done() {
      std::lock_guard lock(cache.mutex_);
      cache.encoding_.erase(key);
      cache.is_ready_.notify_all();
    }
  } const done{*this, media.key};
  if (find(media)) return;
  named(media.file.where, [&] {
    if (media.prepared.n_bytes() == 0) media.prepared = prepared(media);
    media.encoded = sense_of(media).encode(media.prepared);
    std::lock_guard counts(mutex_);
    figures_.encode_ms += media.encoded->tower_ms;
    ++figures_.n_encoded;
  });
  media.prepared.drop();
  keep(media);
}

MediaFigures MediaCache::figures() const {
  std::lock_guard lock(mutex_);
  return figures_;
}

bool MediaCache::find(PromptMedia& media) const {
  std::lock_guard lock(mutex_);
  const auto found = places_.find(media.key);
  if (found == places_.end()) return false;
  entries_.splice(entries_.begin(), entries_, found->second);
  media.prepared = found->second->prepared;
  media.encoded = found->second->encoded;
  ++figures_.n_found;
  return true;
}

void MediaCache::keep(const PromptMedia& media) {
  constexpr size_t kEntryBytes = 1024;  // besides the vectors, about
  Entry entry{.key = media.key, .prepared = media.prepared, .encoded = *media.encoded, .n_bytes = kEntryBytes};
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
  places_.emplace(media.key, entries_.begin());
}

void MediaCache::expand(RenderedChat& rendered, std::span<const PromptMedia> media) const {
  for (const MediaKind kind : kMediaKinds) {
    if (sense(kind) == nullptr) continue;
    std::vector<PreparedMedia> prepared;
    for (const PromptMedia& one : media)
      if (one.file.kind == kind) prepared.push_back(one.prepared.dropped());
    sense(kind)->expand(rendered, prepared);
  }
}

std::vector<int32_t> encode_chat_with_media(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                            const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                            const nlohmann::ordered_json& variables, ChatEnd end,
                                            const MediaCache& cache, std::span<const PromptMedia> media) {
  RenderedChat rendered = render_chat(tokenizer, chat, messages, tools, variables, end);
  cache.expand(rendered, media);
  return encode_rendered(tokenizer, rendered);
}

int media_tokens(std::span<const PromptMedia> media, MediaKind kind) {
  int n = 0;
  for (const PromptMedia& one : media)
    if (one.file.kind == kind) n += one.prepared.n_rows;
  return n;
}

int media_tokens(std::span<const PromptMedia> media) {
  return media_tokens(media, MediaKind::kImage) + media_tokens(media, MediaKind::kSound);
}

std::string media_count(std::span<const PromptMedia> media) {
  std::string text;
  for (const MediaKind kind : kMediaKinds) {
    const auto n = std::ranges::count_if(media, [&](const PromptMedia& one) { return one.file.kind == kind; });
    if (n == 0) continue;
    text +=
        (text.empty() ? "" : " and ") + fmt::format("{} {}", n, n == 1 ? facts_of(kind).name : facts_of(kind).names);
  }
  return text;
}

}  // namespace ingot
