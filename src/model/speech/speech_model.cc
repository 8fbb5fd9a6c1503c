#include "model/speech/speech_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/splitmix.h"
#include "model/speech/compression.h"
#include "model/speech/silence.h"
#include "model/speech/speech_rules.h"
#include "model/speech/window_reader.h"
#include "model/speech/word_times.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr int kSamplesATime = static_cast<int>(kTimeStep * kSpeechRate);
constexpr int64_t kLeastSamples = kSpeechRate / 10;  // of a rest behind the last segment that is still read
constexpr float kDrawsAlike = 0.5f;  // below this temperature, a text is good enough as context of the next window

// Draws from softmax(logits / temperature), with a uniform number of [0, 1).
int32_t draw(std::span<const float> logits, float temperature, double uniform) {
  const float largest = *std::ranges::max_element(logits);
  double total = 0;
  for (const float x : logits) total += std::exp((double{x} - largest) / temperature);
  double left = uniform * total;
  int32_t last = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((double{logits[i]} - largest) / temperature);
    if (weight <= 0) continue;
    last = static_cast<int32_t>(i);
    if ((left -= weight) < 0) break;
  }
  return last;
}

double uniform_of(uint64_t seed, uint64_t counter) {
  return static_cast<double>(splitmix(splitmix(seed + kSplitMixStep) + counter * kSplitMixStep) >> 11) * 0x1p-53;
}

}  // namespace

std::string trimmed(const std::string& text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  const auto begin = std::ranges::find_if_not(text, is_space);
  auto end = text.end();
  while (end != begin && is_space(end[-1])) --end;
  return {begin, end};
}

std::string Transcript::text() const {
  std::string all;
  for (const SpeechSegment& segment : segments) all += segment.text;
  return trimmed(all);
}

struct SpeechModel::Call {
  const SpeechOptions& options;
  SpeechRules rules;
  Transcript transcript;
  int64_t at = 0;                // the sample where the window begins
  std::vector<int32_t> first;    // language, task and the like, with which each window's text begins
  std::vector<int32_t> prompt;   // of the user
  std::vector<int32_t> context;  // what the windows before have said
  std::vector<float> sound;      // the encoder's output for the window
  uint64_t n_drawn = 0;
};

struct SpeechModel::Window {
  std::vector<int32_t> tokens;  // without the end
  std::vector<float> logprobs;  // of the tokens
  std::string text;
  float temperature = 0, avg_logprob = 0, compression = 0, no_speech = 0;
  bool is_silent = false;
};

SpeechModel::SpeechModel(SpeechFiles files, const BackendOptions& backend)
    : files_(std::move(files)),
      mel_(files_.config.n_mels),
      net_(files_.config, std::move(files_.weights), backend, 1, files_.alignment) {}

void SpeechModel::check(const SpeechOptions& options) const {
  const SpeechTokens& t = tokens();
  if (!t.is_multilingual) {
    if (options.translates)
      throw Error(
          "the model transcribes English only and cannot translate: use a multilingual one, without '.en' in "
          "its name");
    if (!options.language.empty() && options.language != "en" && options.language != "english")
      throw Error("the model transcribes English only, not {}: use a multilingual one, without '.en' in its name",
                  printable(options.language, 32));
  } else if (!options.language.empty() && !t.language(options.language)) {
    throw Error("the model does not know the language {}: expected a code or a name, such as 'de' or 'german'",
                printable(options.language, 32));
  }
  if (options.temperatures.empty()) throw Error("there is no temperature to decode with");
  for (const float temperature : options.temperatures)
    if (!(temperature >= 0) || temperature > 10)
      throw Error("temperature {} is out of range: expected 0 to 10", temperature);
  if (!options.prompt.empty() && t.previous < 0)
    throw Error("the model has no token <|startofprev|> and takes no prompt");
}

void SpeechModel::begin_call(Call& call) const {
  const SpeechTokens& t = tokens();
  const SpeechOptions& options = call.options;
  if (!options.prompt.empty()) call.prompt = tokenizer().encode(" " + trimmed(options.prompt), {.add_special = false});
  call.transcript.task = options.translates ? "translate" : "transcribe";
  call.first = {t.start};
  if (t.is_multilingual) {
    const auto language = options.language.empty() ? std::nullopt : t.language(options.language);
    call.first.push_back(language.value_or(-1));
    call.first.push_back(options.translates ? t.translate : t.transcribe);
    if (language) call.transcript.language = t.code_of(*language);
  } else {
    call.transcript.language = "en";
  }
  if (!options.with_times) call.first.push_back(t.no_times);
}

