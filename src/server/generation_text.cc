// Turns a request's tokens into text: whole characters, cut at stop strings, preceded by the echo.
#include <algorithm>
#include <iterator>
#include <limits>

#include "server/generation.h"

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
  choice.usage.output_tokens = choice.n_tokens;
  choice.last_token = at;
  if (spec_.wants_tokens) choice.held.emplace_back(choice.decoded_bytes, token_text(token, spec_.skip_special));
  const std::string text = choice.decoder.push(token.token);
  choice.decoded_bytes += text.size();
  show(index, choice.n_tokens <= spec_.min_tokens ? text : choice.stops.push(text), false);
  if (choice.stops.stopped()) {
    model_->engine().cancel(choice.id);
    end_choice(index, "stop");
  }
}

// Outputs text together with the tokens that begin in the text. `all`: also outputs the remaining tokens, which have no
// text.
void GenerationRun::show(int index, std::string text, bool all) {
  Choice& choice = choices_[index];
  choice.shown_bytes += text.size();
  Delta delta{.text = std::move(text)};
  size_t n = 0;
  while (n < choice.held.size() && (all || choice.held[n].first < choice.shown_bytes))
    delta.tokens.push_back(std::move(choice.held[n++].second));
  choice.held.erase(choice.held.begin(), choice.held.begin() + static_cast<ptrdiff_t>(n));
  if (!delta.text.empty() || !delta.tokens.empty()) emit_delta(index, std::move(delta));
}

void GenerationRun::emit_delta(int index, Delta delta) {
  Choice& choice = choices_[index];
  if (spec_.wants_totals) delta.so_far = totals();
  if (spec_.stream) return writer_->delta(index, delta, out_);
  choice.result.whole.text += delta.text;
  std::ranges::move(delta.tokens, std::back_inserter(choice.result.whole.tokens));
}

void GenerationRun::end_choice(int index, const char* reason, const std::string& failure) {
  Choice& choice = choices_[index];
  if (std::exchange(choice.over, true)) return;
  begin_choice(index, Clock::now());
  if (!choice.stops.stopped()) {
    std::string rest = choice.stops.push(choice.decoder.flush());
    const bool cut = choice.stops.stopped();
    if (!cut) rest += choice.stops.flush();
    show(index, std::move(rest), !cut);
  }
  if (choice.stops.stopped() && spec_.keep_stop) show(index, choice.stops.match(), false);
  choice.result.end = {
      choice.stops.stopped() ? "stop" : reason, choice.stops.match(), choice.stops.stopped() ? "" : failure, {},
      choice.n_tokens};
  if (spec_.wants_totals) choice.result.end.so_far = totals();
  if (spec_.stream) writer_->choice_end(index, choice.result.end, out_);
  has_ended_ = true;
}

std::span<const int32_t> GenerationRun::shown_special() const {
  return spec_.keep_markers ? model_->marker_tokens() : std::span<const int32_t>();
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
