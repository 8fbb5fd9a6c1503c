#include "model/draft_head.h"

#include <algorithm>

#include "base/check.h"
#include "model/decoder_program.h"

namespace ingot {
namespace {

// The layer of the head, with a head's input in place of the embedding.
Program layer_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Weights& model, KvCache* kv,
                      Backend* backend, int n_ctx, DraftInputBlock input) {
  Weights weights;
  weights.model = model.model;
  weights.layers = {w.layer};
  Program program = decoder_layers(head.layer, weights, {.kv = kv}, backend, n_ctx);
  if (const auto* dense = std::get_if<DenseLayersBlock>(&program.blocks.back())) {
    const DenseLayersBlock layer = *dense;
    program.blocks.back() = layer.attention[0];
    layer.with_second(0, [&](const auto& second) { program.blocks.emplace_back(second); });
  }
  if (head.is_eagle) {
    auto& attention = std::get<AttentionBlock>(program.blocks[1]);
    attention.reads_pair = true;
    attention.norm = {};
  }
  const auto norm = [&](const Tensor& weight) {
    return NormArgs{.weight = weight, .eps = head.layer.norm_eps, .kind = head.layer.arch->norm};
  };
  input.table = w.embedding ? w.embedding : model.model.embedding;
  input.scale = head.layer.embedding_scale;
  input.token_norm = norm(head.is_eagle ? w.layer.attn_norm : w.token_norm);
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

Program follow_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Config& config,
                       const Weights& model, KvCache* kv, Backend* backend, int n_ctx, const Tensor& hidden) {
  DraftInputBlock input{.hidden = hidden};
  if (!head.is_eagle) input.final_norm = head_block(config, model).norm;
  return layer_program(head, w, model, kv, backend, n_ctx, std::move(input));
}

Program chain_program(const DraftHeadConfig& head, const DraftHeadWeights& w, const Weights& model, KvCache* kv,
                      Backend* backend, int n_ctx) {
  DraftInputBlock input;
  const HeadBlock end = end_of(head, w, model);
  if (head.returns_normed) input.final_norm = end.norm;
  Program program = layer_program(head, w, model, kv, backend, n_ctx, std::move(input));
  program.blocks.emplace_back(end);
  return program;
}

// One row for each sequence.
StepLimits chain_limits(StepLimits limits) {
  limits.max_tokens = limits.max_logits = limits.max_seqs;
  return limits;
}

}  // namespace

DraftHead::DraftHead(const Config& config, const Weights& weights, const DraftHeadWeights& head, const Program& model,
                     const MemoryPlan& plan, Backend& backend)
    : config_(config.draft_head),
      backend_(backend),
      kv_(backend.make_kv(draft_kv_shape(*config_, plan.kv))),
      follow_(follow_program(*config_, head, config, weights, kv_.get(), &backend, plan.n_ctx,
                             config_->is_eagle ? model.kept : model.x)),
      chain_(chain_program(*config_, head, weights, kv_.get(), &backend, plan.n_ctx)) {
  limits_ = largest(follow_.place(backend, plan.limits), chain_.place(backend, chain_limits(plan.limits)));
  first_.blocks.emplace_back(chain_.blocks.back());
  first_.x = chain_.x;
  first_.kv = chain_.kv;
}

void DraftHead::prepare() {
  for (const Program* program : {&follow_, &chain_, &first_}) backend_.prepare_program(*program);
}

// A vector in place of the next token counts as its placeholder.
void DraftHead::follow(const Batch& batch, std::span<const int32_t> next_tokens) {
  CHECK_EQ(next_tokens.size(), batch.tokens.size());
  Batch next = batch;
  next.tokens = next_tokens;
  next.logit_rows = next.state_in = next.state_out = next.embedding_rows = {};
  next.embeddings = {};
  backend_.run(follow_, next);
}

