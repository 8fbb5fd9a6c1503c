#include "model/speech/speech_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "model/speech/compression.h"
#include "model/speech/log_mel.h"
#include "model/speech/silence.h"
#include "model/speech/speech_rules.h"
#include "model/speech/voice.h"
#include "model/speech/word_times.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr int kSamplesATime = static_cast<int>(kTimeStep * kSpeechRate);
constexpr int64_t kLeastSamples = kSpeechRate / 10;  // of a rest behind the last segment that is still read
constexpr int64_t kLeastForVoice = 2 * kSpeechRate;  // shorter sounds have no floor of noise to compare with
constexpr int kMostHeard = 4;                        // windows in a step of the encoder: more make no step faster
// A text may be of noise beyond a part of the limit of no speech, or if its tokens are less likely. Few texts of speech
// are.
constexpr float kUnsureNoSpeech = 1.0f / 3, kUnsureLogprob = -1.2f;
constexpr int64_t kPeekedSilence = 500;             // frames
constexpr double kRepeatedFrom[] = {0, 0.5, 0.25};  // parts of a sound where its repetition begins
constexpr float kDrawsAlike = 0.5f;  // below this temperature, a text is good enough as context of the next window

// A sound of n samples that goes round a shorter one, from a part of it on.
std::vector<float> repeated_sound(std::span<const float> samples, double begin, size_t n) {
  std::vector<float> all(n);
  size_t at = static_cast<size_t>(begin * static_cast<double>(samples.size()));
  for (float& x : all) x = samples[at], at = (at + 1) % samples.size();
  return all;
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
  int64_t at = 0;                         // the sample where the next window begins
  std::vector<int32_t> first;             // language, task and the like, with which each window's text begins
  std::vector<int32_t> hotwords, prompt;  // of the user
  std::vector<int32_t> context;           // what the windows before have said
  uint64_t n_drawn = 0;

  bool cuts_at_pauses() const { return options.n_parallel > 1 && !options.carries_context; }
};

struct SpeechModel::Attempt {
  WrittenText written;
  std::string text;
  float temperature = 0, compression = 0;
  bool is_silent = false;
};

struct SpeechModel::Window : Attempt {
  int64_t at = 0;  // its first sample
  std::vector<float> samples;
  SharedFloats sound;  // [n_rows, dim]: the encoder's output
  std::vector<int32_t> prompt;
  float hottest = 0;  // temperature that was tried

  int64_t n_samples() const { return std::ssize(samples); }
};

SpeechModel::SpeechModel(SpeechFiles files, const BackendOptions& backend, const SpeechLimits& limits)
    : files_(std::move(files)),
      limits_(limits),
      net_(files_.config, std::move(files_.weights), backend,
           {.windows = limits.n_parallel,
            .heard = std::min(limits.n_parallel, kMostHeard),
            .texts = limits.n_parallel * limits.n_beams},
           files_.alignment),
      writer_(net_, files_.tokens, backend.n_threads) {}

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
  if (options.n_parallel < 1 || options.n_parallel > limits_.n_parallel)
    throw Error("{} windows at once: the model was opened for 1 to {}", options.n_parallel, limits_.n_parallel);
  if (options.n_beams < 1 || options.n_beams > limits_.n_beams)
    throw Error("{} beams: the model was opened for 1 to {}", options.n_beams, limits_.n_beams);
  if ((!options.prompt.empty() || !options.hotwords.empty()) && t.previous < 0)
    throw Error("the model has no token <|startofprev|> and takes no prompt and no hotwords");
  if (const size_t n = before_text(options.hotwords).size(); n > most_before())
    throw Error("the hotwords have {} tokens, but the model has room for {}: leave out some", n, most_before());
}

// The tokens of a text that the model reads before a window's.
std::vector<int32_t> SpeechModel::before_text(const std::string& text) const {
  const std::string words = trimmed(text);
  return words.empty() ? std::vector<int32_t>() : tokenizer().encode(" " + words, {.add_special = false});
}

size_t SpeechModel::most_before() const { return static_cast<size_t>(config().n_ctx / 2 - 1); }

SpeechModel::Call SpeechModel::new_call(const SpeechOptions& options) const {
  const SpeechTokens& t = tokens();
  Call call{
      .options = options,
      .rules = SpeechRules(t, files_.suppressed, files_.first_suppressed, files_.latest_start, options.with_times)};
  call.hotwords = before_text(options.hotwords), call.prompt = before_text(options.prompt);
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
  return call;
}

