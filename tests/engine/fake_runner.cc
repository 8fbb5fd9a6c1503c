#include "engine/fake_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/splitmix.h"

namespace ingot {
namespace {

uint64_t mix(uint64_t digest, uint64_t value) { return splitmix((digest + value + 1) * kSplitMixStep); }

int32_t token_of(uint64_t digest, uint64_t seed, int n_vocab) {
  return static_cast<int32_t>(mix(digest, seed) % static_cast<uint64_t>(n_vocab));
}

// The token that a bias forces. Otherwise the first token from `token` on that neither bias nor mask forbids, or
// kNoToken.
int32_t biased(int32_t token, const SampleRow& row, int n_vocab) {
  const auto forbids = [&](const auto& bias) {
    return bias.first == token && bias.second == -std::numeric_limits<float>::infinity();
  };
  const auto masked = [&] { return row.mask != nullptr && (row.mask[token / 32] >> (token % 32) & 1u) == 0; };
  for (const auto& [id, bias] : row.params->logit_bias)
    if (bias >= kForcingBias) return id;
  for (int i = 0; i < n_vocab; ++i, token = (token + 1) % n_vocab)
    if (!masked() && std::ranges::none_of(row.params->logit_bias, forbids)) return token;
  return kNoToken;
}

// Tokens from the one that the model writes on, with log-probabilities that fall.
std::vector<TokenLogprob> ranked(uint64_t digest, const SampleRow& row, int n_vocab) {
  std::vector<TokenLogprob> all;
  float logprob = -0.1f;
  const int32_t first = token_of(digest, row.params->seed, n_vocab);
  for (int i = 0; i < n_vocab && std::ssize(all) < row.params->n_candidates; ++i) {
    const int32_t token = (first + i) % n_vocab;
    logprob -= static_cast<float>(mix(digest, static_cast<uint64_t>(i)) % 1000) / 500.0f;
    if (biased(token, row, n_vocab) == token) all.push_back({token, logprob});
  }
  return all;
}

uint64_t ids_of(std::span<const int32_t> history) {
  uint64_t digest = 0;
  for (int32_t token : history) digest = mix(digest, static_cast<uint64_t>(token));
  return digest;
}

uint64_t digest_of(std::span<const float> vector) {
  uint64_t digest = 1;
  for (const float x : vector) digest = mix(digest, std::bit_cast<uint32_t>(x));
  return digest | 1;  // 0 means no vector
}

}  // namespace

FakeRunner::FakeRunner(const FakeOptions& options)
    : options_(options),
      states_(options.info.n_states) {
  for (const KvPool& pool : options.info.pools)
    caches_.emplace_back(static_cast<size_t>(pool.n_blocks) * static_cast<size_t>(options.info.block_size));
  head_.resize(caches_[0].size());
  sources_.resize(static_cast<size_t>(options.info.source.n_blocks) * static_cast<size_t>(options.info.block_size));
}

void FakeRunner::History::add(int32_t token, uint64_t vector) {
  ids = mix(ids, static_cast<uint64_t>(token));
  digest = vector != 0 ? mix(mix(digest, vector), ~uint64_t{0}) : mix(digest, static_cast<uint64_t>(token));
}

int32_t FakeRunner::next_token(std::span<const int32_t> history, uint64_t seed, int n_vocab,
                               std::span<const PromptEmbedding> embeddings, const RequestSource& source) {
  History all;
  const size_t source_dim = source.n_rows > 0 ? source.rows.size() / static_cast<size_t>(source.n_rows) : 0;
  for (size_t row = 0; row < static_cast<size_t>(source.n_rows); ++row)
    all.digest = mix(all.digest, digest_of(source.rows.part(row * source_dim, source_dim)));
  size_t next = 0;
  for (int position = 0; position < static_cast<int>(history.size()); ++position) {
    uint64_t vector = 0;
    while (next < embeddings.size() && position >= embeddings[next].position + embeddings[next].n_rows) ++next;
    if (next < embeddings.size() && position >= embeddings[next].position) {
      const PromptEmbedding& e = embeddings[next];
      const size_t dim = e.rows.size() / static_cast<size_t>(e.n_rows),
                   row = static_cast<size_t>(position - e.position);
      vector = digest_of(e.rows.part(row * dim, dim));
    }
    all.add(history[position], vector);
  }
  return token_of(all.digest, seed, n_vocab);
}

std::vector<TokenLogprob> FakeRunner::candidates(std::span<const int32_t> history, uint64_t seed, int n_vocab, int n) {
  History all;
  for (const int32_t token : history) all.add(token, 0);
  const SamplingParams params{.seed = seed, .logit_bias = {}, .n_candidates = n};
  return ranked(all.digest, {.params = &params}, n_vocab);
}

void FakeRunner::forward(const Batch& given) {
  const int64_t step = n_steps_++;
  if (options_.before_forward) options_.before_forward(step);
  begin_step(given.n_tokens());
  require(!head_waits_, "a forward before the draft head has followed the one before");

  const auto is_drawn = [](int32_t token) { return token < 0; };
  require(options_.info.n_stages == 1 || std::ranges::none_of(given.tokens, is_drawn), "a stage got a drawn token");
  Batch batch = given;
  batch.tokens = with_drawn_tokens(given, sampled_, tokens_);
  check_shape(batch);
  for (int pool = 0; pool < n_pools(); ++pool) check_blocks(batch, pool);
  check_states(batch);
  check_embeddings(batch);
  write_sources(batch);
  histories_.resize(batch.n_tokens());
  places_.assign(batch.n_tokens(), 0);
  has_logits_.assign(batch.n_tokens(), false);
  for (int32_t row : batch.logit_rows) has_logits_[row] = true;
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const History history = read_history(batch, seq, 0);
    for (int pool = 1; pool < n_pools(); ++pool)
      require(read_history(batch, seq, pool) == history, "sequence {}: pool {} has another history", seq, pool);
    write_tokens(batch, seq, history);
  }
  logits_.clear();
  logit_lens_.clear();
  for (int32_t row : batch.logit_rows) {
    logits_.push_back(histories_[row]);
    logit_lens_.push_back(batch.positions[row] + 1);
  }
  n_tokens_ += batch.n_tokens();
}

