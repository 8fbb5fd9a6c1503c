#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"

namespace ingot {
namespace {

constexpr int64_t kPlacesPerPriority = 1024;  // see Request::priority
constexpr int64_t kPlacesPerRequest = 64;     // for each request that the client has in flight already
constexpr int64_t kMaxPlacesBack = 64 * 1024;

void insert_in_order(std::vector<Sequence*>& sequences, Sequence* sequence) {
  sequences.insert(std::upper_bound(sequences.begin(), sequences.end(), sequence, senior), sequence);
}

bool erase_one(std::vector<Sequence*>& sequences, Sequence* sequence) {
  const auto found = std::find(sequences.begin(), sequences.end(), sequence);
  if (found == sequences.end()) return false;
  sequences.erase(found);
  return true;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits),
      cache_(limits.pools, limits.block_size, {}, limits.embedding_dim > 0,
             [this](int pool, int32_t block) {
               forget_match(pool, block);
               pools_[static_cast<size_t>(pool)].discard(block);
             }),
      sources_(limits.source.dim > 0 ? limits.source.n_blocks : 0),
      states_(limits.n_states, limits.max_seqs, cache_) {
  CHECK(limits.max_batch_tokens > 0 && limits.max_seqs > 0 && limits.chunk > 0);
  CHECK(limits.block_size > 0 && !limits.pools.empty() && limits.pools.size() <= kMaxTables);
  pools_.reserve(limits.pools.size());
  for (int pool = 0; pool < n_pools(); ++pool) {
    const KvPool& shape = limits.pools[static_cast<size_t>(pool)];
    CHECK(shape.n_blocks > 0 &&
          (limits.pools[0].window == 0 || (shape.window > 0 && shape.window <= limits.pools[0].window)));
    pools_.emplace_back(shape.n_blocks, [this, pool](int32_t block) {
      forget_match(pool, block);
      cache_.lose(block, pool);
    });
  }
  match_.pools.resize(limits.pools.size());
  blocks_.resize(limits.pools.size());
  CHECK(limits.n_in_flight > 0 && limits.n_stages > 0);
  steps_.resize(static_cast<size_t>(limits.n_in_flight));
  step_ = steps_.data();
  cache_.set_listener(limits.cache_listener);
  running_.reserve(limits.max_seqs);
  prompts_.reserve(limits.max_seqs);
  for (CacheMatch::OfPool& pool : match_.pools) pool.blocks.reserve(cache_.longest_chain());
  for (Step& step : steps_) step.items.reserve(limits.max_seqs);
}

// May throw if memory runs out, and then changes nothing.
void Scheduler::add(Sequence* sequence) {
  sequence->pools.resize(limits_.pools.size());
  const RequestSource& source = sequence->request.source;
  std::string salt = sequence->request.cache_salt;
  if (source.n_rows > 0)  // the zero is no part of the format, which would end there
    salt += '\0' + fmt::format("{:x} {:x} {}", source.digest[0], source.digest[1], source.n_rows);
  sequence->root = sequence->chain = root_key(salt);
  if (sequence->request.publishes_prefix) cache_.announce(sequence->root);
  sequence->rank = rank_of(*sequence);
  reserve_place();
  insert_in_order(waiting_, sequence);
  const auto client = clients_.find(sequence->request.client);
  if (client == clients_.end()) return;
  client->second.last_rank = sequence->rank;
  ++client->second.n_requests;
}

void Scheduler::reserve_place() {
  const size_t n = waiting_.size() + running_.size() + paused_.size() + 1;
  for (auto* list : {&waiting_, &paused_})
    if (list->capacity() < n) list->reserve(2 * n);
}

// Ids are in order of arrival, so they serve as places in the queue.
int64_t Scheduler::rank_of(const Sequence& sequence) {
  const int64_t place = static_cast<int64_t>(sequence.id) - sequence.request.priority * kPlacesPerPriority;
  if (sequence.request.client.empty()) return place;
  const Client& client = clients_[sequence.request.client];
  const int64_t rank = place + std::min(client.n_requests * kPlacesPerRequest, kMaxPlacesBack);
  // If some of the client's requests have ended meanwhile, a new request must not overtake the client's waiting
  // requests, unless the new request has priority.
  return client.n_requests == 0 || sequence.request.priority != 0 ? rank : std::max(rank, client.last_rank);
}

void Scheduler::pause(Sequence* sequence) {
  if (!erase_one(running_, sequence) && !erase_one(waiting_, sequence)) return;  // already paused
  if (sequence->pools[0].size() > 0 || sequence->state_out >= 0 || !sequence->source_blocks.empty())
    give_back(*sequence);
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
  step_ = &steps_[next_step_];
  step_->items.clear();
  step_->n_tokens = step_->n_decodes = step_->n_preempted = step_->n_cached = step_->n_spare_rows =
      step_->n_source_rows = 0;
  step_->no_memory_for = nullptr;
  matched_ = nullptr;  // steps completed since the last plan may have indexed more blocks
  if (has_window())
    for (Sequence* sequence : running_) give_up_old_blocks(*sequence);
  if (!holds_.empty()) take_back_holds();
  make_room();
  do {
    plan_decodes();
    plan_prefills();
    admit();
  } while (step_->items.empty() && step_->no_memory_for == nullptr && preempt_held_beam());
  if (!step_->items.empty()) next_step_ = (next_step_ + 1) % steps_.size();
  return *step_;
}

// Releases the blocks before the window of the next token, because no future step reads these blocks. A sequence with
// drafts or an undrawn item in flight may be cut back, so its window is computed from the last valid token.
void Scheduler::give_up_old_blocks(Sequence& sequence) {
  const bool goes_back = sequence.n_drafts > 0 || sequence.undrawn_at >= 0;
  const int next = goes_back ? sequence.n_valid : sequence.n_computed;
  for (int pool = 0; pool < n_pools(); ++pool) {
    const int window = limits_.pools[static_cast<size_t>(pool)].window;
    SequenceBlocks& own = sequence.pools[static_cast<size_t>(pool)];
    int n = first_block_seen(next, window, limits_.block_size);
    // Blocks that are not indexed yet stay, because other sequences could share them later.
    if (limits_.prefix_cache) n = std::min(n, sequence.n_indexed);
    for (; own.n_released < n; ++own.n_released) {
      int32_t& block = own.blocks[static_cast<size_t>(own.n_released)];
      const bool is_useful = is_before_snapshot(sequence, own.n_released, window);
      release_block(pool, block, is_useful ? BlockPool::Keep::kLong : BlockPool::Keep::kBriefly);
      block = -1;
      ++n_blocks_released_;
    }
  }
}

// Whether the window of a token at a place where other sequences may continue has the block.
bool Scheduler::is_before_snapshot(const Sequence& sequence, int block, int window) const {
  const int size = limits_.block_size;
  return std::ranges::any_of(std::array{sequence.branch, sequence.last_boundary}, [&](int place) {
    return (block + 1) * size <= place && block >= first_block_seen(place, window, size);
  });
}

// Indexed blocks stay in the cache.
void Scheduler::release_block(int pool, int32_t block, BlockPool::Keep keep) {
  pools_[static_cast<size_t>(pool)].release(block, cache_.holds(block, pool) ? keep : BlockPool::Keep::kNot);
}

// The most senior waiting sequence that can be admitted.
Sequence* Scheduler::next_waiting() const {
  const auto found = std::ranges::find(waiting_, false, &Sequence::is_held);
  return found == waiting_.end() ? nullptr : *found;
}

bool Scheduler::idle() const {
  return std::ranges::all_of(running_, &Sequence::is_held) && std::ranges::all_of(waiting_, &Sequence::is_held);
}

bool Scheduler::waits_for_masks() const {
  const auto waits = [](const Sequence* s) { return s->waits_for_mask; };
  return std::ranges::any_of(running_, waits) || std::ranges::any_of(waiting_, waits);
}

// With several stages, each step in flight gets the same share of the sequences that decode.
int Scheduler::most_decodes() const {
  const auto decodes = [](const Sequence* s) { return s->n_todo() == 1 && !s->done_when_seen() && !s->is_held(); };
  const auto n = static_cast<int>(std::ranges::count_if(running_, decodes));
  return (n + limits_.n_stages - 1) / limits_.n_stages;
}

void Scheduler::plan_decodes() {
  const int max_decodes = most_decodes();
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    const bool waits = !sequence.is_ready() || (limits_.n_stages > 1 && sequence.n_unseen > 0);
    const bool decodes = sequence.n_todo() == 1 && !sequence.done_when_seen() && !waits && budget() > 0 &&
                         step_->n_decodes < max_decodes && has_room_for_source(sequence);
    // The sequences planned so far are senior to this one, so the most junior sequence is this one or a later one. If
    // only this sequence runs, it waits for the step in flight. That step's end releases blocks before the window or
    // blocks of a finished sequence.
    bool has_room = decodes && grow(sequence, sequence.n_computed + 1);
    while (decodes && !has_room && running_.size() > 1 && i < running_.size()) {
      preempt(*running_.back());
      has_room = i < running_.size() && grow(sequence, sequence.n_computed + 1);
    }
    if (has_room) take(sequence, 1, drafts_for(sequence, n_running() - static_cast<int>(i) - 1));
    ++i;
  }
}

// The most senior prompt gets at least half of the budget, so that it makes progress. The other half goes first to the
// prompts with the fewest tokens to compute, so that short prompts do not wait for long prompts. If a waiting sequence
// can be admitted, up to half of the budget is reserved for that sequence.
void Scheduler::plan_prefills() {
  prompts_.clear();
  for (Sequence* sequence : running_)
    if (sequence->n_todo() > 1 && !sequence->is_held()) prompts_.push_back(sequence);
  if (prompts_.empty() || budget() == 0) return;
  const Sequence* waiting = next_waiting();
  const bool can_admit = waiting != nullptr && waiting->n_unseen == 0 && fits(*waiting);
  int left = budget() - (can_admit ? std::min(budget() / 2, waiting->n_todo()) : 0);
  Sequence* first = prompts_.front();
  const int reserved =
      std::max(std::min({std::max(1, left / 2), limits_.chunk, first->n_todo()}), whole_rows_next(*first));
  std::sort(prompts_.begin() + 1, prompts_.end(), [](const Sequence* a, const Sequence* b) {
    return a->n_todo() != b->n_todo() ? a->n_todo() < b->n_todo() : senior(a, b);
  });
  for (size_t i = 1; i < prompts_.size() && left > reserved; ++i) {
    const int n_tokens = prefill_tokens(*prompts_[i], left - reserved);
    if (n_tokens <= 0) continue;
    take(*prompts_[i], n_tokens);
    left -= n_tokens;
  }
  // A sequence without a free block waits for others to end. If no other sequence has work, junior sequences are
  // preempted.
  while (prefill_tokens(*first, budget()) == 0 && step_->items.empty() && running_.back() != first)
    preempt(*running_.back());
  const int n_tokens = prefill_tokens(*first, std::max(left, whole_rows_next(*first)));
  if (n_tokens > 0) take(*first, n_tokens);
}

void Scheduler::admit() {
  // There are never more sequences than tokens in the budget, so a prompt among decodes still gets one token.
  while (budget() > 0 && n_running() < limits_.max_batch_tokens) {
    Sequence* sequence = next_waiting();
    if (sequence == nullptr) break;
    if (sequence->n_unseen > 0) break;  // preempted while its last sampled token was not known yet
    if (!fits(*sequence)) break;
    if (!reserve(*sequence)) {
      step_->no_memory_for = sequence;
      break;
    }
    if (!take_source(*sequence)) break;
    take_cached(*sequence);
    erase_one(waiting_, sequence);
    insert_in_order(running_, sequence);
    const int n_tokens = prefill_tokens(*sequence, budget());
    if (n_tokens == 0) break;  // all other blocks belong to finished sequences whose last step still runs
    take(*sequence, n_tokens);
  }
}

// A waiting sequence of higher priority preempts a running sequence of lower priority.
void Scheduler::make_room() {
  for (const Sequence* sequence; (sequence = next_waiting()) != nullptr && !running_.empty();) {
    Sequence* junior = running_.back();
    if (junior->request.priority >= sequence->request.priority || !senior(sequence, junior)) return;
    if (sequence->n_unseen > 0 || (n_running() < limits_.max_batch_tokens && fits(*sequence))) return;
    preempt(*junior);
  }
}

// Whether the sequence can be admitted. Sets match_ to the sequence's cached prefix.
bool Scheduler::fits(const Sequence& sequence) {
  if (n_running() >= limits_.max_seqs) return false;
  if (states_ && !states_.room_for_one()) return false;
  // One more block for each running sequence. Otherwise the sequence just admitted would be preempted after a few
  // tokens.
  std::array<int, kMaxTables> needed{};
  for (int pool = 0; pool < n_pools(); ++pool) {
    int& n = needed[static_cast<size_t>(pool)] = n_running();
    for (const Sequence* other : running_) n += blocks_promised(*other, pool);
    if (n_running() > 0 && this->pool(pool).n_free() <= n) return false;  // even if all tokens are cached
  }
  match_cache(sequence);
  for (int pool = 0; pool < n_pools(); ++pool) {
    int own = blocks_for(sequence.len());
    for (const int32_t block : match_.pools[static_cast<size_t>(pool)].blocks)
      own -= block < 0 || this->pool(pool).refs(block) > 0;  // cached blocks count as free
    const int n = needed[static_cast<size_t>(pool)] + std::min(own, most_blocks_held(sequence, pool));
    if (n_running() > 0 && this->pool(pool).n_free() < n) return false;
  }
  return true;
}

// For a long prompt, this lookup is the most expensive part of a plan. So each plan looks up only the sequence at the
// head of the queue, and only once.
void Scheduler::match_cache(const Sequence& sequence) {
  if (match_is_of(sequence)) return;
  // The last token is always computed, for its logits. Tokens that need log-probabilities are computed too.
  const int n_usable = sequence.scores() ? sequence.n_scored : sequence.len() - 1;
  cache_.find(sequence.root, sequence.cache_tokens().first(limits_.prefix_cache ? n_usable : 0), match_);
  matched_ = &sequence;
  ++n_cache_walks_;
}

// Within a plan, the cache evicts blocks and states when sequences need their memory. If a block of match_ is evicted,
// matched_ is reset.
bool Scheduler::match_is_of(const Sequence& sequence) const {
  return matched_ == &sequence && (match_.state < 0 || cache_.holds_state(match_.state));
}

void Scheduler::forget_match(int pool, int32_t block) {
  const CacheMatch::OfPool& match = match_.pools[static_cast<size_t>(pool)];
  if (block == match.tail || std::ranges::find(match.blocks, block) != match.blocks.end()) matched_ = nullptr;
}

// Whether the step can make the keys of the source, if the sequence brings one.
bool Scheduler::has_room_for_source(const Sequence& sequence) const {
  return !sequence.brings_source ||
         step_->n_source_rows + sequence.request.source.n_rows <= limits_.source.max_rows;
}

// Takes the blocks of the sequence's source. Returns false if there are too few, or if the step brings another source.
bool Scheduler::take_source(Sequence& sequence) {
  const int n_rows = sequence.request.source.n_rows;
  if (n_rows == 0) return true;
  if (sources_.n_free() < blocks_for(n_rows) || step_->n_source_rows + n_rows > limits_.source.max_rows) return false;
  for (int i = blocks_for(n_rows); i > 0; --i) sequence.source_blocks.push_back(sources_.take());
  return sequence.brings_source = true;
}

// Reserves memory for all tokens and blocks that the sequence may need, so that no step allocates. Returns false if
// memory runs out.
bool Scheduler::reserve(Sequence& sequence) const {
  try {
    sequence.tokens.reserve(sequence.max_len);
    sequence.source_blocks.reserve(static_cast<size_t>(blocks_for(sequence.request.source.n_rows)));
    for (SequenceBlocks& own : sequence.pools)
      own.blocks.reserve(static_cast<size_t>(blocks_for(std::max(sequence.max_len, sequence.len()))) + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Starts the sequence after the tokens of match_.
void Scheduler::take_cached(Sequence& sequence) {
  CHECK(sequence.pools[0].size() == 0);
  matched_ = nullptr;
  for (int pool = 0; pool < n_pools(); ++pool) {
    const CacheMatch::OfPool& match = match_.pools[static_cast<size_t>(pool)];
    SequenceBlocks& own = sequence.pools[static_cast<size_t>(pool)];
    own.blocks = match.blocks;
    const int window = limits_.pools[static_cast<size_t>(pool)].window;
    own.n_released = std::min(first_block_seen(match_.n_tokens, window, limits_.block_size), own.size());
    std::fill_n(own.blocks.begin(), own.n_released, -1);
    for (int i = own.n_released; i < own.size(); ++i)
      pools_[static_cast<size_t>(pool)].share(own.blocks[static_cast<size_t>(i)]);
    if (match.tail >= 0) pools_[static_cast<size_t>(pool)].share(match.tail);
  }
  sequence.n_indexed = sequence.pools[0].size();
  sequence.chain = sequence.n_indexed == 0 ? sequence.root : match_.key;
  if (states_) states_.start(sequence, match_.state, match_.has_tail());
  sequence.branch = match_.n_known;
  sequence.last_boundary = (sequence.len() - 1) / limits_.block_size * limits_.block_size;
  if (match_.has_tail()) {  // the sequence will write to the tail, so no other sequence may use it
    cache_.erase(match_.pools[0].tail);
    for (int pool = 0; pool < n_pools(); ++pool)
      sequence.pools[static_cast<size_t>(pool)].blocks.push_back(match_.pools[static_cast<size_t>(pool)].tail);
  }
  sequence.n_computed = sequence.n_valid = match_.n_tokens;
  step_->n_cached += match_.n_tokens;
  if (sequence.n_evicted == 0) sequence.n_cached = match_.n_tokens;
}

// The number of blocks that the sequence still needs for its known tokens, less those that it will have released by
// then.
int Scheduler::blocks_promised(const Sequence& sequence, int pool) const {
  const SequenceBlocks& own = sequence.pools[static_cast<size_t>(pool)];
  const int n_missing = blocks_for(sequence.planned_len()) - own.size();
  return std::max(0, std::min(n_missing, most_blocks_held(sequence, pool) - own.n_held()));
}

// With a window, a sequence releases a block before the window when the step that wrote the block is complete. Several
// such steps may be in flight. The first and the last block may be partly used, and kernels need one more block
// (first_block_seen).
int Scheduler::most_blocks_held(const Sequence& sequence, int pool) const {
  const auto& [n_blocks, window] = limits_.pools[static_cast<size_t>(pool)];
  const int longest = std::max(limits_.chunk, sequence.n_whole_rows);
  return window == 0 ? n_blocks : blocks_for(window + std::max(2, limits_.n_in_flight) * longest) + 3;
}

// The number of drafts that the sequence can have after its last token. The needs of other sequences come first: a
// token in this step for each of the n_later sequences planned after this one, a block for each running sequence, and a
// slot for each sequence that can run.
int Scheduler::drafts_for(const Sequence& sequence, int n_later) const {
  if (sequence.proposed.empty()) return 0;
  if (states_ && sequence.state_in == sequence.state_out && states_.n_free() <= limits_.max_seqs - n_running())
    return 0;
  const int n_wanted = std::min(static_cast<int>(sequence.proposed.size()), sequence.max_len - sequence.len() - 1);
  const int n_tokens = budget() - 1 - n_later - (waiting_.empty() ? 0 : 1);
  const int n_drafts = std::min({n_wanted, n_tokens, limits_.spare_rows - step_->n_spare_rows});
  return static_cast<int>(std::clamp<int64_t>(room_for_drafts(sequence), 0, std::max(0, n_drafts)));
}

// The number of drafts for which the sequence has blocks or can take blocks.
int64_t Scheduler::room_for_drafts(const Sequence& sequence) const {
  int n_free = std::numeric_limits<int>::max();
  for (const BlockPool& pool : pools_) n_free = std::min(n_free, pool.n_free());
  const int n_blocks = sequence.pools[0].size() + std::max(0, n_free - n_running());
  return static_cast<int64_t>(n_blocks) * limits_.block_size - sequence.n_computed - 1;
}

// The head guesses the first draft without writing to a block.
int Scheduler::make_room_for_drafts(Sequence& sequence, int n) {
  const int64_t room = std::min<int64_t>(room_for_drafts(sequence), sequence.max_len - sequence.len() - 1);
  n = static_cast<int>(std::clamp<int64_t>(room, 0, n));
  CHECK(n == 0 || grow(sequence, sequence.n_computed + n - 1));
  return n;
}

// Adds the next n_tokens of the sequence and n_drafts of its proposed drafts to the step.
void Scheduler::take(Sequence& sequence, int n_tokens, int n_drafts) {
  CHECK_GT(n_tokens, 0);
  CHECK_LE(n_tokens + n_drafts, budget());
  const int end = sequence.n_computed + n_tokens + n_drafts;
  CHECK(grow(sequence, end));
  const bool samples = n_tokens == sequence.n_todo();
  StepItem item{.sequence = &sequence,
                .begin = sequence.n_computed,
                .n_tokens = n_tokens + n_drafts,
                .n_drafts = n_drafts,
                .brings_source = std::exchange(sequence.brings_source, false),
                .samples = samples,
                .n_evicted = sequence.n_evicted};
  if (n_drafts > 0) {
    CHECK(samples && sequence.n_unseen == 0 && sequence.n_drafts == 0 && end == sequence.len() + n_drafts);
    sequence.tokens.insert(sequence.tokens.end(), sequence.proposed.begin(), sequence.proposed.begin() + n_drafts);
    sequence.n_drafts = n_drafts;
    step_->n_spare_rows += n_drafts;
    if (states_) states_.keep_input(sequence);
  }
  sequence.proposed.clear();  // drafts that do not fit are dropped
  if (states_) states_.step(sequence, item, n_drafts == 0 && end == next_snapshot(sequence));
  if (sequence.scores()) {
    item.score_begin = std::max(item.begin, sequence.n_scored);
    item.n_scored = std::max(0, std::min(item.begin + n_tokens, sequence.n_prompt - 1) - item.score_begin);
    sequence.n_scored += item.n_scored;
    step_->n_spare_rows += std::max(0, item.n_scored + samples - 1);
  }
  if (item.brings_source) step_->n_source_rows += sequence.request.source.n_rows;
  step_->items.push_back(item);
  step_->n_tokens += item.n_tokens;
  step_->n_decodes += n_tokens == 1;
  sequence.n_computed = end;
}

// Takes blocks until the sequence has blocks for n_tokens. Returns false if a pool has no block that is free or cached.
bool Scheduler::grow(Sequence& sequence, int n_tokens) {
  while (sequence.pools[0].size() < blocks_for(n_tokens)) {
    if (std::ranges::any_of(pools_, [](const BlockPool& pool) { return pool.n_free() == 0; })) return false;
    for (int pool = 0; pool < n_pools(); ++pool)
      sequence.pools[static_cast<size_t>(pool)].blocks.push_back(pools_[static_cast<size_t>(pool)].take());
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

// Releases all blocks of a sequence, which then has no computed tokens. Indexed blocks stay in the cache.
void Scheduler::give_back(Sequence& sequence, bool keep_state) {
  int32_t tail = -1;
  if (sequence.has_nan) {
    cache_.forget(sequence.root, sequence.cache_tokens());  // including the blocks that it released earlier
    for (const int32_t block : sequence.pools[0].blocks)
      if (block >= 0) cache_.erase(block);
  } else if (limits_.prefix_cache) {
    tail = index_tail(sequence);
  }
  if (states_) states_.stop(sequence, tail, keep_state && limits_.prefix_cache && !sequence.has_nan);
  // The last block first, so that the end of a chain is evicted before its start.
  for (int pool = 0; pool < n_pools(); ++pool) {
    SequenceBlocks& own = sequence.pools[static_cast<size_t>(pool)];
    for (auto block = own.blocks.rbegin(); block != own.blocks.rend(); ++block)
      if (*block >= 0) release_block(pool, *block);
    own.blocks.clear();
    own.n_released = 0;
  }
  for (const int32_t block : sequence.source_blocks) sources_.release(block);
  sequence.source_blocks.clear();
  sequence.brings_source = false;
  sequence.n_computed = sequence.n_valid = sequence.n_indexed = 0;
  sequence.chain = sequence.root;
  ++sequence.n_evicted;
}

void Scheduler::failed(const StepItem& item) { states_.finish_read(item); }

void Scheduler::done(const StepItem& item, int n_accepted) {
  Sequence& sequence = *item.sequence;
  if (item.n_evicted != sequence.n_evicted || item.begin != sequence.n_valid)
    return states_.finish_read(item);  // the blocks were lost, or an earlier step failed
  if (item.is_undrawn() && states_ && !states_.keeps_input(sequence, item)) return compute_again(item);
  const int n_wrong = item.n_drafts - n_accepted + item.is_undrawn();
  const bool goes_back = n_wrong > 0 && states_;  // the new state includes the wrong drafts
  if (goes_back) {
    states_.go_back(sequence, item);
  } else {
    states_.finish_read(item);
  }
  if (n_wrong > 0) cut_back(sequence, goes_back ? item.begin : item.begin + item.n_tokens - n_wrong);
  sequence.n_valid = n_wrong > 0 ? sequence.n_computed : item.begin + item.n_tokens;
  if (!limits_.prefix_cache || sequence.has_nan) return;
  index_blocks(sequence);
  if (states_) states_.keep(item, sequence.chain);
}

// The state after the item's last token has replaced the state before it. So the sequence starts again, after the last
// place for which the cache has a state.
void Scheduler::compute_again(const StepItem& item) {
  Sequence& sequence = *item.sequence;
  states_.finish_read(item);
  if (sequence.finished) return;
  CHECK(erase_one(running_, &sequence));
  give_back(sequence, false);
  insert_in_order(waiting_, &sequence);
}

// Cuts the sequence back to n_tokens computed tokens and releases the blocks beyond. Shared and cached blocks contain
// final tokens only, and the cut never reaches them. So a block that may be shared never becomes writable again.
void Scheduler::cut_back(Sequence& sequence, int n_tokens) {
  CHECK(n_tokens >= sequence.n_valid && n_tokens <= sequence.n_computed);
  const int n_blocks = blocks_for(n_tokens);
  for (int pool = 0; pool < n_pools(); ++pool) {
    std::vector<int32_t>& blocks = sequence.pools[static_cast<size_t>(pool)].blocks;
    const auto only_its_own = [&](int32_t block) {
      return this->pool(pool).refs(block) == 1 && !cache_.holds(block, pool);
    };
    while (static_cast<int>(blocks.size()) > n_blocks) {
      CHECK(only_its_own(blocks.back()));
      release_block(pool, blocks.back());
      blocks.pop_back();
    }
    CHECK(n_tokens % limits_.block_size == 0 || only_its_own(blocks.back()));
  }
  sequence.n_computed = n_tokens;
}

// Passes the new full blocks to the prefix cache, so that other sequences can share them.
void Scheduler::index_blocks(Sequence& sequence) {
  const int size = limits_.block_size;
  const CacheTokens tokens = sequence.cache_tokens();
  for (int& n = sequence.n_indexed; (n + 1) * size <= sequence.n_valid; ++n)
    sequence.chain = cache_.insert(sequence.chain, tokens.subspan(static_cast<size_t>(n) * size, size),
                                   blocks_of(sequence, n));
}

// The sequence's i-th block of each pool, until the next call.
std::span<const int32_t> Scheduler::blocks_of(const Sequence& sequence, int i) {
  std::ranges::transform(sequence.pools, blocks_.begin(),
                         [&](const SequenceBlocks& own) { return own.blocks[static_cast<size_t>(i)]; });
  return blocks_;
}

// Indexes the tokens of the last, partly filled block, for sequences that continue from there. Only this sequence holds
// that block.
int32_t Scheduler::index_tail(Sequence& sequence) {
  const int begin = sequence.n_indexed * limits_.block_size, n = sequence.n_valid - begin;
  if (n <= 0) return -1;
  const std::span<const int32_t> blocks = blocks_of(sequence, sequence.n_indexed);
  cache_.insert(sequence.chain, sequence.cache_tokens().subspan(begin, n), blocks);
  return blocks[0];
}

}  // namespace ingot