// What the model reads before it writes: what was said before, and the tokens of the language and the task.
std::vector<int32_t> SpeechModel::prompt_of(const Call& call) const {
  const auto most = static_cast<size_t>(config().n_ctx / 2 - 1);
  std::vector<int32_t> before = call.prompt;
  if (call.options.carries_context) before.insert(before.end(), call.context.begin(), call.context.end());
  std::vector<int32_t> tokens;
  if (!before.empty() && this->tokens().previous >= 0) {
    tokens.push_back(this->tokens().previous);
    tokens.insert(tokens.end(), before.end() - static_cast<std::ptrdiff_t>(std::min(before.size(), most)),
                  before.end());
  }
  tokens.insert(tokens.end(), call.first.begin(), call.first.end());
  return tokens;
}

void SpeechModel::hear(Call& call, std::span<const float> samples) {
  const std::vector<float> features = mel_.features(samples, config().n_frames());
  const std::lock_guard lock(mutex_);
  call.sound = net_.encode(features);
}

int32_t SpeechModel::detect_language(Call& call) {
  const int32_t start = tokens().start;
  const SpeechStep step{.tokens = {&start, 1}, .sound = call.sound, .logit_rows = {0}};
  const std::lock_guard lock(mutex_);
  const std::span<const float> logits = net_.decode({&step, 1});
  int32_t best = tokens().languages.front().second;
  for (const auto& [code, token] : tokens().languages)
    if (logits[static_cast<size_t>(token)] > logits[static_cast<size_t>(best)]) best = token;
  return best;
}

// Writes the text of the window that was heard.
SpeechModel::Window SpeechModel::write(const Call& call, const std::vector<int32_t>& prompt, float temperature) {
  const SpeechTokens& t = tokens();
  Window window{.temperature = temperature};
  const auto n_vocab = static_cast<size_t>(config().n_vocab);
  const int n_prompt = static_cast<int>(prompt.size()),
            most = std::min(config().n_ctx - n_prompt, std::max(config().n_ctx / 2, 1));
  const auto start = static_cast<int>(std::ranges::find(prompt, t.start) - prompt.begin());
  double sum = 0;
  std::vector<float> logits;
  const std::lock_guard lock(mutex_);
  for (int n = 0; n < most; ++n) {
    SpeechStep step;
    if (n == 0) {
      step = {.tokens = prompt, .sound = call.sound, .logit_rows = {start, n_prompt - 1}};
    } else {
      step = {.tokens = {&window.tokens.back(), 1}, .position = n_prompt + n - 1, .logit_rows = {0}};
    }
    const std::span<const float> rows = net_.decode({&step, 1});
    if (n == 0 && t.no_speech >= 0)
      window.no_speech = static_cast<float>(
          std::exp(double{rows[static_cast<size_t>(t.no_speech)]} - log_sum_exp(rows.first(n_vocab))));
    const std::span<const float> last = rows.last(n_vocab);
    logits.assign(last.begin(), last.end());
    call.rules.apply(logits, window.tokens);
    const int32_t token = temperature > 0 ? draw(logits, temperature,
                                                 uniform_of(call.options.seed, call.n_drawn + static_cast<uint64_t>(n)))
                                          : static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
    const double logprob = double{logits[static_cast<size_t>(token)]} - log_sum_exp(logits);
    if (std::isnan(logprob)) throw Error("the speech model gave a number that is not finite for this audio");
    sum += logprob;
    window.avg_logprob = static_cast<float>(sum / (n + 1));
    if (token == t.end) break;
    window.tokens.push_back(token);
    window.logprobs.push_back(static_cast<float>(logprob));
  }
  window.text = text_of(window.tokens);
  window.compression = static_cast<float>(compression_ratio(trimmed(window.text)));
  return window;
}

bool SpeechModel::is_poor(const Window& window, const SpeechOptions& options) const {
  return (options.most_compression && window.compression > *options.most_compression) ||
         (options.least_logprob && window.avg_logprob < *options.least_logprob);
}

