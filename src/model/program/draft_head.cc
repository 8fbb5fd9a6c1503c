#include "model/program/draft_head.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/blocks/draft_input.h"
#include "backend/blocks/head.h"
#include "base/check.h"
#include "model/program/decoder_program.h"

namespace ingot {
namespace {

constexpr int32_t kLost = std::numeric_limits<int32_t>::min();
constexpr int kMaxWaitingOfStep = 64;  // a step with more tokens computes its entries at once
constexpr int kMaxStartedEarly = 16;   // rows

// Replaces a layer that a device may run at once by its two blocks.
void divide_layer(Program& program) {
  const std::span<Block> inside = program.blocks.back().inside();
  if (inside.empty()) return;
  const std::vector<Block> layer(inside.begin(), inside.end());
  program.blocks.pop_back();
  program.blocks.insert(program.blocks.end(), layer.begin(), layer.end());
}

// The layer of the head, with a DraftInputBlock in place of the embedding.
Program layer_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Weights& model, KvCache* kv,
                      Backend* backend, int n_ctx, DraftInputBlock input) {
  Weights weights;
  weights.model = model.model;
  if (!w.layer.empty()) weights.layers = {w.layer};
  Program program = decoder_layers(head.layer, weights, {.kv = {kv}}, backend, n_ctx);
  if (head.is_eagle) divide_layer(program);
  const auto norm = [&](const Tensor& weight) {
    return NormArgs{.weight = weight, .eps = head.layer.norm_eps, .kind = head.layer.arch->norm};
  };
  input.table = w.embedding ? w.embedding : model.model.embedding;
  input.scale = head.layer.embedding_scale;
  input.token_norm = norm(w.token_norm);
  input.hidden_norm = norm(w.hidden_norm);
  input.project = w.project;
  input.hidden_first = head.hidden_first;
  input.reads_pair = head.is_eagle;
  input.keeps_normed = head.keeps_normed;
  program.has_pair = true;
  program.blocks.front() = std::move(input);
  return program;
}

HeadBlock end_of(const DraftHeadConfig& head, const DraftHeadWeights& w, const Weights& model) {
  HeadBlock end = head_block(head.layer, model);
  if (w.output) end.output = w.output;
  if (w.final_norm) end.norm.weight = w.final_norm;
  return end;
}

// The layer of the head, from the model's hidden states.
Program hidden_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Config& config,
                       const Weights& model, KvCache* kv, Backend* backend, int n_ctx, const Tensor& hidden) {
  DraftInputBlock input{.hidden = hidden};
  if (!head.is_eagle) input.final_norm = head_block(config, model).norm;
  return layer_program(head, w, model, kv, backend, n_ctx, std::move(input));
}

// From hidden states to the head's keys and values, without the rest of the layer.
Program follow_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Config& config,
                       const Weights& model, KvCache* kv, Backend* backend, int n_ctx, const Tensor& hidden) {
  Program program = hidden_program(head, w, config, model, kv, backend, n_ctx, hidden);
  divide_layer(program);
  program.blocks.erase(program.blocks.begin() + 2, program.blocks.end());
  *program.blocks.back().ports().only_keys = true;
  return program;
}

// From hidden states to the logits of the first guess.
Program start_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Config& config,
                      const Weights& model, KvCache* kv, Backend* backend, int n_ctx, const Tensor& hidden) {
  Program program = hidden_program(head, w, config, model, kv, backend, n_ctx, hidden);
  program.blocks.emplace_back(end_of(head, w, model));
  return program;
}

// Makes `program` a copy of `other` with the same buffers. Returns its first block.
DraftInputBlock& copy_program(Program& program, const Program& other) {
  program.blocks = other.blocks;
  program.ropes = other.ropes, program.dim = other.dim;
  program.n_head_ids = other.n_head_ids, program.head_ids = other.head_ids;
  program.has_pair = other.has_pair, program.pair = other.pair;
  program.x = other.x, program.kv = other.kv;
  return program.blocks.front().get<DraftInputBlock>();
}

