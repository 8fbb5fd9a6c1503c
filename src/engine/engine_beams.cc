// The engine's part of searches with beams (beams.h).
#include <algorithm>
#include <exception>
#include <utility>

#include "base/device_lost.h"
#include "engine/ending.h"
#include "engine/engine.h"
#include "engine/faults.h"

namespace ingot {
namespace {

// Delivers a text. Returns its end.
Finish deliver(const BeamSearch::Text& text, TokenSink& sink, Finish finish) {
  const size_t n = text.tokens.size() - text.has_ended;
  finish.usage.output_tokens = static_cast<int>(text.tokens.size());
  if (text.has_ended) finish.stop_token = text.tokens.back();
  if (!text.has_ended) finish.reason = FinishReason::kLength;
  try {
    for (size_t i = 0; i < n; ++i) sink.on_token({.token = text.tokens[i], .logprob = text.logprobs[i], .top = {}});
  } catch (const std::exception& error) {
    finish.reason = FinishReason::kError, finish.error = message_of(error);
  }
  return finish;
}

// The end of a consumer for which the search has found no text, or of all consumers of a search that has failed.
Finish without_text(Finish finish) {
  finish.usage.output_tokens = 0;
  if (finish.reason != FinishReason::kStop) return finish;
  finish.reason = FinishReason::kError, finish.has_nan = true;
  finish.error = "the search with beams has found fewer texts";
  return finish;
}

}  // namespace

std::shared_ptr<BeamGroup> make_beams(Sequence& leader, Request& request) {
  const size_t n_ends = request.ignore_eos ? 0 : request.stop_tokens.size();
  request.sampling.n_candidates = beam_candidates(request.beams->n_beams, n_ends);
  auto is_end = [stops = request.stop_tokens, n_ends](int32_t token) {
    return n_ends > 0 && std::ranges::find(stops, token) != stops.end();
  };
  return std::make_shared<BeamGroup>(BeamGroup{
      .search = BeamSearch(*request.beams, n_ends, leader.max_len - leader.n_prompt, std::move(is_end)),
      .all = {&leader},
      .running = {&leader},
      .idle = {}});
}

// The sequence may be destroyed.
void Engine::take_candidates(Sequence& sequence, const Sampled& ranked) {
  const std::shared_ptr<BeamGroup> group = sequence.beams;  // lives until the end of this call
  try {
    Sequence& leader = *group->leader();
    leader.last_token = Clock::now();
    if (leader.n_output() == 0) leader.first_token = leader.last_token;
    sequence.candidates = ranked.top;
    sequence.has_nan |= ranked.top.empty();  // NaN in the cache may be why no token can follow
    const auto is_known = [](const Sequence* beam) { return beam->candidates.has_value(); };
    if (std::ranges::all_of(group->running, is_known)) choose_beams(*group);
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    finish_beams(*group, FinishReason::kError, message_of(error));
  }
}

void Engine::choose_beams(BeamGroup& group) {
  std::vector<std::vector<TokenLogprob>> candidates;
  for (Sequence* beam : group.running) {
    candidates.push_back(std::move(*beam->candidates));
    beam->candidates.reset();
  }
  const std::span<const BeamSearch::Beam> next = group.search.step(candidates);
  if (!next.empty()) return spread_beams(group, next);
  const bool has_text = !group.search.finished().empty();
  group.leader()->has_nan |= !has_text;
  finish_beams(group, has_text ? FinishReason::kStop : FinishReason::kError,
               has_text ? "" : "no token is left that the constraint, the biases and the model's output all allow");
}

// Gives each of the next beams a sequence with the tokens of its parent, then the beam's token.
void Engine::spread_beams(BeamGroup& group, std::span<const BeamSearch::Beam> next) {
  const std::vector<Sequence*> parents = group.running;
  std::vector<Sequence*> beams(next.size(), nullptr);
  std::vector<bool> goes_on(parents.size(), false);
  for (size_t i = 0; i < next.size(); ++i) {
    const auto parent = static_cast<size_t>(next[i].parent);
    if (!goes_on[parent]) beams[i] = parents[parent];
    goes_on[parent] = true;
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    if (goes_on[i]) continue;
    scheduler_.pause(parents[i]);
    group.idle.push_back(parents[i]);
  }
  const auto copy = [&](int pool, int32_t from, int32_t to) { runner_.copy_kv(pool, from, to); };
  for (size_t i = 0; i < next.size(); ++i) {
    if (beams[i] != nullptr) continue;
    Sequence& parent = *parents[static_cast<size_t>(next[i].parent)];
    Sequence& child = group.idle.empty() ? further_beam(group) : *group.idle.back();
    child.tokens = parent.tokens;
    child.has_nan = false;
    child.made_mask.reset();
    if (parent.constraint) child.constraint = std::make_shared<AnswerConstraint>(*parent.constraint);
    group.idle.pop_back();
    scheduler_.fork(child, parent, copy);
    beams[i] = &child;
  }
  group.running = beams;
  for (size_t i = 0; i < next.size(); ++i) {
    Sequence& beam = *beams[i];
    beam.tokens.push_back(next[i].token);
    if (beam.constraint && !read_token(beam, next[i].token)) ask_worker(beam, false);
    if (group.is_over) return;
  }
}

// A new sequence, the last of the idle ones.
Sequence& Engine::further_beam(BeamGroup& group) {
  const Sequence& leader = *group.leader();
  auto owned = std::make_unique<Sequence>();
  Sequence& beam = *owned;
  beam.id = next_id_++;
  beam.request = leader.request;
  beam.request.client.clear();
  beam.request.begin_by = beam.request.deadline = {};
  beam.beams = leader.beams;
  beam.early = leader.early;
  beam.rows = leader.rows;
  beam.n_prompt = beam.n_scored = leader.n_prompt;
  beam.n_whole_rows = leader.n_whole_rows;
  beam.max_len = leader.max_len;
  beam.submitted = leader.submitted, beam.first_step = leader.first_step;
  group.idle.reserve(group.idle.size() + 1);
  group.all.reserve(group.all.size() + 1);
  const auto place = sequences_.try_emplace(beam.id).first;
  try {
    scheduler_.add_beam(&beam, leader);
  } catch (...) {
    sequences_.erase(place);
    throw;
  }
  place->second = std::move(owned);
  group.idle.push_back(&beam), group.all.push_back(&beam);
  return beam;
}

// With kStop: delivers the texts. Otherwise, all consumers hear the reason.
void Engine::finish_beams(BeamGroup& group, FinishReason reason, const std::string& error) {
  if (std::exchange(group.is_over, true)) return;
  const std::shared_ptr<BeamGroup> kept = group.leader()->beams;
  const Sequence& leader = *group.leader();
  Finish finish{reason, -1, {}, leader.has_nan, usage_of(leader)};
  try {
    finish.error = error;
  } catch (const std::bad_alloc&) {
    finish.error = kOutOfMemory;  // short enough not to allocate
  }
  const Request request = leader.request;
  const RequestId id = leader.id;
  count_end(leader, reason);
  for (Sequence* sequence : group.all) retire(*sequence);
  publish();  // before the texts, so that the consumers see the blocks released
  for (size_t i = 0; i <= request.more_sinks.size(); ++i) {
    TokenSink& sink = *(i == 0 ? request.sink : request.more_sinks[i - 1]);
    const bool has_text = reason == FinishReason::kStop && i < group.search.finished().size();
    tell_end(id, sink, has_text ? deliver(group.search.finished()[i], sink, finish) : without_text(finish));
    if (has_text) counts_.n_output_tokens += std::ssize(group.search.finished()[i].tokens);
  }
}

}  // namespace ingot