// Tries one temperature after the other until the text looks right.
SpeechModel::Window SpeechModel::write_well(Call& call, const std::vector<int32_t>& prompt) {
  Window window;
  const SpeechOptions& options = call.options;
  for (const float temperature : options.temperatures) {
    window = write(call, prompt, temperature);
    call.n_drawn += static_cast<uint64_t>(config().n_ctx);
    window.is_silent = options.most_no_speech && window.no_speech > *options.most_no_speech &&
                       (!options.least_logprob || window.avg_logprob < *options.least_logprob);
    if (window.is_silent || !is_poor(window, options)) break;
  }
  return window;
}

std::string SpeechModel::text_of(std::span<const int32_t> tokens) const {
  std::vector<int32_t> text;
  std::ranges::copy_if(tokens, std::back_inserter(text), [&](int32_t id) { return id < this->tokens().end; });
  return replace_invalid_utf8(tokenizer().decode(text, true));
}

void SpeechModel::add_segment(Call& call, const Window& window, std::span<const int32_t> tokens, double start,
                              double end) const {
  std::string text = text_of(tokens);
  if (!says_something(text)) return;
  const double offset = static_cast<double>(call.at) / kSpeechRate;
  call.transcript.segments.push_back({.start = offset + start,
                                      .end = offset + end,
                                      .text = std::move(text),
                                      .tokens = {tokens.begin(), tokens.end()},
                                      .window_start = call.at / kFrameStep,
                                      .temperature = window.temperature,
                                      .avg_logprob = window.avg_logprob,
                                      .compression_ratio = window.compression,
                                      .no_speech_prob = window.no_speech});
}

// The decoder reads the text of the window's segments once more, without times.
void SpeechModel::add_word_times(Call& call, const Window& window, size_t first_segment, int64_t n_samples) {
  const SpeechTokens& t = tokens();
  const std::span<SpeechSegment> segments = std::span(call.transcript.segments).subspan(first_segment);
  std::vector<int32_t> read = call.first;
  if (read.back() != t.no_times) read.push_back(t.no_times);
  const int n_before = static_cast<int>(read.size());
  const auto is_text = [&](int32_t id) { return id < t.end; };
  for (const SpeechSegment& segment : segments) std::ranges::copy_if(segment.tokens, std::back_inserter(read), is_text);
  const int n_text = static_cast<int>(read.size()) - n_before;
  read.push_back(t.end);
  const int n_rows = static_cast<int>(std::min<int64_t>(n_samples / kSamplesATime, config().n_rows));
  if (n_text == 0 || n_rows == 0 || static_cast<int>(read.size()) > config().n_ctx) return;
  std::vector<float> shares;
  {
    const std::lock_guard lock(mutex_);
    shares = net_.align(read, call.sound, n_rows);
  }
  // What a token looks at tells where the next one is, so the last token before the text is the first row.
  const std::vector<int> starts = token_starts(shares, static_cast<int>(files_.alignment.size()),
                                               static_cast<int>(read.size()), n_rows, n_before - 1, n_text + 1);
  std::vector<float> logprobs;
  for (size_t i = 0; i < window.tokens.size(); ++i)
    if (is_text(window.tokens[i])) logprobs.push_back(window.logprobs[i]);
  const double offset = static_cast<double>(call.at) / kSpeechRate;
  size_t at = 0;  // in the text
  for (SpeechSegment& segment : segments) {
    std::vector<int32_t> text;
    std::ranges::copy_if(segment.tokens, std::back_inserter(text), is_text);
    for (const WordTokens& word : words_of(tokenizer(), text, call.transcript.language)) {
      double probability = 0;
      for (size_t i = at; i < at + word.n_tokens; ++i)
        probability += std::exp(logprobs[i]) / static_cast<double>(word.n_tokens);
      segment.words.push_back({.text = word.text,
                               .start = offset + starts[at] * kTimeStep,
                               .end = offset + starts[at + word.n_tokens] * kTimeStep,
                               .probability = static_cast<float>(probability)});
      at += word.n_tokens;
    }
  }
}

