// PartialText: the text of a turn that is still spoken. The sound is transcribed again and again, and the results
// differ at their ends, and sometimes before. A client gets each word once, when it is certain enough: two results in a
// row agree on it, or it is probable. So the client never has to take text back.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/speech/transcript.h"

namespace ingot {

class PartialText {
 public:
  // result: the text of the sound so far, in UTF-8. Returns what may be sent: the words behind those that were sent, as
  // far as they are certain enough, with the signs before them as in this result. The signs behind the last word are
  // not sent, because the sound that follows may change them.
  std::string add(std::span<const SpeechPiece> result);
  // The text that the turn has for certain, up to now: it begins with the text of the last call. Returns what may be
  // sent of it: all behind the words that were sent.
  std::string add_certain(const std::string& text);

 private:
  struct Word {
    std::string_view signs, letters;  // the signs before it, with spaces
    size_t end = 0;                   // in the text
  };
  static std::vector<Word> words_of(std::string_view text);
  std::optional<size_t> next_word(const std::vector<Word>& words) const;

  std::string last_;               // result
  std::vector<std::string> sent_;  // words
  std::string certain_;            // the text of the last call of add_certain
};

}  // namespace ingot