// What the model reads before it writes: the hotwords, the end of what was said before, and the tokens of the language
// and the task.
std::vector<int32_t> SpeechModel::prompt_of(const Call& call) const {
  const size_t most = most_before() - call.hotwords.size();
  std::vector<int32_t> before = call.prompt;
  if (call.options.carries_context) before.insert(before.end(), call.context.begin(), call.context.end());
  std::vector<int32_t> tokens;
  if ((!call.hotwords.empty() || !before.empty()) && this->tokens().previous >= 0) {
    tokens.push_back(this->tokens().previous);
    tokens.insert(tokens.end(), call.hotwords.begin(), call.hotwords.end());
    tokens.insert(tokens.end(), before.end() - static_cast<std::ptrdiff_t>(std::min(before.size(), most)),
                  before.end());
  }
  tokens.insert(tokens.end(), call.first.begin(), call.first.end());
  return tokens;
}

static bool repeats_itself(const auto& attempt, const SpeechOptions& options) {
  return options.most_compression && attempt.compression > *options.most_compression;
}

bool SpeechModel::is_poor(const Attempt& attempt, const SpeechOptions& options) const {
  return repeats_itself(attempt, options) ||
         (options.least_logprob && attempt.written.avg_logprob < *options.least_logprob);
}

// Writes the texts of windows that were heard, at one temperature.
void SpeechModel::write_once(Call& call, std::span<Window* const> windows, float temperature,
                             std::span<const int32_t> draft) {
  const SpeechOptions& options = call.options;
  std::vector<SpeechTask> tasks;
  for (const Window* window : windows) {
    tasks.push_back({.sound = window->sound.all(),
                     .prompt = window->prompt,
                     .rules = &call.rules,
                     .temperature = temperature,
                     .seed = options.seed,
                     .n_drawn = call.n_drawn,
                     .beams = {.n_beams = options.n_beams},
                     .draft = draft});
    call.n_drawn += static_cast<uint64_t>(config().n_ctx);
  }
  std::vector<WrittenText> texts = writer_.write(tasks);
  for (size_t i = 0; i < windows.size(); ++i) {
    Window& window = *windows[i];
    window.written = std::move(texts[i]);
    window.temperature = window.hottest = temperature;
    window.text = text_of(window.written.tokens);
    window.compression = static_cast<float>(compression_ratio(trimmed(window.text)));
    window.is_silent = options.most_no_speech && window.written.no_speech > *options.most_no_speech &&
                       (!options.least_logprob || window.written.avg_logprob < *options.least_logprob);
  }
}

// Writes the texts of windows that were heard. Tries one temperature after the other until a text looks right. If none
// does, keeps the likeliest one that does not repeat itself, or else the likeliest one.
void SpeechModel::write_well(Call& call, std::span<Window> windows) {
  const SpeechOptions& options = call.options;
  const auto is_better = [&](const Attempt& a, const Attempt& b) {
    const bool a_repeats = repeats_itself(a, options), b_repeats = repeats_itself(b, options);
    return a_repeats == b_repeats ? a.written.avg_logprob > b.written.avg_logprob : b_repeats;
  };
  std::vector<Window*> left;
  std::vector<std::optional<Attempt>> best(windows.size());
  const auto best_of = [&](const Window* window) -> std::optional<Attempt>& {
    return best[static_cast<size_t>(window - windows.data())];
  };
  for (Window& window : windows) left.push_back(&window);
  for (const float temperature : options.temperatures) {
    write_once(call, left, temperature);
    if (temperature == options.temperatures[0]) silence_noise(call, left);
    std::erase_if(left, [&](const Window* window) { return window->is_silent || !is_poor(*window, options); });
    if (left.empty()) return;
    for (const Window* window : left)
      if (std::optional<Attempt>& attempt = best_of(window); !attempt || is_better(*window, *attempt))
        attempt = *window;
  }
  for (Window* window : left) static_cast<Attempt&>(*window) = std::move(*best_of(window));
}