// Continues from the head's own hidden state, without another input.
void make_chain(Program& chain, const Program& start, const DraftHeadConfig& head) {
  DraftInputBlock& input = copy_program(chain, start);
  input.hidden = {};
  input.final_norm = head.returns_normed ? chain.blocks.back().get<HeadBlock>().norm : NormArgs{};
}

// One row for each sequence, or the rows of a step that verifies drafts.
StepLimits chain_limits(StepLimits limits) {
  limits.max_tokens = limits.max_logits = std::max(limits.max_seqs, std::min(limits.max_tokens, kMaxStartedEarly));
  return limits;
}

// The most tokens whose entries wait. In a run of half as many, each token costs little, also if the model is small.
int64_t most_waiting(int64_t width, const StepLimits& limits) {
  return std::min<int64_t>(std::clamp<int64_t>((2 << 20) / width, 256, 4096), 2 * int64_t{limits.max_tokens});
}

// Hidden states outside the programs: of the waiting tokens, of a run of follow_, and of a run of start_.
struct HiddenRows {
  Tensor waiting, following, starting;
  void lay_out(Buffers& buffers, int64_t width) {
    buffers.keep(waiting, DType::kF32, most_waiting(width, buffers.limits()), width);
    buffers.keep(following, DType::kF32, buffers.limits().max_tokens, width);
    buffers.keep(starting, DType::kF32, chain_limits(buffers.limits()).max_tokens, width);
  }
};

// The block table of the model's first cache, whose blocks the head's cache shares.
std::span<const int32_t> first_table(const Batch& batch) {
  const auto n = static_cast<size_t>(batch.n_seqs()) * static_cast<size_t>(batch.max_blocks);
  return batch.block_table.first(std::min(n, batch.block_table.size()));
}

int64_t hidden_width(const DraftHeadConfig& head, const Config& config) {
  return head.is_eagle ? int64_t{3} * config.dim : config.dim;
}

}  // namespace

DraftHead::DraftHead(const Config& config, const Weights& weights, const DraftHeadWeights& head, const Program& model,
                     const KvShape& kv, const StepLimits& limits, Backend& backend)
    : config_(config.draft_head),
      backend_(backend),
      kv_(backend.make_kv(draft_kv_shape(*config_, kv))),
      hidden_(config_->is_eagle ? model.kept : model.x) {
  HiddenRows rows;
  Buffers buffers(backend.act_dtype(), limits);
  rows.lay_out(buffers, hidden_.cols);
  buffers.allocate(backend);
  rows.lay_out(buffers, hidden_.cols);
  waiting_hidden_ = rows.waiting, following_hidden_ = rows.following, starting_hidden_ = rows.starting;
  for (const Tensor& t : {waiting_hidden_, following_hidden_, starting_hidden_})  // padding must be finite
    backend.upload(t, std::vector<float>(static_cast<size_t>(t.rows * t.cols)).data());
  follow_.emplace(
      follow_program(*config_, head, config, weights, kv_.get(), &backend, limits.max_kv_len, following_hidden_));
  start_.emplace(
      start_program(*config_, head, config, weights, kv_.get(), &backend, limits.max_kv_len, starting_hidden_));
  limits_ = largest(follow_->place(backend, limits), start_->place(backend, chain_limits(limits)));
  copy_program(follow_late_, *follow_).source = waiting_hidden_;
  make_chain(chain_, *start_, *config_);
  wanted_.resize(static_cast<size_t>(kv_->shape.n_blocks));
  taken_.resize(wanted_.size() * static_cast<size_t>(kv_->shape.block_size));
}

void DraftHead::prepare() {
  for (const Program* program : {&*follow_, &follow_late_, &*start_, &chain_}) backend_.prepare_program(*program);
}