// The time of the checks below is part of the step's time, so wait() sleeps only for the rest.
void FakeRunner::begin_step(int n_tokens) {
  const double us = options_.step_us + options_.token_us * n_tokens;
  if (us <= 0) return;
  const auto time = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double, std::micro>(us));
  busy_until_ = std::max(busy_until_, std::chrono::steady_clock::now()) + time;
}

void FakeRunner::sample(std::span<const SampleRow> rows) {
  require(rows.size() == logits_.size(),
          "{} sample rows for {} rows of logits", rows.size(), logits_.size());
  require(std::ssize(waiting_) < std::max(1, options_.info.n_stages - 1), "a sample while {} samples wait",
          waiting_.size());
  sampled_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const SampleRow& row = rows[i];
    if (row.unwanted) {
      sampled_.emplace_back();
      continue;
    }
    require(row.position == logit_lens_[i],
            "row {} draws position {} after {}", i, row.position, logit_lens_[i]);
    require(!checks_all(i) || ids_of(row.history) == logits_[i].ids, "row {}: its history is not what the cache holds",
            i);
    Sampled drawn;
    drawn.token =
        biased(token_of(logits_[i].digest, row.params->seed, options_.info.n_vocab), row, options_.info.n_vocab);
    if (options_.writes) drawn.token = options_.writes(row);
    if (options_.makes_nan && options_.makes_nan(row)) drawn.token = kNoToken;
    if (row.params->n_candidates > 0 && drawn.token != kNoToken)
      drawn.top = ranked(logits_[i].digest, row, options_.info.n_vocab);
    if (row.params->n_logprobs >= 0) drawn.logprob = -static_cast<float>(drawn.token);
    sampled_.push_back(std::move(drawn));
  }
  waiting_.push_back({sampled_, busy_until_});
  head_waits_ = options_.info.draft_head != DraftHeadKind::kNone;
}