// Finds windows of noise and music among those whose text is not sure. A sound that does not fill its window is
// followed by digital silence, and a speech model then takes noise and music for speech more often. So it hears the
// sound again, repeated until it fills the window. Repeated speech is likelier than speech, and repeated noise stays
// noise. An unlikely text may repeat itself, too, which makes it likely: then the sound begins elsewhere.
void SpeechModel::silence_noise(const Call& call, std::span<Window* const> windows) {
  if (!call.options.most_no_speech || *call.options.most_no_speech >= 1 || !call.options.least_logprob) return;
  const float most_no_speech = *call.options.most_no_speech * kUnsureNoSpeech;
  std::vector<Window*> unsure;
  for (Window* window : windows)
    if (!window->is_silent && window->n_samples() < config().n_samples() && window->n_samples() > 0 &&
        (window->written.no_speech > most_no_speech || window->written.avg_logprob < kUnsureLogprob))
      unsure.push_back(window);
  SpeechOptions options = call.options;
  options.n_beams = 1;
  Call again = new_call(options);
  again.first = call.first;
  for (const double begin : kRepeatedFrom) {
    if (unsure.empty()) return;
    std::vector<Window> repeated(unsure.size());
    std::vector<Window*> all;
    for (size_t i = 0; i < unsure.size(); ++i) {
      repeated[i].samples = repeated_sound(unsure[i]->samples, begin, static_cast<size_t>(config().n_samples()));
      all.push_back(&repeated[i]);
    }
    hear(again, repeated);
    write_once(again, all, 0);
    for (size_t i = 0; i < unsure.size(); ++i) {
      const WrittenText& written = repeated[i].written;
      const bool may_be_noise = written.no_speech > most_no_speech;
      unsure[i]->is_silent = may_be_noise && written.avg_logprob < *options.least_logprob;
      const bool loops = unsure[i]->written.avg_logprob < kUnsureLogprob && options.most_compression &&
                         repeated[i].compression > *options.most_compression;
      if (unsure[i]->is_silent || !may_be_noise || !loops) unsure[i] = nullptr;
    }
    std::erase(unsure, nullptr);
  }
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
  const double offset = static_cast<double>(window.at) / kSpeechRate;
  call.transcript.segments.push_back({.start = offset + start,
                                      .end = offset + end,
                                      .text = std::move(text),
                                      .tokens = {tokens.begin(), tokens.end()},
                                      .window_start = window.at / kFrameStep,
                                      .temperature = window.temperature,
                                      .avg_logprob = window.written.avg_logprob,
                                      .compression_ratio = window.compression,
                                      .no_speech_prob = window.written.no_speech});
}