// Cuts the text of a window at its times. Returns by how many samples the next window begins later: after the whole
// window, or where the last segment ends, if text follows it.
int64_t SpeechModel::add_segments(Call& call, const Window& window, int64_t n_samples) const {
  const SpeechTokens& t = tokens();
  const std::span<const int32_t> all = window.tokens;
  const size_t n = all.size();
  const auto time_of = [&](size_t i) { return (all[i] - t.first_time) * kTimeStep; };
  std::vector<size_t> ends;  // of segments: where two times follow each other
  for (size_t i = 1; i < n; ++i)
    if (t.is_time(all[i - 1]) && t.is_time(all[i])) ends.push_back(i);
  const bool ends_with_one_time = n >= 2 && !t.is_time(all[n - 2]) && t.is_time(all[n - 1]);
  if (ends.empty()) {
    double end = static_cast<double>(n_samples) / kSpeechRate;
    const auto last = std::find_if(all.rbegin(), all.rend(), [&](int32_t id) { return t.is_time(id); });
    if (last != all.rend() && *last != t.first_time) end = (*last - t.first_time) * kTimeStep;
    add_segment(call, window, all, 0, end);
    return n_samples;
  }
  if (ends_with_one_time) ends.push_back(n);
  size_t begin = 0;
  for (const size_t end : ends) {
    add_segment(call, window, all.subspan(begin, end - begin), time_of(begin), time_of(end - 1));
    begin = end;
  }
  if (ends_with_one_time) return n_samples;
  const int64_t offset = int64_t{all[begin - 1] - t.first_time} * kSamplesATime;
  return offset > 0 ? std::min(offset, n_samples) : n_samples;
}

// Adds the segments of a window. Returns by how many samples the next window begins later.
int64_t SpeechModel::transcribe_window(Call& call, std::span<const float> samples) {
  const auto n_samples = static_cast<int64_t>(samples.size());
  hear(call, samples);
  if (tokens().is_multilingual && call.first[1] < 0) {
    call.first[1] = detect_language(call);
    call.transcript.language = tokens().code_of(call.first[1]);
  }
  const Window window = write_well(call, prompt_of(call));
  const size_t n_before = call.transcript.segments.size();
  const int64_t step = window.is_silent ? n_samples : add_segments(call, window, n_samples);
  if (call.options.word_times) add_word_times(call, window, n_before, n_samples);
  if (window.temperature >= kDrawsAlike) {
    call.context.clear();
    return step;
  }
  for (const SpeechSegment& segment : std::span(call.transcript.segments).subspan(n_before))
    call.context.insert(call.context.end(), segment.tokens.begin(), segment.tokens.end());
  if (const auto n = std::ssize(call.context); n > config().n_ctx)
    call.context.erase(call.context.begin(), call.context.begin() + (n - config().n_ctx));
  return step;
}

// How many samples at the beginning of a window are skipped, because there is no sound: all, or almost up to the sound,
// if that is far enough.
int64_t SpeechModel::quiet_before_sound(std::span<const float> samples, double level) const {
  const auto n_samples = static_cast<int64_t>(samples.size()), n_window = int64_t{config().n_samples()};
  const auto n_quiet = static_cast<int64_t>(quiet_beginning(samples, level));
  if (n_quiet == n_samples) return n_samples;
  const int64_t n_shortest = n_window / 30, n_kept = n_window / 150;  // a second, and a fifth of one
  return n_quiet < n_shortest ? 0 : (n_quiet - n_kept) / kSamplesATime * kSamplesATime;
}

Transcript SpeechModel::transcribe(AudioStream& audio, const SpeechOptions& options, const SpeechProgress& progress) {
  check(options);
  Call call{.options = options,
            .rules = SpeechRules(tokens(), files_.suppressed, files_.first_suppressed, files_.latest_start,
                                 options.with_times)};
  begin_call(call);
  WindowReader reader(audio);
  const int64_t n_window = config().n_samples();
  while (call.at == 0 || reader.has(call.at + kLeastSamples - 1)) {
    const std::span<const float> samples = reader.window(call.at, n_window);
    const auto n_samples = static_cast<int64_t>(samples.size());
    if (n_samples == 0) throw Error("the audio has no sound: it has no samples");
    const size_t n_before = call.transcript.segments.size();
    const int64_t n_quiet = quiet_before_sound(samples, options.quietest);
    const int64_t step = n_quiet > 0 ? n_quiet : transcribe_window(call, samples);
    const std::span<const SpeechSegment> added = std::span(call.transcript.segments).subspan(n_before);
    call.at += step;
    if (progress.on_window &&
        !progress.on_window(added, static_cast<double>(call.at) / kSpeechRate, audio.stated_seconds()))
      break;
  }
  call.transcript.seconds = static_cast<double>(reader.n_read()) / kSpeechRate;
  call.transcript.is_truncated = audio.is_truncated();
  return std::move(call.transcript);
}

}  // namespace ingot