// The next token of a row without logits is known: it is the token of the next row, or the first token of a later
// chunk.
void FakeRunner::follow(std::span<const int32_t> next_tokens) {
  require(head_waits_ && !waiting_.empty(), "the draft head follows no sample");
  require(next_tokens.size() == places_.size(), "{} next tokens for {} tokens", next_tokens.size(), places_.size());
  head_waits_ = false;
  for (size_t i = 0; i < places_.size(); ++i) {
    int32_t next = next_tokens[i];
    const bool is_drawn = next < 0;
    require(has_logits_[i] || !is_drawn, "row {} has no logits, and its next token is drawn", i);
    if (is_drawn) {
      const auto row = static_cast<size_t>(-1 - next);
      require(row < sampled_.size() && logits_[row] == histories_[i], "row {} is followed by the draw of row {}", i,
              row);
      next = std::max(0, sampled_[row].token);
    }
    require(next < options_.info.n_vocab, "row {} is followed by {}", i, next);
    head_[static_cast<size_t>(places_[i])] = {histories_[i], next};
  }
}

// The head must have an entry of the same history for each token up to the row. In a block from the prefix cache, the
// last entry may have a different next token.
std::vector<std::vector<HeadGuess>> FakeRunner::draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on) {
  require(waiting_.empty() && !head_waits_, "the draft head guesses while a step is in flight");
  if (options_.before_draft) options_.before_draft(rows);
  std::vector<std::vector<HeadGuess>> guesses;
  int n_before = std::numeric_limits<int>::max();
  for (const DraftRow& row : rows) {
    require(row.n > 0 && row.n <= n_before, "{} guesses after {}", row.n, n_before);
    n_before = row.n;
    const int block_size = options_.info.block_size, last = row.position + row.n - 1;
    require(last / block_size < static_cast<int>(row.blocks.size()), "no block for position {}", last);
    const auto place = [&](int position) {
      return static_cast<size_t>(row.blocks[position / block_size]) * block_size + position % block_size;
    };
    require(places_.at(row.row) == static_cast<int64_t>(place(row.position)), "row {} is not position {}", row.row,
            row.position);
    for (int position = 0; position <= row.position; ++position)
      require(head_[place(position)].history == caches_[0][place(position)].history,
              "the draft head has no entry for position {}", position);
    History history = histories_[row.row];
    history.add(head_[place(row.position)].next, 0);
    std::vector<HeadGuess>& own = guesses.emplace_back();
    for (int i = 0; i < row.n; ++i) {
      const int32_t right = token_of(history.digest, 0, options_.info.n_vocab);
      const bool is_right = mix(history.digest, 1) % 1000 < static_cast<uint64_t>(options_.head_right * 1000);
      own.push_back({is_right ? right : (right + 1) % options_.info.n_vocab, static_cast<float>(options_.head_right)});
      history.add(own.back().token, 0);
      if (i > 0) head_[place(row.position + i)] = {};  // an entry of a guess
      if (goes_on && !goes_on(guesses.size() - 1, own.back().probability)) break;
    }
  }
  return guesses;
}

void FakeRunner::read_kv(int pool, int32_t block, std::span<uint8_t> to) {
  std::memcpy(to.data(), &caches_.at(pool).at(static_cast<size_t>(block) * options_.info.block_size), to.size());
}

void FakeRunner::write_kv(int pool, int32_t block, std::span<const uint8_t> from) {
  std::memcpy(static_cast<void*>(&caches_.at(pool).at(static_cast<size_t>(block) * options_.info.block_size)),
              from.data(), from.size());
}