// The decoder reads the text of the window's segments once more, without times.
void SpeechModel::add_word_times(Call& call, const Window& window, size_t first_segment) {
  const SpeechTokens& t = tokens();
  const std::span<SpeechSegment> segments = std::span(call.transcript.segments).subspan(first_segment);
  std::vector<int32_t> read = call.first;
  if (read.back() != t.no_times) read.push_back(t.no_times);
  const int n_before = static_cast<int>(read.size());
  const auto is_text = [&](int32_t id) { return id < t.end; };
  for (const SpeechSegment& segment : segments) std::ranges::copy_if(segment.tokens, std::back_inserter(read), is_text);
  const int n_text = static_cast<int>(read.size()) - n_before;
  read.push_back(t.end);
  const int n_rows = static_cast<int>(std::min<int64_t>(window.n_samples() / kSamplesATime, config().n_rows));
  if (n_text == 0 || n_rows == 0 || static_cast<int>(read.size()) > config().n_ctx) return;
  const std::vector<float> shares = net_.align(read, window.sound.all(), n_rows);
  // What a token looks at tells where the next one is, so the last token before the text is the first row.
  const std::vector<int> starts = token_starts(shares, static_cast<int>(files_.alignment.size()),
                                               static_cast<int>(read.size()), n_rows, n_before - 1, n_text + 1);
  std::vector<float> logprobs;
  for (size_t i = 0; i < window.written.tokens.size(); ++i)
    if (is_text(window.written.tokens[i])) logprobs.push_back(window.written.logprobs[i]);
  const double offset = static_cast<double>(window.at) / kSpeechRate;
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
// window, or where the last segment ends, if text follows it. If windows end at pauses, that text is a segment too.
int64_t SpeechModel::add_segments(Call& call, const Window& window) const {
  const SpeechTokens& t = tokens();
  const std::span<const int32_t> all = window.written.tokens;
  const int64_t n_samples = window.n_samples();
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
  if (call.cuts_at_pauses() && begin < n)
    add_segment(call, window, all.subspan(begin), time_of(begin),
                std::max(time_of(begin), static_cast<double>(n_samples) / kSpeechRate));
  if (ends_with_one_time || call.cuts_at_pauses()) return n_samples;
  const int64_t offset = int64_t{all[begin - 1] - t.first_time} * kSamplesATime;
  return offset > 0 ? std::min(offset, n_samples) : n_samples;
}

// Adds the segments of a window. Returns by how many samples the next window begins later.
int64_t SpeechModel::finish_window(Call& call, Window& window) {
  const size_t n_before = call.transcript.segments.size();
  const int64_t step = window.is_silent ? window.n_samples() : add_segments(call, window);
  if (call.options.word_times) add_word_times(call, window, n_before);
  if (window.hottest >= kDrawsAlike) {
    call.context.clear();
    return step;
  }
  for (const SpeechSegment& segment : std::span(call.transcript.segments).subspan(n_before))
    call.context.insert(call.context.end(), segment.tokens.begin(), segment.tokens.end());
  if (const auto n = std::ssize(call.context); n > config().n_ctx)
    call.context.erase(call.context.begin(), call.context.begin() + (n - config().n_ctx));
  return step;
}

// How many samples at the beginning of a window are skipped, because there is no sound or only steady noise: all, or
// almost up to the sound, if that is far enough.
int64_t SpeechModel::quiet_before_sound(std::span<const float> samples, const SpeechOptions& options) const {
  const auto n_samples = static_cast<int64_t>(samples.size()), n_window = int64_t{config().n_samples()};
  const int64_t n_shortest = n_window / 30, n_kept = n_window / 150;  // a second, and a fifth of one
  auto n_quiet = static_cast<int64_t>(quiet_beginning(samples, options.quietest));
  if (n_quiet < n_samples && options.finds_voice && n_samples >= kLeastForVoice) {
    const std::vector<VoiceSpan> spans = voice_spans(samples, options.quietest);
    n_quiet = std::max(n_quiet, spans.empty() ? n_samples : spans[0].begin);
  }
  if (n_quiet == n_samples) return n_samples;
  return n_quiet < n_shortest ? 0 : (n_quiet - n_kept) / kSamplesATime * kSamplesATime;
}

// The end of a window whose samples begin at a sound: the end of the recording, or a pause.
int64_t SpeechModel::end_of_window(std::span<const float> samples, const SpeechOptions& options) const {
  if (std::ssize(samples) < config().n_samples()) return std::ssize(samples);
  return last_pause(samples, voice_spans(samples, options.quietest), config().n_samples() / 2);
}

// Reads the next windows with sound, from call.at on. Returns false at the end of the recording.
bool SpeechModel::next_windows(Call& call, WindowReader& reader, std::vector<Window>& windows) const {
  windows.clear();
  const bool is_one = !call.cuts_at_pauses();
  while (std::ssize(windows) < (is_one ? 1 : call.options.n_parallel)) {
    if (call.at > 0 && !reader.has(call.at + kLeastSamples - 1)) return !windows.empty();
    std::span<const float> samples = reader.window(call.at, config().n_samples());
    if (samples.empty()) throw Error("the audio has no sound: it has no samples");
    if (const int64_t n_quiet = quiet_before_sound(samples, call.options); n_quiet > 0) {
      call.at += n_quiet;
      if (is_one) return true;
      continue;
    }
    if (!is_one) samples = samples.first(static_cast<size_t>(end_of_window(samples, call.options)));
    Window& window = windows.emplace_back();
    window.at = call.at;
    window.samples.assign(samples.begin(), samples.end());
    if (!is_one) call.at += window.n_samples();
  }
  return true;
}

// Encodes the windows, and finds out their language and their prompts.
void SpeechModel::hear(Call& call, std::span<Window> windows, int n_frames) {
  std::vector<std::span<const float>> samples;
  for (const Window& window : windows) samples.push_back(window.samples);
  std::vector<SharedFloats> sounds = writer_.hear(samples, n_frames);
  for (size_t i = 0; i < windows.size(); ++i) windows[i].sound = std::move(sounds[i]);
  if (tokens().is_multilingual && call.first[1] < 0) {
    call.first[1] = writer_.detect_language(windows[0].sound.all());
    call.transcript.language = tokens().code_of(call.first[1]);
  }
  for (Window& window : windows) window.prompt = prompt_of(call);
}

std::optional<SpeechGuess> SpeechModel::peek(std::span<const float> samples, const SpeechOptions& options,
                                             std::span<const int32_t> draft) {
  SpeechOptions once = options;
  once.temperatures = {0}, once.n_parallel = once.n_beams = 1;
  check(once);
  CHECK(std::ssize(samples) <= config().n_samples());
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::nullopt;
  Call call = new_call(once);
  // The encoder hears the sound and some silence, not a whole window.
  const int64_t n_frames = (std::ssize(samples) + kFrameStep - 1) / kFrameStep + kPeekedSilence;
  Window window;
  window.samples.assign(samples.begin(), samples.end());
  hear(call, {&window, 1}, static_cast<int>(std::clamp<int64_t>(n_frames / 2 * 2, 2, config().n_frames())));
  Window* const one = &window;
  write_once(call, {&one, 1}, 0, draft);
  SpeechGuess guess{.tokens = window.written.tokens};
  if (window.is_silent || is_poor(window, once) || !says_something(window.text)) return guess;
  const auto is_text = [&](int32_t id) { return id < tokens().end; };
  std::vector<int32_t> text;
  std::vector<float> logprobs;
  for (size_t i = 0; i < window.written.tokens.size(); ++i)
    if (is_text(window.written.tokens[i]))
      text.push_back(window.written.tokens[i]), logprobs.push_back(window.written.logprobs[i]);
  auto logprob = logprobs.begin();
  for (WordTokens& piece : characters_of(tokenizer(), text)) {
    const auto end = logprob + static_cast<std::ptrdiff_t>(piece.n_tokens);
    guess.pieces.push_back({std::move(piece.text), std::exp(*std::min_element(logprob, end))});
    logprob = end;
  }
  return guess;
}

struct SpeechModel::Transcription::State {
  State(SpeechModel& m, AudioStream& a, const SpeechOptions& o, const SpeechProgress& p)
      : model(m), audio(a), options(o), progress(p), call(m.new_call(options)), reader(a) {}

  SpeechModel& model;
  AudioStream& audio;
  const SpeechOptions options;
  const SpeechProgress progress;
  Call call;
  WindowReader reader;
  std::vector<Window> windows;
};

SpeechModel::Transcription::Transcription(std::unique_ptr<State> state) : state_(std::move(state)) {}
SpeechModel::Transcription::Transcription(Transcription&&) noexcept = default;
SpeechModel::Transcription::~Transcription() = default;

bool SpeechModel::Transcription::step() {
  State& s = *state_;
  if (!s.model.next_windows(s.call, s.reader, s.windows)) return false;
  const size_t n_before = s.call.transcript.segments.size();
  if (!s.windows.empty()) {
    const std::lock_guard lock(s.model.mutex_);
    s.model.hear(s.call, s.windows);
    s.model.write_well(s.call, s.windows);
    for (Window& window : s.windows) {
      const int64_t step = s.model.finish_window(s.call, window);
      if (!s.call.cuts_at_pauses()) s.call.at += step;
    }
  }
  const std::span<const SpeechSegment> added = std::span(s.call.transcript.segments).subspan(n_before);
  return !s.progress.on_window ||
         s.progress.on_window(added, static_cast<double>(s.call.at) / kSpeechRate, s.audio.stated_seconds());
}

Transcript SpeechModel::Transcription::finish() {
  Transcript& transcript = state_->call.transcript;
  transcript.seconds = static_cast<double>(state_->reader.n_read()) / kSpeechRate;
  transcript.is_truncated = state_->audio.is_truncated();
  return std::move(transcript);
}

SpeechModel::Transcription SpeechModel::begin(AudioStream& audio, const SpeechOptions& options,
                                              const SpeechProgress& progress) {
  check(options);
  return Transcription(std::make_unique<Transcription::State>(*this, audio, options, progress));
}

Transcript SpeechModel::transcribe(AudioStream& audio, const SpeechOptions& options, const SpeechProgress& progress) {
  Transcription all = begin(audio, options, progress);
  while (all.step()) {}
  return all.finish();
}

}  // namespace ingot
