#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace ingot {
namespace {

constexpr int64_t kPlacesPerPriority = 1024;  // see Request::priority
constexpr int64_t kPlacesPerRequest = 64;     // for each request that its client has under way already
constexpr int64_t kMostPlacesBack = 64 * 1024;

template <class Container>
void insert_in_order(Container& sequences, Sequence* sequence) {
  sequences.insert(std::upper_bound(sequences.begin(), sequences.end(), sequence, senior), sequence);
}

template <class Container>
bool erase_one(Container& sequences, Sequence* sequence) {
  const auto found = std::find(sequences.begin(), sequences.end(), sequence);
  if (found == sequences.end()) return false;
  sequences.erase(found);
  return true;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits),
      cache_(limits.n_blocks, limits.block_size),
      pool_(limits.n_blocks, [this](int32_t block) { cache_.erase(block); }) {
  CHECK(limits.max_batch_tokens > 0 && limits.max_seqs > 0 && limits.chunk > 0);
  CHECK(limits.block_size > 0 && limits.n_blocks > 0);
  running_.reserve(limits.max_seqs);
  for (Step& step : steps_) step.items.reserve(limits.max_seqs);
}

void Scheduler::add(Sequence* sequence) {
  sequence->rank = rank_of(*sequence);
  sequence->root = sequence->chain = root_key(sequence->request.cache_salt);
  insert_in_order(waiting_, sequence);
}

// Ids are places in the order of arrival.
int64_t Scheduler::rank_of(const Sequence& sequence) {
  const int64_t place = static_cast<int64_t>(sequence.id) - sequence.request.priority * kPlacesPerPriority;
  if (sequence.request.client.empty()) return place;
  const auto [found, is_new] = clients_.try_emplace(sequence.request.client);
  Client& client = found->second;
  const int64_t rank = place + std::min(client.n_requests * kPlacesPerRequest, kMostPlacesBack);
  // When some have ended in between, this one does not overtake what still waits, unless it has priority.
  client.last_rank = is_new || sequence.request.priority != 0 ? rank : std::max(rank, client.last_rank);
  ++client.n_requests;
  return client.last_rank;
}

void Scheduler::pause(Sequence* sequence) {
  if (!erase_one(running_, sequence) && !erase_one(waiting_, sequence)) return;  // paused already
  if (!sequence->blocks.empty()) give_back(*sequence);
  paused_.push_back(sequence);
}

void Scheduler::resume(Sequence* sequence) {
  if (erase_one(paused_, sequence)) insert_in_order(waiting_, sequence);
}

void Scheduler::remove(Sequence* sequence) {
  CHECK(erase_one(running_, sequence) || erase_one(waiting_, sequence) || erase_one(paused_, sequence));
  const auto client = clients_.find(sequence->request.client);
  if (client != clients_.end() && --client->second.n_requests == 0) clients_.erase(client);
}

void Scheduler::release(Sequence* sequence) { give_back(*sequence); }

const Step& Scheduler::plan() {
  step_ = step_ == &steps_[0] ? &steps_[1] : &steps_[0];
  step_->items.clear();
  step_->n_tokens = step_->n_decodes = step_->n_preempted = step_->n_cached = 0;
  if (limits_.window > 0)
    for (Sequence* sequence : running_) give_up_old_blocks(*sequence);
  make_room();
  plan_decodes();
  plan_prefills();
  admit();
  return *step_;
}

// Blocks in front of the window of the next token: nothing that is still to be planned reads them.
void Scheduler::give_up_old_blocks(Sequence& sequence) {
  const int n = std::min((sequence.n_computed + 1 - limits_.window) / limits_.block_size, sequence.n_indexed);
  for (; sequence.n_given_up < n; ++sequence.n_given_up) {
    int32_t& block = sequence.blocks[sequence.n_given_up];
    pool_.release(block, cache_.holds(block));
    block = -1;
  }
}

void Scheduler::plan_decodes() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    const bool decodes = sequence.n_todo() == 1 && !sequence.done_when_seen() && budget() > 0;
    // Those planned so far are senior, so the most junior is never one of them; it may be this one.
    while (decodes && i < running_.size() && !grow(sequence, sequence.n_computed + 1)) preempt(*running_.back());
    if (decodes && i < running_.size()) take(sequence, 1);
    ++i;
  }
}

void Scheduler::plan_prefills() {
  for (size_t i = 0; i < running_.size() && budget() > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.n_todo() <= 1) continue;
    // Without a block it waits for others to end. When nobody else has anything to do, it is the most senior, and takes.
    while (prefill_tokens(sequence) == 0 && step_->items.empty() && running_.back() != &sequence)
      preempt(*running_.back());
    const int n_tokens = prefill_tokens(sequence);
    if (n_tokens > 0) take(sequence, n_tokens);
  }
}

void Scheduler::admit() {
  // While there is budget, every running sequence has its part of this step (one that lacks blocks also bars
  // admission), so there are never more of them than the budget has tokens, and a prompt among decodes still gets one.
  while (!waiting_.empty() && budget() > 0) {
    Sequence* sequence = waiting_.front();
    if (sequence->n_unseen > 0) break;  // preempted a moment ago
    if (!fits(*sequence)) break;
    take_cached(*sequence);
    waiting_.pop_front();
    insert_in_order(running_, sequence);
    const int n_tokens = prefill_tokens(*sequence);
    if (n_tokens == 0) break;  // all blocks but its own are those of finished ones, whose last step still runs
    take(*sequence, n_tokens);
  }
}

// Who waits with more priority than somebody who runs takes their place.
void Scheduler::make_room() {
  while (!waiting_.empty() && !running_.empty()) {
    const Sequence* sequence = waiting_.front();
    Sequence* junior = running_.back();
    if (junior->request.priority >= sequence->request.priority || !senior(sequence, junior)) return;
    if (sequence->n_unseen > 0 || (n_running() < limits_.max_batch_tokens && fits(*sequence))) return;
    preempt(*junior);
  }
}

