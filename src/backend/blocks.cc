// The ops of each block, in order, as the author of the model describes them.
#include "backend/backend.h"
#include "backend/ref/host_rows.h"

namespace ingot {

void Backend::run(const Program& program, const Batch& step) {
  begin(step);
  run_blocks(program, program.all());
}

void Backend::run_part(const Program& program, const Batch& step, BlockRange range) {
  if (range.first == 0) begin(step);
  run_blocks(program, range);
}

void Backend::run_blocks(const Program& program, BlockRange range) {
  if (range.first == 0)
    for (const RopeTable& rope : program.ropes) rope_angles(token_rows(rope.angles), rope.inv_freq, rope.magnitude);
  for (int i = range.first; i < range.end; ++i) {
    n_blocks_begun_.fetch_add(1, std::memory_order_relaxed);
    std::visit([&](const auto& typed) { block(typed); }, program.blocks[static_cast<size_t>(i)]);
  }
}

// The input of a block: x after the block's norm, or x itself without a norm.
Tensor Backend::normed(const Tensor& x, const Tensor& to, const NormArgs& args) {
  if (!args.weight) return x;
  norm(to, x, args);
  return to;
}

// The input of a block's first product, and the norm that this product still computes.
template <class B>
static std::pair<Tensor, NormArgs> input_of(const Backend& backend, const B& b, const Tensor& x,
                                            const Tensor& norm_out) {
  const bool is_normed = b.follows_sum && backend.norms_sums(x, b.norm);
  return is_normed ? std::pair{norm_out, NormArgs{}} : std::pair{x, b.norm};
}

// The end of a block: adds the projection of the block's output to the residual stream. norm_out: for j.next_norm.
void Backend::join(const Join& j, const Tensor& x, const Tensor& branch, const Tensor& in, const Weight& w,
                   const Tensor& bias, const Tensor& norm_out) {
  if (j.is_plain()) {
    matmul_add(x, in, w, bias);
  } else {
    matmul(branch, in, w, bias);
    if (j.sums && j.changes()) all_reduce(branch);
    if (j.has_post_norm) norm(branch, branch, j.post_norm);
    if (j.scale != 1) scale(branch, j.scale, 0);
    j.sums && !j.changes() ? add_reduced(x, branch, norm_out, j.next_norm) : add(x, branch);
  }
  if (j.sum_norm.weight) norm(x, x, j.sum_norm);
}

// Copies the vectors of the batch (PromptEmbedding) over the rows of their placeholder tokens.
void Backend::put_embeddings(const Tensor& x) {
  const std::span<const int32_t> rows = batch().embedding_rows;
  for (size_t t = 0; t < rows.size();) {
    size_t n = 1;
    while (rows[t] >= 0 && t + n < rows.size() && rows[t + n] == rows[t] + static_cast<int32_t>(n)) ++n;
    if (rows[t] >= 0)
      upload(x.slice_rows(static_cast<int64_t>(t), static_cast<int64_t>(n)),
             batch().embeddings.data() + rows[t] * x.cols);
    t += n;
  }
}

void Backend::block(const EmbedBlock& b) {
  const Tensor x = token_rows(b.x);
  embed(x, b.table, b.scale);
  if (!batch().embeddings.empty()) put_embeddings(x);
  if (b.positions) add_positions(x, b.positions);
  if (b.second_type)
    for (const RowRange& rows : batch().second_rows) add_positions(x.slice_rows(rows.first, rows.n), b.second_type);
  if (b.norm.weight) norm(x, x, b.norm);
}

void Backend::block(const DraftInputBlock& b) {
  if (b.source) gather_rows(b.hidden.slice_rows(0, size().n_logits), b.source);
  draft_input(b);
}

void Backend::draft_input(const DraftInputBlock& b) {
  const Tensor x = token_rows(b.x), embedded = token_rows(b.embedded), pair = token_rows(b.pair);
  const Tensor first = pair.slice_cols(0, x.cols), second = pair.slice_cols(x.cols, x.cols);
  Tensor hidden = b.hidden ? token_rows(b.hidden) : x;
  if (b.reads_pair && b.hidden) {
    matmul(x, hidden, b.project);
    hidden = x;
  }
  if (b.final_norm.weight) {
    const Tensor normed = token_rows(b.normed).slice_cols(0, x.cols);
    norm(normed, hidden, b.final_norm);
    hidden = normed;
  }
  embed(embedded, b.table, b.scale);
  norm(b.hidden_first ? second : first, embedded, b.token_norm);
  norm(b.hidden_first ? first : second, hidden, b.hidden_norm);
  if (!b.reads_pair) matmul(x, pair, b.project);
  if (b.keeps_normed) norm(x, x, b.hidden_norm);
}

void Backend::block(const KeepBlock& b) {
  copy(token_rows(b.kept).slice_cols(b.place * b.x.cols, b.x.cols), token_rows(b.x));
}

void Backend::block(const AttentionBlock& b) {
  const Tensor x = token_rows(b.x), norm_out = token_rows(b.normed), q = token_rows(b.q),
               attended = token_rows(b.attended);
  const AttentionArgs& a = b.attention;
  const auto [input, norm] = input_of(*this, b, x, norm_out);
  qkv({.x = b.reads_pair ? token_rows(b.pair) : input,
       .norm = norm,
       .normed = norm_out,
       .wq = &b.wq,
       .wk = &b.wk,
       .wv = &b.wv,
       .bq = b.bq,
       .bk = b.bk,
       .bv = b.bv,
       .q_norm = b.q_norm,
       .k_norm = b.k_norm,
       .heads_of_ranks = b.heads_of_ranks ? &*b.heads_of_ranks : nullptr,
       .rope = {token_rows(b.rope.angles), b.rope.layout},
       .n_heads = a.n_heads,
       .n_kv_heads = a.n_kv_heads,
       .head_dim = a.head_dim,
       .kv = b.kv,
       .layer = a.layer,
       .q = q,
       .k = token_rows(b.k),
       .v = token_rows(b.v)});
  if (b.only_keys) return;
  attention(attended, q, *b.kv, a);
  if (b.gate) {
    const Tensor gates = token_rows(b.gates);
    matmul(gates, b.norm.weight ? norm_out : x, b.gate);
    gate(attended, gates);
  }
  join(b.join, x, token_rows(b.branch), attended, b.wo, b.bo, norm_out);
}

void Backend::block(const LatentAttentionBlock& b) {
  const Tensor x = token_rows(b.x), norm_out = token_rows(b.normed), latent = token_rows(b.latent), k = token_rows(b.k);
  const Tensor q = token_rows(b.q), attended = token_rows(b.attended), values = token_rows(b.values),
               head_ids = token_rows(b.head_ids);
  const AttentionArgs& a = b.attention;
  const int64_t rows = x.rows * a.n_heads;
  const RopeArgs rope_args{token_rows(b.rope.angles), b.rope.layout};

  const auto [input, first_norm] = input_of(*this, b, x, norm_out);
  norm_matmul(latent, input, norm_out, first_norm, b.wkv_a);
  copy(k.slice_cols(0, b.rope_dim), latent.slice_cols(b.kv_rank, b.rope_dim));
  norm(k.slice_cols(b.rope_dim, b.kv_rank), latent.slice_cols(0, b.kv_rank), b.kv_a_norm);
  rope(k, 1, rope_args);
  kv_write(*b.kv, a.layer, k, k);
  if (b.only_keys) return;

  Tensor query_from = norm_out;
  if (b.wq_a) {
    query_from = token_rows(b.q_low);
    matmul(query_from, norm_out, b.wq_a);
    norm(query_from, query_from, b.q_a_norm);
  }
  const Tensor q_heads = token_rows(b.q_heads);
  matmul(q_heads, query_from, b.wq);
  const Tensor heads = q_heads.reshape(rows, b.nope_dim + b.rope_dim), q_rows = q.reshape(rows, a.head_dim);
  copy(q_rows.slice_cols(0, b.rope_dim), heads.slice_cols(b.nope_dim, b.rope_dim));
  moe_matmul(q_rows.slice_cols(b.rope_dim, b.kv_rank), heads.slice_cols(0, b.nope_dim), b.wk_b, head_ids, {});
  rope(q, a.n_heads, rope_args);

  attention(attended, q, *b.kv, a);
  const Tensor gathered = attended.reshape(rows, a.head_dim).slice_cols(b.rope_dim, b.kv_rank);
  moe_matmul(values.reshape(rows, b.value_dim), gathered, b.wv_b, head_ids, {});
  join(b.join, x, token_rows(b.branch), values, b.wo, b.bo, norm_out);
}

// q, k and v pass through a short convolution. The values that q reads from the state matrices are normed and gated.
void Backend::block(const DeltaBlock& b) {
  const Tensor x = token_rows(b.x), norm_out = token_rows(b.normed), channels = token_rows(b.channels);
  const Tensor gates = token_rows(b.gates), beta = token_rows(b.beta), alpha = token_rows(b.alpha),
               read = token_rows(b.read);
  const int keys = b.n_key_heads * b.key_dim, values = b.n_heads * b.value_dim;
  const auto [input, first_norm] = input_of(*this, b, x, norm_out);
  norm_matmul(channels.slice_cols(0, keys), input, norm_out, first_norm, b.wq);
  matmul(channels.slice_cols(keys, keys), norm_out, b.wk);
  matmul(channels.slice_cols(2 * keys, values), norm_out, b.wv);
  matmul(gates, norm_out, b.gate);
  matmul(beta, norm_out, b.w_beta);
  matmul(alpha, norm_out, b.w_alpha);
  short_conv(channels, b.conv, *b.states, b.layer);
  delta_rule({.y = read,
              .qkv = channels,
              .beta = beta,
              .alpha = alpha,
              .decay = b.decay,
              .dt = b.dt,
              .n_key_heads = b.n_key_heads,
              .tiled = b.tiled,
              .states = b.states,
              .layer = b.layer});
  const Tensor heads = read.reshape(x.rows * b.n_heads, b.value_dim);
  norm(heads, heads, b.value_norm);
  act_mul(read, gates, read, Activation::kSilu);
  join(b.join, x, token_rows(b.branch), read, b.wo, {}, norm_out);
}

void Backend::block(const FeedForwardBlock& b) {
  const Tensor x = token_rows(b.x), norm_out = token_rows(b.normed), hidden = token_rows(b.hidden);
  const auto [input, first_norm] = input_of(*this, b, x, norm_out);
  if (b.w_gate) {
    gate_up({.y = hidden,
             .x = input,
             .norm = first_norm,
             .normed = norm_out,
             .w_gate = &b.w_gate,
             .w_up = &b.w_up,
             .b_gate = b.b_gate,
             .b_up = b.b_up,
             .act = b.act});
  } else {
    norm_matmul(hidden, input, norm_out, first_norm, b.w_up, b.b_up);
    act(hidden, b.act);
  }
  join(b.join, x, token_rows(b.branch), hidden, b.w_down, b.b_down, norm_out);
}

void Backend::block(const ExpertsBlock& b) {
  const Tensor x = token_rows(b.x), norm_out = token_rows(b.normed);
  const Tensor to = b.sums ? token_rows(b.sum) : x;
  const int64_t rows = x.rows * b.route.n_used;
  const auto [input, first_norm] = input_of(*this, b, x, norm_out);
  if (b.sums) zero(to);
  moe({.residual = to,
       .x = input,
       .norm = first_norm,
       .normed = norm_out,
       .w_router = &b.w_router,
       .b_router = b.b_router,
       .route = b.route,
       .w_gate = &b.w_gate,
       .w_up = &b.w_up,
       .w_down = &b.w_down,
       .b_gate = b.b_gate,
       .b_up = b.b_up,
       .b_down = b.b_down,
       .act = b.act,
       .logits = token_rows(b.logits),
       .ids = token_rows(b.ids),
       .weights = token_rows(b.weights),
       .gate = b.gate.view(rows, b.ffn_dim),
       .up = b.up.view(rows, b.ffn_dim),
       .out = b.out.slice_rows(0, rows)});
  if (b.shared_gate) shared_expert(b, to, norm_out);
  if (b.sums) add_reduced(x, to, norm_out, b.next_norm);
}

// Adds the output of the shared expert to x.
void Backend::shared_expert(const ExpertsBlock& b, const Tensor& x, const Tensor& norm_out) {
  const int64_t n = x.rows, dim = b.shared_dim;
  if (!b.shared_router) {
    const Tensor hidden = token_rows(b.hidden);
    gate_up({.y = hidden, .x = norm_out, .w_gate = &b.shared_gate, .w_up = &b.shared_up, .act = b.act});
    return join({.scale = b.shared_scale}, x, token_rows(b.branch), hidden, b.shared_down, {}, {});
  }
  moe({.residual = x,
       .x = norm_out,
       .w_router = &b.shared_router,
       .route = {.scoring = Scoring::kSigmoid, .scale = b.shared_scale},
       .w_gate = &b.shared_gate,
       .w_up = &b.shared_up,
       .w_down = &b.shared_down,
       .act = b.act,
       .logits = b.logits.view(n, 1),
       .ids = b.ids.view(n, 1),
       .weights = b.weights.view(n, 1),
       .gate = b.gate.view(n, dim),
       .up = b.up.view(n, dim),
       .out = b.out.view(n, x.cols)});
}

void Backend::plain_layers(const PlainLayersBlock& b) {
  for (size_t i = 0; i < b.attention.size(); ++i) {
    n_blocks_begun_.fetch_add(1, std::memory_order_relaxed);
    block(b.attention[i]);
    b.with_second(i, [&](const auto& second) { block(second); });
  }
}

void Backend::block(const HeadBlock& b) {
  const int n = size().n_logits;
  if (n == 0) return;  // the chunk is not the last one of its prompt
  const Tensor selected = b.selected.slice_rows(0, n), logits = b.logits.slice_rows(0, n);
  const Tensor own = b.n_ranks > 1 ? b.own.slice_rows(0, n) : logits;
  gather_rows(selected, token_rows(b.x));
  norm_matmul(own.slice_cols(0, b.output.n_out), selected, b.normed.slice_rows(0, n), b.norm, b.output);
  if (b.n_ranks > 1) gather_logits(b, logits, own);
  if (b.scale != 1 || b.softcap > 0) scale(logits, b.scale, b.softcap);
}

// A warm-up step, which has only padding, has no rows to send.
void Backend::remote(const RemoteBlock& b) {
  const int n = batch().n_tokens();
  if (n == 0) return;
  HostRows host(*this);
  const Tensor x = b.x.slice_rows(0, n), rows = b.reads_x ? host.inout(x) : host.out(x);
  b.run(batch(), rows.f32());
}

void Backend::block(const PoolBlock& b) {
  const Tensor x = token_rows(b.x);
  if (b.norm.weight) norm(x, x, b.norm);
  if (b.pools) pool(b.pooled.slice_rows(0, size().n_seqs), x, b.pooling);
}

}  // namespace ingot