std::vector<Sampled> FakeRunner::wait() {
  require(!waiting_.empty(), "a wait without a sample");
  const Draws oldest = std::move(waiting_.front());
  waiting_.pop_front();
  if (waiting_.empty()) sampled_.clear();
  std::this_thread::sleep_until(oldest.at);
  if (options_.before_wait) options_.before_wait();
  return oldest.tokens;
}

// The first position whose key and value the new tokens of this sequence see.
int FakeRunner::first_read(const Batch& batch, int seq, int pool) const {
  const int first_new = batch.kv_len[seq] - batch.q_len(seq), window = options_.info.pools[pool].window;
  return window > 0 ? std::max(0, first_new + 1 - window) : 0;
}

void FakeRunner::check_shape(const Batch& batch) {
  const RunnerInfo& info = options_.info;
  require(batch.n_seqs() > 0 && batch.n_seqs() <= info.max_seqs, "{} sequences", batch.n_seqs());
  require(batch.n_logits() <= std::max(info.max_seqs, info.max_logits), "{} rows of logits", batch.n_logits());
  require(batch.n_tokens() <= info.max_batch_tokens, "{} tokens in a batch", batch.n_tokens());
  require(batch.positions.size() == batch.tokens.size() && batch.q_start.size() == batch.kv_len.size() + 1 &&
              batch.block_table.size() == (caches_.size() + (info.source.dim > 0)) * batch.kv_len.size() *
                                              static_cast<size_t>(batch.max_blocks),
          "arrays of the batch differ in length");
  require(batch.q_start.front() == 0 && batch.q_start.back() == batch.n_tokens(), "q_start does not span the batch");
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    require(batch.q_len(seq) >= 1, "sequence {} brings {} tokens", seq, batch.q_len(seq));
    require(batch.kv_len[seq] <= info.n_ctx && batch.kv_len[seq] >= batch.q_len(seq) &&
                batch.kv_len[seq] <= batch.max_blocks * info.block_size,
            "sequence {} has kv_len {}", seq, batch.kv_len[seq]);
    for (int i = batch.q_start[seq]; i < batch.q_start[seq + 1]; ++i) {
      const int position = batch.kv_len[seq] - (batch.q_start[seq + 1] - i);
      require(batch.positions[i] == position,
              "token {} has position {}, not {}", i, batch.positions[i], position);
      require(batch.tokens[i] >= 0 && batch.tokens[i] < info.n_vocab,
              "token {} is {}", i, batch.tokens[i]);
    }
  }
  int32_t previous = -1;
  for (int32_t row : batch.logit_rows) {
    require(row > previous && row < batch.n_tokens(), "logit row {}", row);
    previous = row;
  }
}

// A block written in this batch belongs to one sequence of the batch. Only blocks that no sequence writes may be
// shared.
void FakeRunner::check_blocks(const Batch& batch, int pool) {
  const int block_size = options_.info.block_size, n_blocks = options_.info.pools[pool].n_blocks;
  writer_.assign(n_blocks, -1);
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int first = (batch.kv_len[seq] - batch.q_len(seq)) / block_size, last = (batch.kv_len[seq] - 1) / block_size;
    for (int i = first_read(batch, seq, pool) / block_size; i <= last; ++i) {
      const int32_t block = batch.blocks(seq, pool)[i];
      require(block >= 0 && block < n_blocks, "sequence {} names block {} of pool {}", seq, block, pool);
      if (i < first) continue;
      require(writer_[block] == -1,
              "block {} is written by sequences {} and {}", block, writer_[block], seq);
      writer_[block] = seq;
    }
  }
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int n_read = (batch.kv_len[seq] - batch.q_len(seq)) / block_size;
    for (int i = first_read(batch, seq, pool) / block_size; i < n_read; ++i) {
      const int32_t block = batch.blocks(seq, pool)[i];
      require(writer_[block] == -1,
              "block {} is read by sequence {} and written by {}", block, seq, writer_[block]);
    }
  }
}