std::vector<int32_t> DraftHead::draft(std::span<const DraftRow> rows) {
  std::vector<std::vector<int32_t>> guesses(rows.size());
  std::vector<int32_t> last(rows.size());
  take_hidden(rows);
  for (int depth = 0; !rows.empty() && depth < rows.front().n; ++depth) {
    const std::span<const DraftRow> deep =
        rows.first(static_cast<size_t>(std::ranges::count_if(rows, [&](const auto& row) { return row.n > depth; })));
    run(depth == 0 ? first_ : chain_, deep, depth, last);
    std::vector<SampleRow> wanted;
    for (const DraftRow& row : deep) wanted.push_back({.params = &greedy_, .position = row.position + depth + 2});
    backend_.sample(chain_.output(0, 0, static_cast<int>(deep.size())), wanted);
    const std::vector<Sampled> drawn = backend_.wait();
    for (size_t i = 0; i < deep.size(); ++i) {
      const auto token = static_cast<size_t>(std::max(0, drawn[i].token));  // after NaN any token will do
      last[i] = config_->tokens.empty() ? static_cast<int32_t>(token) : config_->tokens[token];
      guesses[i].push_back(last[i]);
    }
  }
  std::vector<int32_t> all;
  for (const auto& tokens : guesses) all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

std::vector<float> DraftHead::logits(std::span<const DraftRow> rows) {
  take_hidden(rows);
  run(first_, rows, 0, std::vector<int32_t>(rows.size()));
  const Tensor logits = chain_.output(0, 0, static_cast<int>(rows.size()));
  std::vector<float> host(static_cast<size_t>(logits.rows * logits.cols));
  backend_.download(host.data(), logits);
  return host;
}

// Copies the hidden states of the last follow().
void DraftHead::take_hidden(std::span<const DraftRow> rows) {
  for (size_t i = 0; i < rows.size(); ++i)
    backend_.copy(chain_.x.slice_rows(static_cast<int64_t>(i), 1), follow_.x.slice_rows(rows[i].row, 1));
}

// One token for each row, `depth` places after the row.
void DraftHead::run(const Program& program, std::span<const DraftRow> rows, int depth,
                    std::span<const int32_t> tokens) {
  size_t max_blocks = 0;
  for (const DraftRow& row : rows) max_blocks = std::max(max_blocks, row.blocks.size());
  for (auto* array : {&positions_, &q_start_, &kv_len_, &logit_rows_, &block_table_}) array->clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const DraftRow& row = rows[i];
    logit_rows_.push_back(static_cast<int32_t>(i));
    q_start_.push_back(static_cast<int32_t>(i));
    positions_.push_back(row.position + depth);
    kv_len_.push_back(row.position + depth + 1);
    block_table_.insert(block_table_.end(), row.blocks.begin(), row.blocks.end());
    block_table_.resize((i + 1) * max_blocks);
  }
  q_start_.push_back(static_cast<int32_t>(rows.size()));
  backend_.run(program, {.tokens = tokens.first(rows.size()),
                         .positions = positions_,
                         .q_start = q_start_,
                         .kv_len = kv_len_,
                         .block_table = block_table_,
                         .max_blocks = static_cast<int>(max_blocks),
                         .logit_rows = logit_rows_});
}

KvShape draft_kv_shape(const DraftHeadConfig& head, const KvShape& model) {
  KvShape shape = model;
  shape.n_layers = 1;
  shape.n_kv_heads = head.layer.n_kv_heads;
  shape.head_dim = head.layer.head_dim;
  shape.values_are_keys = head.layer.arch->latent_attention;
  return shape;
}

size_t draft_bytes(const Config& config, StepLimits* limits, DType act) {
  const DraftHeadConfig& head = *config.draft_head;
  const int64_t width = head.is_eagle ? int64_t{3} * config.dim : config.dim;
  size_t bytes = 0;
  const auto measure = [&](Program program, const StepLimits& of_program) {
    Buffers buffers(act, of_program);
    program.lay_out(buffers);
    bytes += buffers.bytes();
    return buffers.limits();
  };
  const StepLimits step = *limits;
  const Tensor hidden{nullptr, DType::kF32, step.max_tokens, width, width};
  *limits =
      largest(*limits, measure(follow_program(head, {}, config, {}, nullptr, nullptr, step.max_kv_len, hidden), step));
  *limits =
      largest(*limits, measure(chain_program(head, {}, {}, nullptr, nullptr, step.max_kv_len), chain_limits(step)));
  return bytes;
}

}  // namespace ingot