// If the next input is a vector instead of a token, its placeholder is the next token.
void DraftHead::follow(const Batch& batch, std::span<const int32_t> next_tokens) {
  CHECK_EQ(next_tokens.size(), batch.tokens.size());
  const int n = batch.n_tokens();
  next_tokens_.assign(next_tokens.begin(), next_tokens.end());
  for (; n_known_ < waiting_.size(); ++n_known_)
    if (int32_t& token = waiting_[n_known_].token; token < 0) token = kLost;  // its step failed
  n_started_ = 0;
  if (starts_early(batch)) return start_early(batch);
  const int max_rows = static_cast<int>(waiting_hidden_.rows);
  const bool waits = n <= std::min(max_rows / 2, kMaxWaitingOfStep);
  if (waits && n_waiting_rows() + n > max_rows) make_room(n);
  const std::span<const int32_t> table = first_table(batch);
  table_.assign(table.begin(), table.end());
  table_width_ = batch.max_blocks;
  std::vector<Place> places;
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (const int32_t position : batch.positions.subspan(batch.q_start[seq], batch.q_len(seq)))
      places.push_back({batch.blocks(seq)[position / kv_->shape.block_size], position});
  if (waits) {
    int row = n_waiting_rows();
    backend_.copy_before_run(waiting_hidden_.slice_rows(row, n), hidden_.slice_rows(0, n));
    for (size_t i = 0; i < places.size(); ++i) waiting_.push_back({next_tokens[i], places[i], row++});
    return;
  }
  drop_stale(places);
  backend_.copy(following_hidden_.slice_rows(0, n), hidden_.slice_rows(0, n));
  Batch next = batch;
  next.tokens = next_tokens_;
  next.block_table = first_table(batch);
  next.logit_rows = next.state_in = next.state_out = next.embedding_rows = {};
  next.embeddings = next.sources = {};
  next.source_start = next.source_len = {};
  backend_.run(*follow_, next);
}

// Whether the step verifies drafts.
bool DraftHead::starts_early(const Batch& batch) const {
  const int n = batch.n_tokens();
  return backend_.overlaps() && n > batch.n_seqs() && n <= kMaxStartedEarly && n <= starting_hidden_.rows &&
         batch.n_logits() == n && batch.embeddings.empty();
}

// The rows after the first wrong draft are computed in vain. Their entries are overwritten later.
void DraftHead::start_early(const Batch& batch) {
  n_started_ = batch.n_tokens();
  catch_up(first_table(batch), {});
  backend_.copy(starting_hidden_.slice_rows(0, n_started_), hidden_.slice_rows(0, n_started_));
  backend_.run(*start_, {.tokens = next_tokens_,
                         .positions = batch.positions,
                         .q_start = batch.q_start,
                         .kv_len = batch.kv_len,
                         .block_table = first_table(batch),
                         .max_blocks = batch.max_blocks,
                         .logit_rows = batch.logit_rows});
}

void DraftHead::drawn(std::span<const Sampled> tokens) {
  const auto know = [&](int32_t& token) {
    const auto row = static_cast<size_t>(-1 - int64_t{token});
    if (token < 0 && row < tokens.size()) token = std::max(0, tokens[row].token);  // after NaN any token will do
  };
  for (int32_t& token : next_tokens_) know(token);
  for (size_t i = n_known_; i < waiting_.size(); ++i) know(waiting_[i].token);
}

// Computes the entries of the oldest waiting tokens in as few runs as make room for n more. The others move to the
// front: at most half of the rows, so that the copy does not overlap itself.
void DraftHead::make_room(int n) {
  const int n_rows = n_waiting_rows();
  drop_stale({});
  late_ = std::exchange(waiting_, {});
  while (!late_.empty() && late_.front().row < std::max(n, (n_rows + 1) / 2)) run_late();
  waiting_ = std::exchange(late_, {});
  n_known_ = waiting_.size();
  if (waiting_.empty()) return;
  const int first = waiting_.front().row;
  for (Waiting& one : waiting_) one.row -= first;
  const int n_staying = n_waiting_rows();
  backend_.copy(waiting_hidden_.slice_rows(0, n_staying), waiting_hidden_.slice_rows(first, n_staying));
}