// A sequence begins without a state, or reads the state after its last token (read_history compares both). No two
// sequences write the same slot.
void FakeRunner::check_states(const Batch& batch) {
  const int n_states = options_.info.n_states;
  require(batch.state_in.size() == (n_states > 0 ? batch.kv_len.size() : 0) &&
              batch.state_out.size() == batch.state_in.size(),
          "{} and {} states for {} sequences", batch.state_in.size(), batch.state_out.size(), batch.n_seqs());
  std::vector<int> writer(n_states, -1);
  for (int seq = 0; seq < static_cast<int>(batch.state_out.size()); ++seq) {
    const int in = batch.state_in[seq], out = batch.state_out[seq];
    require(out >= 0 && out < n_states && writer[out] < 0, "sequence {} writes state {}", seq, out);
    require(in >= -1 && in < n_states && (in < 0) == (batch.positions[batch.q_start[seq]] == 0),
            "sequence {} begins with state {}", seq, in);
    writer[out] = seq;
  }
  for (int seq = 0; seq < static_cast<int>(batch.state_in.size()); ++seq) {
    const int in = batch.state_in[seq];
    require(in < 0 || writer[in] < 0 || writer[in] == seq, "state {} is read by sequence {} and written by {}", in, seq,
            in < 0 ? -1 : writer[in]);
  }
}

void FakeRunner::check_embeddings(const Batch& batch) {
  const auto dim = static_cast<size_t>(options_.info.embedding_dim), n = batch.embeddings.size();
  require(batch.seen_len.empty() || batch.seen_len.size() == batch.tokens.size(), "seen_len has {} tokens",
          batch.seen_len.size());
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
      require(batch.seen_by(t) > batch.positions[t] && batch.seen_by(t) <= batch.kv_len[seq],
              "the token at {} sees {} tokens of {}", batch.positions[t], batch.seen_by(t), batch.kv_len[seq]);
      if (batch.seen_by(t) > batch.positions[t] + 1) ++n_seeing_later_;
    }
  require(batch.embedding_rows.empty() == batch.embeddings.empty(), "{} floats for {} rows", n,
          batch.embedding_rows.size());
  if (batch.embedding_rows.empty()) return;
  require(options_.info.takes_embeddings, "embeddings for a model that takes none");
  require(batch.embedding_rows.size() == batch.tokens.size() && n % dim == 0, "{} floats, {} rows", n,
          batch.embedding_rows.size());
  for (const int32_t row : batch.embedding_rows)
    require(row >= -1 && row < static_cast<int32_t>(n / dim), "row {} of {} embeddings", row, n / dim);
}

// A step has the sources of sequences that begin, and not more rows than its buffers hold. No block is of two
// sequences.
void FakeRunner::write_sources(const Batch& batch) {
  const SourceInfo& info = options_.info.source;
  const auto n_seqs = static_cast<size_t>(batch.n_seqs());
  require(batch.source_len.size() == (info.dim > 0 ? n_seqs : 0) &&
              batch.source_start.size() == (info.dim > 0 ? n_seqs + 1 : 0),
          "{} sources, {} starts", batch.source_len.size(), batch.source_start.size());
  if (info.dim == 0) return;
  const auto dim = static_cast<size_t>(info.dim);
  require(batch.n_source_rows() <= info.max_rows &&
              batch.sources.size() == static_cast<size_t>(batch.n_source_rows()) * dim,
          "{} rows of sources, {} floats", batch.n_source_rows(), batch.sources.size());
  const int size = options_.info.block_size;
  writer_.assign(static_cast<size_t>(info.n_blocks), -1);
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int i = 0; i < (batch.source_len[seq] + size - 1) / size; ++i) {
      const int32_t block = batch.blocks(seq, n_pools())[i];
      require(block >= 0 && block < info.n_blocks && writer_[block] < 0, "source {} has block {}", seq, block);
      writer_[block] = seq;
    }
  for (int row = 0; row < batch.n_source_rows(); ++row) {
    const int seq = batch.seq_of_source_row(row), index = row - batch.source_start[seq];
    const int32_t block = batch.blocks(seq, n_pools())[index / size];
    sources_[static_cast<size_t>(block * size + index % size)] = {
        digest_of(batch.sources.subspan(static_cast<size_t>(row) * dim, dim)), index};
  }
}

