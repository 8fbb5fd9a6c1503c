#include "model/speech/speech_writer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/sampler.h"
#include "base/check.h"
#include "base/error.h"
#include "base/splitmix.h"

namespace ingot {
namespace {

// Draws from softmax(logits / temperature), with a uniform number of [0, 1).
int32_t draw_token(std::span<const float> logits, float temperature, double uniform) {
  const float largest = largest_logit(logits);
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

struct SpeechWriter::Text {
  int slot = 0;
  WrittenText written;
  std::span<float> logits;                 // [n_vocab], of the next token; the net's or Window::first_logits
  std::vector<TokenLogprob> candidates;    // of a beam
  double sum = 0;                          // of the log-probabilities
  bool is_over = false, is_finite = true;
};

struct SpeechWriter::Window {
  const SpeechTask* task = nullptr;
  int index = 0;        // of its slot
  int n_most = 0;       // tokens of the text
  int n_written = 0;    // by each text
  std::vector<Text> texts;
  std::vector<int> idle;  // slots of texts
  std::optional<BeamSearch> search;
  std::vector<float> first_logits;  // of the prompt
  std::span<float> ahead;           // [n, n_vocab]: logits behind further tokens of the draft
  float no_speech = 0;
  bool is_over = false;
};

SpeechWriter::SpeechWriter(SpeechNet& net, const SpeechTokens& tokens, int n_threads)
    : net_(net), mel_(net.config().n_mels), tokens_(tokens), pool_(n_threads) {}

std::vector<SharedFloats> SpeechWriter::hear(std::span<const std::span<const float>> windows, int n_frames) {
  if (n_frames == 0) n_frames = net_.config().n_frames();
  const size_t of_window = static_cast<size_t>(n_frames) * static_cast<size_t>(mel_.n_mels());
  const std::shared_ptr<float[]> features = net_.host_floats(windows.size() * of_window);
  const auto make = [&](int64_t i, ThreadPool* pool) {
    std::ranges::copy(mel_.features(windows[static_cast<size_t>(i)], n_frames, pool),
                      features.get() + static_cast<size_t>(i) * of_window);
  };
  const int64_t n_windows = std::ssize(windows);  // threads share a window if there are few
  if (n_windows < pool_.size())
    for (int64_t i = 0; i < n_windows; ++i) make(i, &pool_);
  else
    pool_.parallel_for(n_windows, [&](int64_t i, int) { make(i, nullptr); });
  std::vector<SharedFloats> sounds;
  const auto n_heard = static_cast<size_t>(net_.room().heard);
  for (size_t first = 0; first < windows.size(); first += n_heard) {
    const size_t n = std::min(n_heard, windows.size() - first);
    const SharedFloats encoded = net_.encode({features.get() + first * of_window, n * of_window});
    const size_t size = encoded.size() / n;
    for (size_t i = 0; i < n; ++i) sounds.push_back(encoded.share_of(i * size, size));
  }
  return sounds;
}

int32_t SpeechWriter::detect_language(std::span<const float> sound) {
  const SpeechStep step{.tokens = {&tokens_.start, 1}, .sound = sound, .logit_rows = {0}};
  const std::span<const float> logits = net_.decode({&step, 1});
  int32_t best = tokens_.languages.front().second;
  for (const auto& [code, token] : tokens_.languages)
    if (logits[static_cast<size_t>(token)] > logits[static_cast<size_t>(best)]) best = token;
  return best;
}

// Reads the prompts, some windows at once, and sets the logits of each window's first text.
void SpeechWriter::read_prompts(std::span<Window> windows) {
  const auto n_vocab = static_cast<size_t>(net_.config().n_vocab);
  const auto n_heard = static_cast<size_t>(net_.room().heard);
  for (size_t first = 0; first < windows.size(); first += n_heard) {
    const std::span<Window> some = windows.subspan(first, std::min(n_heard, windows.size() - first));
    std::vector<SpeechStep> steps;
    for (const Window& window : some) {
      const std::span<const int32_t> prompt = window.task->prompt;
      const auto start = static_cast<int>(std::ranges::find(prompt, tokens_.start) - prompt.begin());
      steps.push_back({.text = window.texts[0].slot,
                       .window = window.index,
                       .tokens = prompt,
                       .sound = window.task->sound,
                       .logit_rows = {start, static_cast<int>(prompt.size()) - 1}});
    }
    const std::span<const float> rows = net_.decode(steps);
    for (size_t i = 0; i < some.size(); ++i) {
      const std::span<const float> at_start = rows.subspan(2 * i * n_vocab, n_vocab),
                                   last = rows.subspan((2 * i + 1) * n_vocab, n_vocab);
      some[i].first_logits.assign(last.begin(), last.end());
      some[i].texts[0].logits = some[i].first_logits;
      if (tokens_.no_speech >= 0)
        some[i].no_speech = static_cast<float>(
            std::exp(double{at_start[static_cast<size_t>(tokens_.no_speech)]} - log_sum_exp(at_start)));
    }
  }
}

// Sets the candidates of a beam: its likeliest tokens by the rules, with the model's own log-probabilities.
void SpeechWriter::take_candidates(Text& text, const Window& window) {
  const double total = log_sum_exp(text.logits);
  text.is_finite = std::isfinite(total);
  window.task->rules->apply(text.logits, text.written.tokens);
  std::vector<TokenLogprob>& all = text.candidates;
  all.clear();
  const auto is_likelier = [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob; };
  const auto n = static_cast<size_t>(beam_candidates(window.task->beams.n_beams, 1));
  for (size_t id = 0; id < text.logits.size(); ++id) {  // a heap whose front is the least likely
    const auto logprob = static_cast<float>(text.logits[id] - total);
    if (!(logprob > -INFINITY) || (all.size() == n && logprob <= all.front().logprob)) continue;
    if (all.size() == n) {
      std::ranges::pop_heap(all, is_likelier);
      all.pop_back();
    }
    all.push_back({static_cast<int32_t>(id), logprob});
    std::ranges::push_heap(all, is_likelier);
  }
  std::ranges::sort_heap(all, is_likelier);
}

// Chooses the next token of a text, or ends it.
void SpeechWriter::choose(Window& window, Text& text) {
  if (window.search) return take_candidates(text, window);
  const SpeechTask& task = *window.task;
  window.task->rules->apply(text.logits, text.written.tokens);
  const int32_t token =
      task.temperature > 0
          ? draw_token(text.logits, task.temperature,
                       uniform_of(task.seed, task.n_drawn + static_cast<uint64_t>(window.n_written)))
          : argmax(text.logits);
  const double logprob = double{text.logits[static_cast<size_t>(token)]} - log_sum_exp(text.logits);
  text.is_finite = !std::isnan(logprob);
  text.sum += logprob;
  text.written.avg_logprob = static_cast<float>(text.sum / (window.n_written + 1));
  text.is_over = token == tokens_.end || window.n_written + 1 == window.n_most;
  if (token == tokens_.end) return;
  text.written.tokens.push_back(token);
  text.written.logprobs.push_back(static_cast<float>(logprob));
}

// Gives each of the next beams a text that goes on like its parent. An ended beam's slot goes to another one.
void SpeechWriter::spread(Window& window, std::span<const BeamSearch::Beam> next) {
  std::vector<Text> texts;
  std::vector<bool> goes_on(window.texts.size(), false);
  for (const BeamSearch::Beam& beam : next) goes_on[static_cast<size_t>(beam.parent)] = true;
  for (size_t i = 0; i < window.texts.size(); ++i)
    if (!goes_on[i]) window.idle.push_back(window.texts[i].slot);
  const int n = static_cast<int>(window.task->prompt.size()) + window.n_written;
  for (const BeamSearch::Beam& beam : next) {
    const auto parent = static_cast<size_t>(beam.parent);
    Text& text = texts.emplace_back();
    text.slot = window.texts[parent].slot;
    text.written.tokens = window.texts[parent].written.tokens;
    if (!goes_on[parent]) {  // an earlier beam has the parent's slot
      CHECK(!window.idle.empty());
      net_.fork(window.idle.back(), text.slot, n);
      text.slot = window.idle.back();
      window.idle.pop_back();
    }
    goes_on[parent] = false;
  }
  for (size_t i = 0; i < next.size(); ++i) texts[i].written.tokens.push_back(next[i].token);
  window.texts = std::move(texts);
}

// After the choice of each text's token.
void SpeechWriter::advance(Window& window) {
  for (const Text& text : window.texts)
    if (!text.is_finite) throw Error("the speech model gave a number that is not finite for this audio");
  if (window.search) {
    std::vector<std::vector<TokenLogprob>> candidates;
    for (Text& text : window.texts) candidates.push_back(std::move(text.candidates));
    const auto next = window.search->step(candidates);
    if (!next.empty()) spread(window, next);
    if (next.empty()) window.texts.resize(1), window.texts[0].is_over = true;
    if (next.empty() && !window.search->finished().empty()) {
      const BeamSearch::Text& best = window.search->finished()[0];
      WrittenText& written = window.texts[0].written;
      written = {.tokens = best.tokens, .logprobs = best.logprobs};
      written.avg_logprob = best.sum / static_cast<float>(best.tokens.size());
      if (best.has_ended) written.tokens.pop_back(), written.logprobs.pop_back();
    }
  }
  ++window.n_written;
  window.is_over = std::ranges::all_of(window.texts, &Text::is_over);
}

// Whether a text that follows its draft has the logits of its next token already. Sets them.
bool SpeechWriter::has_next(Window& window) const {
  const std::vector<int32_t>& written = window.texts[0].written.tokens;
  const size_t n_vocab = window.first_logits.size();
  if (window.ahead.empty() || written.back() != window.task->draft[written.size() - 1]) return false;
  window.texts[0].logits = window.ahead.first(n_vocab);
  window.ahead = window.ahead.subspan(n_vocab);
  return true;
}

// The tokens of the draft that are read behind a text, if the draft is right so far.
static std::span<const int32_t> rest_of_draft(std::span<const int32_t> draft, std::span<const int32_t> written,
                                              size_t most_tokens) {
  const size_t n = written.size();
  if (n >= draft.size() || !std::ranges::equal(written, draft.first(n))) return {};
  return draft.subspan(n, std::min({draft.size() - n, kSpeechDraft - 1, most_tokens - n}));
}

std::vector<WrittenText> SpeechWriter::write(std::span<const SpeechTask> tasks) {
  const SpeechConfig& c = net_.config();
  std::vector<Window> windows(tasks.size());
  int n_slots = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    Window& window = windows[i];
    const SpeechTask& task = tasks[i];
    const bool has_beams = task.temperature == 0 && task.beams.n_beams > 1;
    CHECK(task.draft.empty() || (tasks.size() == 1 && task.temperature == 0 && !has_beams));
    window.task = &task, window.index = static_cast<int>(i);
    window.n_most = std::min(c.n_ctx - static_cast<int>(task.prompt.size()),
                             task.max_tokens > 0 ? task.max_tokens : std::max(c.n_ctx / 2, 1));
    window.texts.resize(1);
    window.texts[0].slot = n_slots++;
    if (!has_beams) continue;
    window.search.emplace(task.beams, 1, window.n_most, [end = tokens_.end](int32_t id) { return id == end; });
    for (int beam = 1; beam < task.beams.n_beams; ++beam) window.idle.push_back(n_slots++);
  }
  CHECK(n_slots <= net_.room().texts && std::ssize(windows) <= net_.room().windows);
  read_prompts(windows);
  std::vector<std::pair<Window*, Text*>> going;
  const auto find_going = [&] {
    going.clear();
    for (Window& window : windows)
      for (Text& text : window.texts)
        if (!text.is_over) going.emplace_back(&window, &text);
  };
  std::vector<SpeechStep> steps;
  for (find_going(); !going.empty();) {
    pool_.parallel_for(std::ssize(going), [&](int64_t i, int) {
      const auto& [window, text] = going[static_cast<size_t>(i)];
      choose(*window, *text);
    });
    for (Window& window : windows)
      if (!window.is_over) advance(window);
    find_going();
    if (going.empty()) break;
    if (has_next(*going[0].first)) continue;
    steps.clear();
    for (const auto& [window, text] : going)
      steps.push_back({.text = text->slot,
                       .window = window->index,
                       .tokens = {&text->written.tokens.back(), 1},
                       .position = static_cast<int>(window->task->prompt.size()) + window->n_written - 1,
                       .logit_rows = {0}});
    const std::vector<int32_t>& written = going[0].second->written.tokens;
    std::vector<int32_t> read = {written.back()};
    const std::span<const int32_t> draft =
        rest_of_draft(going[0].first->task->draft, written, static_cast<size_t>(going[0].first->n_most));
    read.insert(read.end(), draft.begin(), draft.end());
    for (int i = 1; i < std::ssize(read); ++i) steps[0].logit_rows.push_back(i);
    steps[0].tokens = read;
    const std::span<float> rows = net_.decode(steps);
    const auto n_vocab = static_cast<size_t>(c.n_vocab);
    for (size_t i = 0; i < going.size(); ++i) going[i].second->logits = rows.subspan(i * n_vocab, n_vocab);
    going[0].first->ahead = draft.empty() ? std::span<float>() : rows.subspan(n_vocab);
  }
  std::vector<WrittenText> all;
  for (Window& window : windows) {
    window.texts[0].written.no_speech = window.no_speech;
    all.push_back(std::move(window.texts[0].written));
  }
  return all;
}

}  // namespace ingot