// Computes the entries of the waiting tokens in these blocks, except at these places. Tokens in other blocks go on
// waiting.
void DraftHead::catch_up(std::span<const int32_t> blocks, std::span<const Place> places) {
  drop_stale(places);
  for (const int32_t block : blocks) wanted_[static_cast<size_t>(block)] = true;
  const auto is_late = [&](const Waiting& one) { return wanted_[static_cast<size_t>(one.place.block)]; };
  late_.clear();
  std::ranges::copy_if(waiting_, std::back_inserter(late_), is_late);
  std::erase_if(waiting_, is_late);
  n_known_ = waiting_.size();
  for (const int32_t block : blocks) wanted_[static_cast<size_t>(block)] = false;
  while (!late_.empty()) run_late();
}

// Forgets waiting tokens whose entries are not needed: lost tokens, those at these places in the cache, and of two at
// one place the older.
void DraftHead::drop_stale(std::span<const Place> places) {
  const auto block_size = static_cast<size_t>(kv_->shape.block_size);
  const auto taken = [&](const Place& place) {
    return taken_[static_cast<size_t>(place.block) * block_size + static_cast<size_t>(place.position) % block_size];
  };
  for (const Place& place : places) taken(place) = true;
  const auto is_stale = [&](const Waiting& one) {
    if (one.token < 0 || taken(one.place)) return true;
    taken(one.place) = true;
    return false;
  };
  std::ranges::reverse(waiting_);
  std::erase_if(waiting_, is_stale);
  std::ranges::reverse(waiting_);
  for (const Place& place : places) taken(place) = false;
  for (const Waiting& one : waiting_) taken(one.place) = false;
  n_known_ = waiting_.size();
}

// Runs one batch of late_. The rest stays there. A batch has a power of two of tokens, because a device prepares its
// first product of each size, which may take longer than the run. An entry depends only on its own token. So tokens at
// consecutive positions form one sequence of the batch, even if they belong to several sequences.
void DraftHead::run_late() {
  const int block_size = kv_->shape.block_size;
  std::vector<std::vector<Waiting>> seqs;
  std::vector<Waiting> rest;
  size_t room = std::bit_floor(std::min(late_.size(), static_cast<size_t>(following_hidden_.rows)));
  size_t next = 0;  // the sequence of the next token, if all take turns
  for (const Waiting& one : late_) {
    const auto goes_on = [&](const std::vector<Waiting>& seq) {
      return seq.back().place.position + 1 == one.place.position &&
             (one.place.position % block_size == 0 || seq.back().place.block == one.place.block);
    };
    if (next >= seqs.size() || !goes_on(seqs[next]))
      next = static_cast<size_t>(std::ranges::find_if(seqs, goes_on) - seqs.begin());
    if (room == 0 || (next == seqs.size() && next == static_cast<size_t>(starting_hidden_.rows))) {
      rest.push_back(one);
      continue;
    }
    if (next == seqs.size()) seqs.emplace_back();
    seqs[next].push_back(one);
    next = (next + 1) % seqs.size(), --room;
  }
  late_ = std::move(rest);
  size_t width = static_cast<size_t>(table_width_);
  for (const auto& seq : seqs) width = std::max(width, static_cast<size_t>(seq.back().place.position / block_size) + 1);
  start_batch();
  std::vector<int32_t> tokens;
  for (size_t s = 0; s < seqs.size(); ++s) {
    // Reuses the table of the last step, if it is long enough, so that few entries change on the device.
    block_table_.resize((s + 1) * width, seqs[s].front().place.block);
    const auto row = block_table_.begin() + static_cast<ptrdiff_t>(s * width);
    if ((s + 1) * static_cast<size_t>(table_width_) <= table_.size())
      std::copy_n(table_.begin() + static_cast<ptrdiff_t>(s) * table_width_, table_width_, row);
    for (const Waiting& one : seqs[s]) {
      logit_rows_.push_back(one.row);
      tokens.push_back(one.token);
      positions_.push_back(one.place.position);
      row[one.place.position / block_size] = one.place.block;
    }
    q_start_.push_back(static_cast<int32_t>(tokens.size()));
    kv_len_.push_back(seqs[s].back().place.position + 1);
  }
  run(follow_late_, tokens, static_cast<int>(width));
}

