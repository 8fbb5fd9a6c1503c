#include "model/speech/speech_tokens.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "model/speech/languages.h"

namespace ingot {

std::optional<int32_t> SpeechTokens::language(std::string_view wanted) const {
  std::string lower(wanted);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view code = lower;
  for (const SpeechLanguage& one : kSpeechLanguages)
    if (one.name == lower) code = one.code;
  for (const auto& [name, token] : languages)
    if (name == code) return token;
  return std::nullopt;
}

std::string_view SpeechTokens::code_of(int32_t language_token) const {
  for (const auto& [name, token] : languages)
    if (token == language_token) return name;
  return "";
}

SpeechTokens find_speech_tokens(const Tokenizer& tokenizer, bool is_multilingual, int n_vocab, int n_rows,
                                const std::string& source) {
  const auto find = [&](std::initializer_list<const char*> names) -> int32_t {
    for (const char* name : names)
      if (const auto id = tokenizer.find(name); id && *id < n_vocab) return *id;
    return -1;
  };
  const auto need = [&](const char* name) {
    const int32_t id = find({name});
    if (id < 0) throw Error("{}: the tokenizer lacks the token {}, which speech models need", printable(source), name);
    return id;
  };
  SpeechTokens t{.start = need("<|startoftranscript|>"),
                 .end = need("<|endoftext|>"),
                 .transcribe = find({"<|transcribe|>"}),
                 .translate = find({"<|translate|>"}),
                 .previous = find({"<|startofprev|>"}),
                 .no_speech = find({"<|nospeech|>", "<|nocaptions|>"}),
                 .no_times = need("<|notimestamps|>"),
                 .is_multilingual = is_multilingual};
  t.first_time = t.no_times + 1;
  t.n_times = std::min(n_rows + 1, n_vocab - t.first_time);
  if (t.n_times < 2)
    throw Error("{}: the model has {} tokens, too few for times after token {}", printable(source), n_vocab,
                t.no_times);
  if (t.end > t.start)
    throw Error("{}: token {} is <|endoftext|>: expected one before <|startoftranscript|>, {}", printable(source),
                t.end, t.start);
  for (const SpeechLanguage& language : kSpeechLanguages)
    if (const int32_t id = find({fmt::format("<|{}|>", language.code).c_str()}); id >= 0)
      t.languages.emplace_back(language.code, id);
  if (is_multilingual && (t.languages.empty() || t.transcribe < 0 || t.translate < 0))
    throw Error("{}: the tokenizer lacks the tokens of languages and tasks, which models of several languages need",
                printable(source));
  return t;
}

std::vector<int32_t> non_speech_tokens(const Tokenizer& tokenizer, const SpeechTokens& tokens) {
  constexpr std::array kSigns = {"\"",  "#",  "(",  ")",   "*",   "+",   "/",   ":",  ";",   "<",  "=",  ">",
                                 "@",   "[",  "\\", "]",   "^",   "_",   "`",   "{",  "|",   "}",  "~",  "「",
                                 "」",  "『", "』", "<<",  ">>",  "<<<", ">>>", "--", "---", "-(", "-[", "('",
                                 "(\"", "((", "))", "(((", ")))", "[[",  "]]",  "{{", "}}",  "♪♪", "♪♪♪"};
  constexpr std::array kNotes = {"♩", "♪", "♫", "♬", "♭", "♮", "♯"};  // the first token of each counts
  std::set<int32_t> found;
  const auto first_of = [&](const std::string& text, bool only_if_whole) {
    const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = false});
    if (!ids.empty() && (ids.size() == 1 || !only_if_whole)) found.insert(ids.front());
  };
  // Inside a word, - and ' are speech.
  first_of(" -", false);
  first_of(" '", false);
  for (const char* sign : kSigns)
    for (const char* space : {"", " "}) first_of(std::string(space) + sign, true);
  for (const char* note : kNotes)
    for (const char* space : {"", " "}) first_of(std::string(space) + note, false);
  std::vector<int32_t> ids;
  for (const int32_t id : found)
    if (id < tokens.end) ids.push_back(id);
  return ids;
}

}  // namespace ingot