// Whether there is room for it. Leaves in match_ what the cache holds of it.
bool Scheduler::fits(const Sequence& sequence) {
  if (n_running() >= limits_.max_seqs) return false;
  // The last token is computed in any case, for its logits.
  const std::span<const int32_t> tokens = sequence.tokens;
  cache_.find(sequence.root, tokens.first(limits_.prefix_cache ? tokens.size() - 1 : 0), match_);
  // One more block for each running sequence, or the next few tokens would preempt what has just been admitted.
  int needed = n_running() + blocks_for(sequence.len());
  for (const Sequence* other : running_) needed += blocks_promised(*other);
  for (const int32_t block : match_.blocks) needed -= pool_.refs(block) > 0;  // kept ones count as free
  return n_running() == 0 || pool_.n_free() >= needed;
}

// Starts it behind the tokens of match_.
void Scheduler::take_cached(Sequence& sequence) {
  CHECK(sequence.blocks.empty());
  for (const int32_t block : match_.blocks) {
    pool_.share(block);
    sequence.blocks.push_back(block);
  }
  sequence.n_indexed = static_cast<int>(match_.blocks.size());
  sequence.chain = match_.blocks.empty() ? sequence.root : match_.key;
  if (match_.tail >= 0) {  // it will be written to, so it is nobody else's any more
    pool_.share(match_.tail);
    cache_.erase(match_.tail);
    sequence.blocks.push_back(match_.tail);
  }
  sequence.n_computed = sequence.n_valid = match_.n_tokens;
  step_->n_cached += match_.n_tokens;
  if (sequence.n_evicted == 0) sequence.n_cached = match_.n_tokens;
}

// Tokens of its prompt for this step: what the chunk, the budget and the blocks allow.
int Scheduler::prefill_tokens(const Sequence& sequence) const {
  const int64_t n_blocks = static_cast<int64_t>(sequence.blocks.size()) + pool_.n_free();
  const int64_t room = n_blocks * limits_.block_size - sequence.n_computed;
  const int wanted = std::min({sequence.n_todo(), limits_.chunk, budget()});
  return static_cast<int>(std::min<int64_t>(wanted, room));
}

// Blocks that it has yet to claim for tokens that are known.
int Scheduler::blocks_promised(const Sequence& sequence) const {
  return std::max(0, blocks_for(sequence.planned_len()) - static_cast<int>(sequence.blocks.size()));
}

void Scheduler::take(Sequence& sequence, int n_tokens) {
  CHECK_GT(n_tokens, 0);
  CHECK_LE(n_tokens, budget());
  CHECK(grow(sequence, sequence.n_computed + n_tokens));
  const bool samples = n_tokens == sequence.n_todo();
  step_->items.push_back({&sequence, sequence.n_computed, n_tokens, samples, sequence.n_evicted});
  step_->n_tokens += n_tokens;
  step_->n_decodes += n_tokens == 1;
  sequence.n_computed += n_tokens;
}

// Makes room for n_tokens in all. False when the pool is out of blocks.
bool Scheduler::grow(Sequence& sequence, int n_tokens) {
  while (static_cast<int>(sequence.blocks.size()) < blocks_for(n_tokens)) {
    const int32_t block = pool_.take();
    if (block < 0) return false;
    sequence.blocks.push_back(block);
  }
  return true;
}

void Scheduler::preempt(Sequence& sequence) {
  CHECK(erase_one(running_, &sequence));
  give_back(sequence);
  ++sequence.n_preempted;
  ++step_->n_preempted;
  insert_in_order(waiting_, &sequence);
}

// All blocks of a sequence, which then has computed nothing. What others may use stays in the cache.
void Scheduler::give_back(Sequence& sequence) {
  if (sequence.spoiled) {
    for (const int32_t block : sequence.blocks)
      if (block >= 0) cache_.erase(block);
  } else if (limits_.prefix_cache) {
    index_tail(sequence);
  }
  // The last one first, so that of a chain the end goes before its start.
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block)
    if (*block >= 0) pool_.release(*block, cache_.holds(*block));
  sequence.blocks.clear();
  sequence.n_computed = sequence.n_valid = sequence.n_indexed = sequence.n_given_up = 0;
  sequence.chain = sequence.root;
  ++sequence.n_evicted;
}

void Scheduler::done(const StepItem& item) {
  Sequence& sequence = *item.sequence;
  if (item.n_evicted != sequence.n_evicted || item.begin != sequence.n_valid) return;  // lost, or after a failed step
  sequence.n_valid = item.begin + item.n_tokens;
  if (limits_.prefix_cache && !sequence.spoiled) index_blocks(sequence);
}

// The full blocks that are new, for others to share.
void Scheduler::index_blocks(Sequence& sequence) {
  const int size = limits_.block_size;
  const std::span<const int32_t> tokens = sequence.tokens;
  for (int& n = sequence.n_indexed; (n + 1) * size <= sequence.n_valid; ++n)
    sequence.chain = cache_.insert(sequence.chain, tokens.subspan(static_cast<size_t>(n) * size, size), sequence.blocks[n]);
}

// What it wrote of its last block, for whoever goes on from there. Nobody holds that block but the sequence.
void Scheduler::index_tail(Sequence& sequence) {
  const int begin = sequence.n_indexed * limits_.block_size, n = sequence.n_valid - begin;
  if (n <= 0) return;
  const int32_t block = sequence.blocks[sequence.n_indexed];
  cache_.insert(sequence.chain, std::span<const int32_t>(sequence.tokens).subspan(begin, n), block);
}

}  // namespace ingot