// A row that stops is computed further while a later row goes on, because the head's states lie in the order of rows.
//
// A device that computes while the host works begins each guess before the host has seen the last one, so it never
// waits for the host. If all rows then stop, this guess is not used. With its own vocabulary, a head waits, because the
// host translates its tokens.
std::vector<std::vector<HeadGuess>> DraftHead::draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on) {
  std::vector<std::vector<HeadGuess>> guesses(rows.size());
  std::vector<bool> stops(rows.size());
  const bool overlaps = backend_.overlaps() && config_->tokens.empty();
  const auto n_rows_at = [&](int depth) {
    size_t n = rows.size();
    while (n > 0 && (stops[n - 1] || rows[n - 1].n <= depth)) --n;
    return n;
  };
  const Tensor first = first_logits(rows);
  std::vector<int32_t> last, in_flight;
  for (const DraftRow& row : rows) last.push_back(next_tokens_[static_cast<size_t>(row.row)]);
  for (size_t i = 0; i < rows.size(); ++i) in_flight.push_back(drawn_token(static_cast<int>(i)));
  size_t n = n_rows_at(0), n_begun = n;  // n_begun: rows of the run that is sampled next
  for (int depth = 0; n > 0; ++depth) {
    const std::span<const DraftRow> deep = rows.first(n_begun);
    std::vector<SampleRow> wanted;
    for (const DraftRow& row : deep)
      wanted.push_back({.params = &greedy_, .position = row.position + depth + 2, .estimates_logprob = true});
    backend_.sample(depth == 0 ? first : chain_.output(0, 0, static_cast<int>(deep.size())), wanted);
    if (overlaps) {
      n_begun = n_rows_at(depth + 1);
      if (n_begun > 0) run_rows(chain_, rows.first(n_begun), depth + 1, in_flight);
    }
    const std::vector<Sampled> drawn = backend_.wait();
    for (size_t i = 0; i < deep.size(); ++i) {
      const auto token = static_cast<size_t>(std::max(0, drawn[i].token));  // after NaN any token will do
      last[i] = config_->tokens.empty() ? static_cast<int32_t>(token) : config_->tokens[token];
      if (stops[i]) continue;
      guesses[i].push_back({last[i], std::exp(drawn[i].logprob)});
      stops[i] = goes_on && !goes_on(i, guesses[i].back().probability);
    }
    n = n_rows_at(depth + 1);
    if (overlaps || n == 0) continue;
    n_begun = n;
    run_rows(chain_, rows.first(n), depth + 1, last);
  }
  return guesses;
}

std::vector<float> DraftHead::logits(std::span<const DraftRow> rows) {
  n_started_ = 0;
  start(rows);
  const Tensor logits = chain_.output(0, 0, static_cast<int>(rows.size()));
  std::vector<float> host(static_cast<size_t>(logits.rows * logits.cols));
  backend_.download(host.data(), logits);
  return host;
}

// Returns the logits of the first guess after each row, [n_rows, n_vocab of the head], and leaves the hidden states of
// these rows where chain_ reads them.
Tensor DraftHead::first_logits(std::span<const DraftRow> rows) {
  const int n_started = std::exchange(n_started_, 0), n = static_cast<int>(rows.size());
  const Tensor logits = chain_.output(0, 0, std::max(n, n_started));
  if (n_started == 0 || !std::ranges::is_sorted(rows, {}, &DraftRow::row)) {
    start(rows);
    return logits.slice_rows(0, n);
  }
  // The rows are in order, so no copy overwrites a row that a later copy reads.
  for (int i = 0; i < n; ++i) {
    const int row = rows[static_cast<size_t>(i)].row;
    CHECK(i <= row && row < n_started);
    if (row == i) continue;
    backend_.copy(chain_.x.slice_rows(i, 1), chain_.x.slice_rows(row, 1));
    if (n > 1) backend_.copy(logits.slice_rows(i, 1), logits.slice_rows(row, 1));
  }
  return n == 1 ? logits.slice_rows(rows[0].row, 1) : logits.slice_rows(0, n);
}

