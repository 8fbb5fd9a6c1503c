// MediaCache: from the files of images and recordings to their vectors, with the newest results kept. So the next turn
// of a conversation, which sends all its files again, decodes and encodes none of them. A file is known by its digest
// and by its settings.
//
// A prompt with such files is made in steps, so that a prompt that is too long fails before a tower runs:
//   prepare()  decodes the files, or finds them here. Then the number of tokens is known.
//   encode()   runs the towers on what is not here. Slow: never on the engine's thread.
// All functions may be called from any thread.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/media/sense.h"

namespace ingot {

// A file of a prompt, between the steps.
struct PromptMedia {
  MediaFile file;
  std::string key;         // of the cache
  PreparedMedia prepared;  // perhaps without pixels or samples, which encode() then makes again
  std::optional<EncodedMedia> encoded;
};

struct MediaFigures {
  uint64_t n_encoded = 0, n_found = 0;  // files that a tower ran on, and files that were here
  size_t n_bytes = 0;                   // of the vectors that are here
  double encode_ms = 0;
};

class MediaCache {
 public:
  // eyes, ears: null if the model lacks them; they must outlive the cache. max_bytes: of all vectors together; 0:
  // nothing is kept.
  MediaCache(Sense* eyes, Sense* ears, const MediaLimits& limits, size_t max_bytes)
      : eyes_(eyes), ears_(ears), limits_(limits), max_bytes_(max_bytes) {}

  // Throws Error, which begins with MediaFile::where, for a file that the model cannot read, that is no such
  // file, or is too large.
  std::vector<PromptMedia> prepare(std::vector<MediaFile> files) const;
  // The vectors in the tokens that encode_rendered() made from the expanded chat.
  std::vector<PromptEmbedding> encode(std::vector<PromptMedia>& media, std::span<const int32_t> tokens);

  // Puts the texts of the files in place of the placeholders. Throws Error if their numbers differ.
  void expand(RenderedChat& rendered, std::span<const PromptMedia> media) const;

  // Null: the model does not see, or does not hear.
  const Sense* sense(MediaKind kind) const { return kind == MediaKind::kImage ? eyes_ : ears_; }
  const MediaLimits& limits() const { return limits_; }
  MediaFigures figures() const;

 private:
  struct Entry {
    std::string key;
    PreparedMedia prepared;  // without pixels or samples
    EncodedMedia encoded;
    size_t n_bytes = 0;
  };
  Sense& sense_of(const PromptMedia& media) const;
  PreparedMedia prepared(const PromptMedia& media) const;
  bool find(PromptMedia& media) const;
  void keep(const PromptMedia& media);
  void encode(PromptMedia& media);

  Sense *const eyes_, *const ears_;
  const MediaLimits limits_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::set<std::string> encoding_;    // keys of the files that a request encodes: others wait for it
  std::condition_variable is_ready_;  // one of these is done
  mutable std::list<Entry> entries_;  // the most recently used entry first
  std::map<std::string, std::list<Entry>::iterator> places_;
  mutable MediaFigures figures_;
};

// A prompt's tokens: renders the chat, and puts the texts of the files in place of the placeholders. messages: with a
// part {"type": "image"} or {"type": "audio"} for each file, in order. Throws Error.
std::vector<int32_t> encode_chat_with_media(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                            const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                            const nlohmann::ordered_json& variables, ChatEnd end,
                                            const MediaCache& cache, std::span<const PromptMedia> media);

// The tokens that the files of this kind take in a prompt.
int media_tokens(std::span<const PromptMedia> media, MediaKind kind);
int media_tokens(std::span<const PromptMedia> media);
// "2 images", "1 image and 3 recordings"; "" for none.
std::string media_count(std::span<const PromptMedia> media);

}  // namespace ingot
