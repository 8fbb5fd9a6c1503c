#include "text/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "text/tokenizers/unicode.h"

namespace ingot {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, StreamOptions options)
    : tokenizer_(tokenizer), options_(options), at_start_(true) {
  std::string ignored;
  if (!options_.previous) return;
  tokenizer_.append_decoded(*options_.previous, true, at_start_, ignored);
  at_start_ |= tokenizer_.is_special(*options_.previous);  // an answer begins a new text
}

std::string StreamDecoder::push(int32_t id) {
  // A model may sample the id of a padding row of the embedding table. Such an id is beyond the vocabulary.
  if (id >= tokenizer_.n_vocab()) return {};
  const bool skip_special = options_.skip_special && !std::ranges::binary_search(options_.shown_special, id);
  tokenizer_.append_decoded(id, skip_special, at_start_, pending_);
  const size_t n_complete = pending_.size() - utf8_incomplete_tail(pending_);
  std::string complete = pending_.substr(0, n_complete);
  pending_.erase(0, n_complete);
  return options_.replace_invalid ? replace_invalid_utf8(complete) : complete;
}

std::string StreamDecoder::flush() {
  std::string rest = std::exchange(pending_, {});
  return options_.replace_invalid ? replace_invalid_utf8(rest) : rest;
}

}  // namespace ingot