// Runs start_ for the rows.
void DraftHead::start(std::span<const DraftRow> rows) {
  std::vector<int32_t> tokens, blocks;
  std::vector<Place> places;  // start_ computes their entries
  for (const DraftRow& row : rows) {
    blocks.insert(blocks.end(), row.blocks.begin(), row.blocks.end());
    places.push_back({row.blocks[static_cast<size_t>(row.position / kv_->shape.block_size)], row.position});
  }
  catch_up(blocks, places);
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens.push_back(next_tokens_[static_cast<size_t>(rows[i].row)]);
    backend_.copy(starting_hidden_.slice_rows(static_cast<int64_t>(i), 1), hidden_.slice_rows(rows[i].row, 1));
  }
  if (!rows.empty()) run_rows(*start_, rows, 0, tokens);
}

// Runs one token for each row, `depth` places after the row.
void DraftHead::run_rows(const Program& program, std::span<const DraftRow> rows, int depth,
                         std::span<const int32_t> tokens) {
  size_t width = 0;
  for (const DraftRow& row : rows) width = std::max(width, row.blocks.size());
  start_batch();
  for (size_t i = 0; i < rows.size(); ++i) {
    const DraftRow& row = rows[i];
    logit_rows_.push_back(static_cast<int32_t>(i));
    q_start_.push_back(static_cast<int32_t>(i) + 1);
    positions_.push_back(row.position + depth);
    kv_len_.push_back(row.position + depth + 1);
    block_table_.insert(block_table_.end(), row.blocks.begin(), row.blocks.end());
    block_table_.resize((i + 1) * width);
  }
  run(program, tokens.first(rows.size()), static_cast<int>(width));
}

void DraftHead::start_batch() {
  for (auto* array : {&positions_, &kv_len_, &logit_rows_, &block_table_}) array->clear();
  q_start_.assign(1, 0);
}

void DraftHead::run(const Program& program, std::span<const int32_t> tokens, int table_width) {
  backend_.run(program, {.tokens = tokens,
                         .positions = positions_,
                         .q_start = q_start_,
                         .kv_len = kv_len_,
                         .block_table = block_table_,
                         .max_blocks = table_width,
                         .logit_rows = logit_rows_});
}

KvShape draft_kv_shape(const DraftHeadConfig& head, const KvShape& model) {
  KvShape shape = model;
  shape.n_layers = 1;
  shape.n_kv_heads = head.layer.n_kv_heads;
  shape.head_dim = head.layer.head_dim;
  shape.values_are_keys = values_are_keys(head.layer);
  return shape;
}

size_t draft_bytes(const Config& config, StepLimits* limits, DType act) {
  const DraftHeadConfig& head = *config.draft_head;
  size_t bytes = 0;
  const auto measure = [&](auto rows_or_program, const StepLimits& of_step, auto... more) {
    Buffers buffers(act, of_step);
    rows_or_program.lay_out(buffers, more...);
    bytes += buffers.bytes();
    return buffers.limits();
  };
  const StepLimits step = *limits;
  const int64_t width = hidden_width(head, config);
  const Tensor hidden{nullptr, DType::kF32, step.max_tokens, width, width};
  measure(HiddenRows{}, step, width);
  *limits =
      largest(*limits, measure(follow_program(head, {}, config, {}, nullptr, nullptr, step.max_kv_len, hidden), step));
  *limits = largest(*limits, measure(start_program(head, {}, config, {}, nullptr, nullptr, step.max_kv_len, hidden),
                                     chain_limits(step)));
  return bytes;
}

}  // namespace ingot