// The digest of a sequence's source, as the cache holds it.
uint64_t FakeRunner::source_of(const Batch& batch, int seq) {
  uint64_t digest = 0;
  const int size = options_.info.block_size;
  for (int i = 0; i < (batch.source_len.empty() ? 0 : batch.source_len[seq]); ++i) {
    const SourceSlot& slot = sources_[static_cast<size_t>(batch.blocks(seq, n_pools())[i / size] * size + i % size)];
    require(slot.index == i, "sequence {} reads row {} of its source and finds row {}", seq, i, slot.index);
    digest = mix(digest, slot.row);
  }
  return digest;
}

// The digest of the vector; 0: the position has a token.
uint64_t FakeRunner::vector_at(const Batch& batch, int token) const {
  const int32_t row = batch.embedding_rows.empty() ? -1 : batch.embedding_rows[token];
  const auto dim = static_cast<size_t>(options_.info.embedding_dim);
  return row < 0 ? 0 : digest_of(batch.embeddings.subspan(static_cast<size_t>(row) * dim, dim));
}

bool FakeRunner::checks_all(size_t row) const {
  return (static_cast<size_t>(n_steps_) + row) % static_cast<size_t>(options_.check_every) == 0;
}

// Returns the cached history before this batch's tokens. Checks the slots that the new tokens attend to.
FakeRunner::History FakeRunner::read_history(const Batch& batch, int seq, int pool) {
  const int end = batch.kv_len[seq] - batch.q_len(seq), seen = first_read(batch, seq, pool),
            begin = checks_all(static_cast<size_t>(seq)) ? seen : std::max(seen, end - 1);
  History history;
  if (begin == 0) history.digest = source_of(batch, seq);
  for (int position = begin; position < end; ++position) {
    const Slot& s = slot(batch, seq, position, pool);
    if (position == begin && begin > 0) {
      history = s.history;
    } else {
      history.add(s.token, s.vector);
    }
    require(s.position == position && s.history == history,
            "sequence {} reads position {} and finds another history's {}", seq, position, s.position);
  }
  if (!states_.empty() && end > 0) {
    const Slot& state = states_[batch.state_in[seq]];
    require(state.position == end - 1 && state.history == history, "sequence {} goes on from the state of position {}",
            seq, state.position);
  }
  return history;
}

void FakeRunner::write_tokens(const Batch& batch, int seq, History history) {
  for (int i = batch.q_start[seq]; i < batch.q_start[seq + 1]; ++i) {
    const uint64_t vector = vector_at(batch, i);
    history.add(batch.tokens[i], vector);
    histories_[i] = history;
    places_[i] = &slot(batch, seq, batch.positions[i]) - caches_[0].data();
    for (int pool = 0; pool < n_pools(); ++pool)
      slot(batch, seq, batch.positions[i], pool) = {batch.tokens[i], vector, batch.positions[i], history};
    if (!states_.empty()) states_[batch.state_out[seq]] = slot(batch, seq, batch.positions[i]);
  }
}

FakeRunner::Slot& FakeRunner::slot(const Batch& batch, int seq, int position, int pool) {
  const int block_size = options_.info.block_size;
  const int64_t block = batch.blocks(seq, pool)[position / block_size];
  return caches_[pool][block * block_size + position % block_size];
}

void FakeRunner::violate(const std::string& what) {
  violations_.push_back(fmt::format("step {}: {}", n_steps_ - 1, what));
  throw std::logic_error(violations_.back());
}

}  // namespace ingot
