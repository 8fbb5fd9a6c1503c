// Turns a request's tokens into text: whole characters, cut at stop strings, preceded by the echo.
#include <algorithm>
#include <iterator>
#include <limits>

#include "server/answers/generation.h"

namespace ingot {
namespace {

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

void GenerationRun::on_prompt_progress(int index, const PromptProgress& progress, Clock::time_point at) {
  if (choices_[index].begun) return;  // of a sequence that began again
  Usage& usage = choices_[index].usage;
  usage.cached_tokens = progress.n_cached;
  usage.queue_ms = milliseconds(progress.submitted, progress.first_step);
  usage.prefill_ms = milliseconds(progress.first_step, at);
  if (!spec_.wants_progress) return;
  begin_stream();
  const int n_prompt = static_cast<int>(spec_.prompts[index / spec_.n].size());
  writer_->progress(index, {n_prompt, progress.n_cached, progress.n_done, usage.prefill_ms}, out_);
}

void GenerationRun::on_prompt_token(int index, const Sampled& token) {
  if (choices_[index].begun) return;  // of a sequence that began again
  TokenText text = token_text(token, spec_.echo && spec_.skip_special);
  text.of_prompt = true;
  choices_[index].scored.push_back(std::move(text));
}

void GenerationRun::begin_stream() {
  if (spec_.stream && !std::exchange(begun_, true)) writer_->begin(totals(), out_);
}

// Writes what precedes a choice's first token.
void GenerationRun::begin_choice(int index, Clock::time_point at) {
  Choice& choice = choices_[index];
  if (std::exchange(choice.begun, true)) return;
  if (first_token_ == Clock::time_point{}) first_token_ = at;
  begin_stream();
  if (!spec_.stream && scores_prompt()) choice.result.prompt = choice.scored;
  if (!spec_.echo) return;
  const std::vector<int32_t>& prompt = spec_.prompts[index / spec_.n];
  Delta delta{.text = model_->tokenizer().decode(prompt, true)};
  if (scores_prompt()) {
    delta.tokens.push_back(
        token_text({.token = prompt[0], .logprob = std::numeric_limits<float>::quiet_NaN()}, spec_.skip_special));
    delta.tokens[0].of_prompt = true;
    std::ranges::move(choice.scored, std::back_inserter(delta.tokens));
  }
  emit_delta(index, std::move(delta));
}

void GenerationRun::on_token(int index, const Sampled& token, Clock::time_point at) {
  Choice& choice = choices_[index];
  if (is_repeated(index, token)) return;
  begin_choice(index, at);
  if (spec_.prompt_only) return;
  if (choice.n_tokens++ > 0) {
    const double gap = milliseconds(choice.last_token, at);
    model_->metrics.on_inter_token(gap / 1e3);
    choice.usage.decode_ms += gap;
  }
  choice.sum_logprob += token.logprob;
  choice.usage.output_tokens = choice.n_tokens;
  choice.last_token = at;
  if (spec_.wants_tokens) choice.held.emplace_back(choice.decoded_bytes, token_text(token, spec_.skip_special));
  const std::string text = choice.decoder.push(token.token);
  choice.decoded_bytes += text.size();
  show(index, choice.reader.read(text, choice.n_tokens > spec_.min_tokens), false);
  if (choice.reader.stopped()) {
    model_->engine().cancel(choice.id);
    end_choice(index, "stop");
  }
}

// Outputs events together with the tokens that begin in the text of the events. `all`: also outputs the remaining
// tokens, which have no text.
void GenerationRun::show(int index, AnswerEvents events, bool all) {
  Choice& choice = choices_[index];
  Delta delta;
  size_t n = 0;
  const auto take = [&](AnswerEvent::Kind part) {
    choice.held[n].second.part = part;
    delta.tokens.push_back(std::move(choice.held[n++].second));
  };
  for (const AnswerEvent& event : events) {
    choice.shown_bytes += event.raw;
    while (n < choice.held.size() && choice.held[n].first < choice.shown_bytes) take(event.kind);
  }
  while (all && n < choice.held.size()) take(AnswerEvent::Kind::kMarkup);
  choice.held.erase(choice.held.begin(), choice.held.begin() + static_cast<ptrdiff_t>(n));
  if (spec_.form.format)
    delta.events = std::move(events);
  else
    for (AnswerEvent& event : events) delta.text += event.text;
  if (!delta.text.empty() || !delta.events.empty() || !delta.tokens.empty()) emit_delta(index, std::move(delta));
}

void GenerationRun::emit_delta(int index, Delta delta) {
  Choice& choice = choices_[index];
  if (spec_.wants_totals) delta.so_far = totals();
  if (spec_.stream) return writer_->delta(index, delta, out_);
  choice.result.whole.text += delta.text;
  append_events(choice.result.whole.events, std::move(delta.events));
  std::ranges::move(delta.tokens, std::back_inserter(choice.result.whole.tokens));
}

void GenerationRun::end_choice(int index, const char* reason, const std::string& failure) {
  Choice& choice = choices_[index];
  if (std::exchange(choice.over, true)) return;
  begin_choice(index, Clock::now());
  if (!choice.reader.stopped()) {
    AnswerEvents rest = choice.reader.read(choice.decoder.flush());
    append_events(rest, choice.reader.finish());
    show(index, std::move(rest), !choice.reader.stopped());
  }
  const bool stopped = choice.reader.stopped();
  choice.result.end = {.reason = stopped ? "stop" : reason,
                       .stop_string = choice.reader.stop_string(),
                       .failure = stopped ? "" : failure,
                       .has_calls = choice.reader.has_calls(),
                       .warnings = choice.reader.warnings(),
                       .n_tokens = choice.n_tokens};
  if (choice.reader.has_cut_call() && choice.result.end.failure.empty()) choice.result.end.reason = "length";
  if (spec_.wants_totals) choice.result.end.so_far = totals();
  if (spec_.stream) writer_->choice_end(index, choice.result.end, out_);
  has_ended_ = true;
}

std::span<const int32_t> GenerationRun::shown_special() const {
  const bool has_markers = spec_.form.format == &model_->answers().format();
  return has_markers ? model_->answers().marker_tokens() : std::span<const int32_t>();
}

TokenText GenerationRun::token_text(const Sampled& token, bool skip_special) const {
  const Tokenizer& tokenizer = model_->tokenizer();
  const auto bytes = [&](int32_t id) {
    return id < tokenizer.n_vocab() ? std::string(tokenizer.token_bytes(id)) : std::string();
  };
  TokenText text{.id = token.token, .bytes = bytes(token.token), .logprob = token.logprob};
  const bool is_skipped = skip_special && !std::ranges::binary_search(shown_special(), token.token);
  if (is_skipped && token.token < tokenizer.n_vocab() && tokenizer.is_special(token.token)) text.bytes.clear();
  for (const TokenLogprob& one : token.top) text.top.push_back({one.token, bytes(one.token), one.logprob});
  return text;
}

}  // namespace ingot
