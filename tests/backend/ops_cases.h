// The op table: every op of a backend, with the formats and edge shapes that matter, as data. ops_test.cc runs each
// case on a backend and on ref, and compares the results; bench/ops_bench.cc times larger cases from the same
// functions. A new op needs a new function here and its lines in all_cases() (docs/add-an-op.md). Long because it is one
// table.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "ops_error.h"
#include "ops_rig.h"

namespace ingot {

// A prepared case. After one call of run(), the outputs hold the result.
struct OpRun {
  std::function<void()> run;
  std::vector<Tensor> outputs;
};

struct OpCase {
  std::string op;
  std::string name;
  double tolerance;    // of the root mean square error, relative to the output's own; an element may err by 10 times that
  double flops;        // of one run
  double bytes;        // weights, activations and cache that one run must read or write once
  std::function<OpRun(OpRig&)> prepare;
  double slack = 0;    // absolute error that an element may have in addition: see kF16Flip
  double loose = 0;    // the tolerance of backends that round weights or activations of any inputs, if it is larger
};

struct MatmulShape {
  int64_t n;      // tokens
  int64_t n_out;
  int64_t n_in;
};

inline std::string label(const char* op, Format format, const MatmulShape& s) {
  return fmt::format("{} {} [{} x {}] x {}", op, info(format).name, s.n_out, s.n_in, s.n);
}
inline double matmul_bytes(Format format, const MatmulShape& s, int n_weights = 1) {
  return static_cast<double>(n_weights) * static_cast<double>(s.n_out) * static_cast<double>(row_bytes(format, s.n_in)) +
         4.0 * static_cast<double>(s.n) * static_cast<double>(s.n_in + s.n_out);
}
inline double matmul_flops(const MatmulShape& s) {
  return 2.0 * static_cast<double>(s.n) * static_cast<double>(s.n_out) * static_cast<double>(s.n_in);
}

inline OpCase matmul_case(Format format, MatmulShape s, bool bias = false) {
  return {"matmul", label("matmul", format, s) + (bias ? " bias" : ""), weight_error(format), matmul_flops(s), matmul_bytes(format, s),
          [=](OpRig& rig) {
            const Tensor x = rig.activations(s.n, s.n_in), b = bias ? rig.values(1, s.n_out) : Tensor{};
            const Tensor y = rig.output(s.n, s.n_out);
            const Weight& w = rig.weight(format, s.n_out, s.n_in);
            return OpRun{[=, &rig, &w] { rig.backend().matmul(y, x, w, b); }, {y}};
          },
          0, format_error(format)};
}

// Normal activations, which may have to be rounded.
inline OpCase rounding_case(Format format, MatmulShape s) {
  return {"matmul", label("matmul", format, s) + " rounding", format_error(format), matmul_flops(s), matmul_bytes(format, s),
          [=](OpRig& rig) {
            const Tensor x = rig.values(s.n, s.n_in), y = rig.output(s.n, s.n_out);
            const Weight& w = rig.weight(format, s.n_out, s.n_in);
            return OpRun{[=, &rig, &w] { rig.backend().matmul(y, x, w); }, {y}};
          }};
}

inline OpCase matmul_add_case(Format format, MatmulShape s, bool bias = false) {
  return {"matmul_add", label("matmul_add", format, s) + (bias ? " bias" : ""), weight_error(format), matmul_flops(s),
          matmul_bytes(format, s), [=](OpRig& rig) {
            const Tensor x = rig.activations(s.n, s.n_in), b = bias ? rig.values(1, s.n_out) : Tensor{};
            const Tensor residual = rig.values(s.n, s.n_out);
            const Weight& w = rig.weight(format, s.n_out, s.n_in);
            return OpRun{[=, &rig, &w] {
                           if (rig.unfused()) return rig.backend().Backend::matmul_add(residual, x, w, b);
                           rig.backend().matmul_add(residual, x, w, b);
                         },
                         {residual}};
          },
          0, format_error(format)};
}

inline OpCase gate_up_case(Format gate, Format up, MatmulShape s, Activation act, bool bias = false) {
  // The product of two results with an error each: a little more than twice the error.
  return {"gate_up", label("gate_up", gate, s) + fmt::format(" up {} act {}{}", info(up).name, static_cast<int>(act), bias ? " bias" : ""),
          2.5 * std::max(weight_error(gate), weight_error(up)), 2 * matmul_flops(s), matmul_bytes(gate, s, 2), [=](OpRig& rig) {
            const Tensor x = rig.activations(s.n, s.n_in), y = rig.output(s.n, s.n_out);
            const Tensor bg = bias ? rig.values(1, s.n_out) : Tensor{}, bu = bias ? rig.values(1, s.n_out) : Tensor{};
            const Weight &wg = rig.weight(gate, s.n_out, s.n_in), &wu = rig.weight(up, s.n_out, s.n_in);
            const GateUpArgs args{.y = y, .x = x, .norm = {}, .normed = {}, .w_gate = &wg, .w_up = &wu, .b_gate = bg, .b_up = bu,
                                  .act = act};
            return OpRun{[=, &rig] {
                           if (rig.unfused()) return rig.backend().Backend::gate_up(args);
                           rig.backend().gate_up(args);
                         },
                         {y}};
          },
          0, 2.5 * std::max(format_error(gate), format_error(up))};
}

inline OpCase norm_matmul_case(Format format, MatmulShape s) {
  // The norm's weights spread the values, so the largest of a group is further from most of the others.
  return {"norm_matmul", label("norm_matmul", format, s), 1.5 * format_error(format), matmul_flops(s), matmul_bytes(format, s),
          [=](OpRig& rig) {
            const Tensor x = rig.values(s.n, s.n_in), y = rig.output(s.n, s.n_out);
            const Tensor normed = rig.backend().alloc(rig.backend().act_dtype(), s.n, s.n_in);
            const NormArgs norm = rig.norm(s.n_in);
            const Weight& w = rig.weight(format, s.n_out, s.n_in);
            return OpRun{[=, &rig, &w] {
                           if (rig.unfused()) return rig.backend().Backend::norm_matmul(y, x, normed, norm, w);
                           rig.backend().norm_matmul(y, x, normed, norm, w);
                         },
                         {y}};
          }};
}

inline OpCase embed_case(Format format, int64_t n_vocab, int64_t dim, std::vector<SeqShape> seqs, float scale) {
  return {"embed", fmt::format("embed {} [{} x {}] scale {}", info(format).name, n_vocab, dim, scale), 1e-7, 0,
          static_cast<double>(row_bytes(format, dim)), [=](OpRig& rig) {
            const Weight& table = rig.weight(format, n_vocab, dim);
            const Tensor x = rig.output(rig.begin(seqs, static_cast<int>(n_vocab)), dim);
            return OpRun{[=, &rig, &table] { rig.backend().embed(x, table, scale); }, {x}};
          }};
}

inline OpCase norm_case(int64_t n, int64_t dim, NormKind kind, bool bias, bool in_place) {
  return {"norm", fmt::format("norm {} x {} kind {}{}{}", n, dim, static_cast<int>(kind), bias ? " bias" : "", in_place ? " in place" : ""),
          kFloatError, 4.0 * static_cast<double>(n * dim), 8.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 3.0f, 0.5f), y = in_place ? x : rig.output(n, dim);
            const NormArgs args = rig.norm(dim, kind, bias);
            return OpRun{[=, &rig] { rig.backend().norm(y, x, args); }, {y}};
          }};
}

inline OpCase add_case(int64_t n, int64_t dim) {
  return {"add", fmt::format("add {} x {}", n, dim), 1e-7, static_cast<double>(n * dim), 12.0 * static_cast<double>(n * dim),
          [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim), y = rig.values(n, dim);
            return OpRun{[=, &rig] { rig.backend().add(x, y); }, {x}};
          }};
}

inline OpCase act_mul_case(int64_t n, int64_t dim, Activation act, bool in_place) {
  return {"act_mul",
          fmt::format("act_mul {} x {} act {}{}", n, dim, static_cast<int>(act), in_place ? " in place" : ""),
          kFloatError, 20.0 * static_cast<double>(n * dim), 12.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor gate = rig.values(n, dim, 8.0f), up = rig.values(n, dim);
            const Tensor y = in_place ? gate : rig.output(n, dim);
            return OpRun{[=, &rig] { rig.backend().act_mul(y, gate, up, act); }, {y}};
          }};
}

inline OpCase act_case(int64_t n, int64_t dim, Activation act) {
  return {"act", fmt::format("act {} x {} of kind {}", n, dim, static_cast<int>(act)), kFloatError, 10.0 * static_cast<double>(n * dim),
          8.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 3.0f);
            return OpRun{[=, &rig] { rig.backend().act(x, act); }, {x}};
          }};
}

inline OpCase add_positions_case(std::vector<SeqShape> seqs, int64_t dim, int64_t n_rows) {
  return {"add_positions", fmt::format("add_positions {} sequences x {} of {} rows", seqs.size(), dim, n_rows), kFloatError, 0, 0,
          [=](OpRig& rig) {
            const Tensor table = rig.values(n_rows, dim), x = rig.values(rig.begin(seqs), dim);
            return OpRun{[=, &rig] { rig.backend().add_positions(x, table); }, {x}};
          }};
}

inline OpCase pool_case(std::vector<SeqShape> seqs, int64_t dim, Pooling pooling) {
  return {"pool", fmt::format("pool {} sequences x {} by {}", seqs.size(), dim, static_cast<int>(pooling)), kFloatError, 0, 0,
          [=](OpRig& rig) {
            const Tensor x = rig.values(rig.begin(seqs), dim, 1.0f, 0.5f), y = rig.output(static_cast<int64_t>(seqs.size()), dim);
            return OpRun{[=, &rig] { rig.backend().pool(y, x, pooling); }, {y}};
          }};
}

inline OpCase scale_case(int64_t n, int64_t dim, float factor, float softcap) {
  return {"scale", fmt::format("scale {} x {} by {} softcap {}", n, dim, factor, softcap), kFloatError,
          static_cast<double>(n * dim), 8.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 20.0f);
            return OpRun{[=, &rig] { rig.backend().scale(x, factor, softcap); }, {x}};
          }};
}

inline OpCase copy_case(int64_t n, int64_t dim) {
  return {"copy", fmt::format("copy {} x {}", n, dim), 0, 0, 8.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim + 5), y = rig.values(n, 2 * dim);
            return OpRun{[=, &rig] { rig.backend().copy(y.slice_cols(dim, dim), x.slice_cols(3, dim)); }, {y}};
          }};
}

inline OpCase gather_case(std::vector<SeqShape> seqs, int64_t dim) {
  return {"gather_rows", fmt::format("gather_rows of {} x {}", seqs.size(), dim), 0, 0,
          8.0 * static_cast<double>(seqs.size()) * static_cast<double>(dim), [=](OpRig& rig) {
            const Tensor x = rig.values(rig.begin(seqs), dim), y = rig.output(rig.n_logits(), dim);
            return OpRun{[=, &rig] { rig.backend().gather_rows(y, x); }, {y}};
          }};
}

// Frequencies of a head whose first rot_dim elements rotate, as a [1, rot_dim / 2] tensor.
inline Tensor inverse_frequencies(OpRig& rig, int rot_dim) {
  const Tensor t = rig.backend().alloc(DType::kF32, 1, rot_dim / 2);
  std::vector<float> host(rot_dim / 2);
  for (int i = 0; i < rot_dim / 2; ++i) host[i] = std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rot_dim));
  rig.backend().upload(t, host.data());
  return t;
}

inline OpCase rope_case(std::vector<SeqShape> seqs, int n_heads, int head_dim, int rot_dim, RopeLayout layout) {
  return {"rope", fmt::format("rope {} heads of {} turning {} layout {}", n_heads, head_dim, rot_dim, static_cast<int>(layout)),
          kFloatError, 0, 0, [=](OpRig& rig) {
            const int n = rig.begin(seqs);
            const Tensor x = rig.values(n, int64_t{n_heads} * head_dim), angles = rig.output(n, rot_dim);
            const Tensor freq = inverse_frequencies(rig, rot_dim);
            return OpRun{[=, &rig] {
                           rig.backend().rope_angles(angles, freq, 1.25f);
                           rig.backend().rope(x, n_heads, {angles, layout});
                         },
                         {x, angles}};
          }};
}

struct AttentionShape {
  int n_heads, n_kv_heads, head_dim;
  DType dtype = DType::kF16;
  int block_size = 16;
  int window = 0;
  float softcap = 0;
  bool causal = true;
  bool sinks = false;
  bool latent = false;  // values are the keys
};

inline std::string label(const AttentionShape& a, const std::vector<SeqShape>& seqs) {
  std::string text = fmt::format("{}/{} heads of {} dtype {} block {}", a.n_heads, a.n_kv_heads, a.head_dim, static_cast<int>(a.dtype), a.block_size);
  if (a.window > 0) text += fmt::format(" window {}", a.window);
  if (a.softcap > 0) text += fmt::format(" softcap {}", a.softcap);
  if (!a.causal) text += " not causal";
  if (a.sinks) text += " sinks";
  if (a.dtype == DType::kQ8_0) text += " q8_0";
  if (a.dtype == DType::kQ4_0) text += " q4_0";
  if (a.latent) text += " latent";
  for (const SeqShape& s : seqs) text += fmt::format(" {}+{}", s.past, s.q_len);
  return text;
}

inline AttentionArgs attention_args(const AttentionShape& a) {
  return {.layer = 1, .n_heads = a.n_heads, .n_kv_heads = a.n_kv_heads, .head_dim = a.head_dim,
          .scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim)), .softcap = a.softcap, .window = a.window, .causal = a.causal};
}

inline OpCase attention_case(const AttentionShape& a, const std::vector<SeqShape>& seqs) {
  double pairs = 0, keys = 0;
  for (const SeqShape& s : seqs) {
    pairs += a.causal ? s.q_len * (s.past + 0.5 * (s.q_len + 1)) : static_cast<double>(s.q_len) * (s.past + s.q_len);
    keys += s.past + s.q_len;
  }
  return {"attention", "attention " + label(a, seqs), kFloatError, 4.0 * pairs * a.n_heads * a.head_dim,
          keys * static_cast<double>(KvShape{1, a.n_kv_heads, a.head_dim, 1, 1, a.dtype, a.latent}.token_bytes()), [=](OpRig& rig) {
            KvCache& kv = rig.cache_and_batch(seqs, {.n_layers = 2, .n_kv_heads = a.n_kv_heads, .head_dim = a.head_dim,
                                                     .block_size = a.block_size, .dtype = a.dtype, .values_are_keys = a.latent});
            int n = 0;
            for (const SeqShape& s : seqs) n += s.q_len;
            const int64_t kv_dim = int64_t{a.n_kv_heads} * a.head_dim, q_dim = int64_t{a.n_heads} * a.head_dim;
            const Tensor q = rig.values(n, q_dim, 2.0f), k = rig.values(n, kv_dim), v = rig.values(n, kv_dim);
            const Tensor y = rig.output(n, q_dim);
            rig.backend().kv_write(kv, 1, k, a.latent ? k : v);
            AttentionArgs args = attention_args(a);
            if (a.sinks) args.sinks = rig.values(1, a.n_heads, 3.0f);
            return OpRun{[=, &rig, &kv] { rig.backend().attention(y, q, kv, args); }, {y}};
          }};
}

struct QkvShape {
  AttentionShape heads;
  int dim;
  Format q, k, v;
  bool bias = false;
  bool head_norms = false;
  RopeLayout layout = RopeLayout::kHalfSplit;
  int rot_dim = 0;  // 0: no rope
  bool whole_norms = false;  // one norm over all heads
};

// Keys and values are checked through the attention that follows. Scores carry the error of both sides into an
// exponential. For a backend that rounds, the factor 4 covers that error for the flat softmax of random weights.
inline OpCase qkv_case(const QkvShape& s, const std::vector<SeqShape>& seqs) {
  const AttentionShape& a = s.heads;
  const double error = std::max({format_error(s.q), format_error(s.k), format_error(s.v)});
  return {"qkv", fmt::format("qkv {} {} {} dim {}{}{} rope {} layout {}, {}", info(s.q).name, info(s.k).name, info(s.v).name, s.dim,
                             s.bias ? " bias" : "", s.whole_norms ? " whole norms" : s.head_norms ? " norms" : "", s.rot_dim, static_cast<int>(s.layout), label(a, seqs)),
          std::max(kHalfError, 2 * std::max({weight_error(s.q), weight_error(s.k), weight_error(s.v)})), 0, 0, [=](OpRig& rig) {
            KvCache& kv = rig.cache_and_batch(seqs, {.n_layers = 2, .n_kv_heads = a.n_kv_heads, .head_dim = a.head_dim,
                                                     .block_size = a.block_size, .dtype = a.dtype});
            int n = 0;
            for (const SeqShape& q : seqs) n += q.q_len;
            const int64_t kv_dim = int64_t{a.n_kv_heads} * a.head_dim, q_dim = int64_t{a.n_heads} * a.head_dim;
            QkvArgs args{.x = rig.activations(n, s.dim), .wq = &rig.weight(s.q, q_dim, s.dim), .wk = &rig.weight(s.k, kv_dim, s.dim),
                         .wv = &rig.weight(s.v, kv_dim, s.dim), .n_heads = a.n_heads, .n_kv_heads = a.n_kv_heads,
                         .head_dim = a.head_dim, .kv = &kv, .layer = 1};
            if (s.bias) args.bq = rig.values(1, q_dim), args.bk = rig.values(1, kv_dim), args.bv = rig.values(1, kv_dim);
            if (s.head_norms) args.q_norm = rig.norm(a.head_dim), args.k_norm = rig.norm(a.head_dim);
            if (s.whole_norms) args.q_norm = rig.norm(q_dim), args.k_norm = rig.norm(kv_dim);
            if (s.rot_dim > 0) {
              args.rope = {rig.output(n, s.rot_dim), s.layout};
              rig.backend().rope_angles(args.rope.angles, inverse_frequencies(rig, s.rot_dim), 1.0f);
            }
            args.q = rig.output(n, q_dim), args.k = rig.output(n, kv_dim), args.v = rig.output(n, kv_dim);
            const Tensor y = rig.output(n, q_dim);
            return OpRun{[=, &rig, &kv] {
                           if (rig.unfused()) {
                             rig.backend().Backend::qkv(args);
                           } else {
                             rig.backend().qkv(args);
                           }
                           rig.backend().attention(y, args.q, kv, attention_args(a));
                         },
                         {y, args.q}};
          },
          a.dtype == DType::kF16 ? kF16Flip : 0, 4 * error};
}

// ---- experts ----

struct ExpertShape {
  int64_t n, n_used, n_experts, dim, ffn;
  int first_own = 0, n_own = 0;  // as in RouteArgs

  int64_t n_here() const { return n_own > 0 ? n_own : n_experts; }
};
inline std::string label_of_own(int first, int n) { return n > 0 ? fmt::format(" own {}+{}", first, n) : ""; }
inline std::string label(const char* op, Format format, const ExpertShape& s) {
  return fmt::format("{} {} {} of {} experts [{} x {}] x {}{}", op, info(format).name, s.n_used, s.n_experts, s.ffn,
                     s.dim, s.n, label_of_own(s.first_own, s.n_own));
}
inline double expert_bytes(Format format, const ExpertShape& s, int n_weights) {
  const double touched = static_cast<double>(std::min(s.n_here(), s.n * s.n_used));
  return touched * n_weights * static_cast<double>(s.ffn) * static_cast<double>(row_bytes(format, s.dim));
}

inline OpCase moe_route_case(int64_t n, int64_t n_experts, RouteArgs args, bool bias = false) {
  return {"moe_route",
          fmt::format("moe_route {} of {} x {} scoring {}{} groups {}/{}{}{}", args.n_used, n_experts, n, static_cast<int>(args.scoring),
                      args.normalize ? " normalized" : "", args.n_groups_used, args.n_groups, bias ? " bias" : "",
                      label_of_own(args.first_own, args.n_own)),
          kFloatError, 0, 4.0 * static_cast<double>(n * n_experts), [=](OpRig& rig) {
            RouteArgs with_bias = args;
            if (bias) with_bias.bias = rig.values(1, n_experts, 0.2f);
            const Tensor logits = rig.values(n, n_experts, 2.0f), weights = rig.output(n, args.n_used);
            const Tensor ids = rig.experts(n, args.n_used, n_experts);
            return OpRun{[=, &rig] { rig.backend().moe_route(ids, weights, logits, with_bias); }, {weights}};
          }};
}

// x has a row for each token, or for each token and expert.
inline OpCase moe_matmul_case(Format format, const ExpertShape& s, bool shared_x, bool bias) {
  return {"moe_matmul", label("moe_matmul", format, s) + (shared_x ? " shared" : "") + (bias ? " bias" : ""), weight_error(format),
          2.0 * static_cast<double>(s.n * s.n_used * s.dim * s.ffn), expert_bytes(format, s, 1), [=](OpRig& rig) {
            const int64_t rows = s.n * s.n_used;
            const Tensor x = rig.activations(shared_x ? s.n : rows, s.dim), y = rig.output(rows, s.ffn);
            const Tensor ids = rig.experts(s.n, s.n_used, s.n_experts), b = bias ? rig.values(s.n_experts, s.ffn) : Tensor{};
            const Weight& w = rig.weight(format, s.ffn, s.dim, s.n_experts);
            return OpRun{[=, &rig, &w] { rig.backend().moe_matmul(y, x, w, ids, b); }, {y}};
          },
          0, format_error(format)};
}

// Rows of other ranks' experts are not computed, and the sum leaves them out, whatever they hold. Row k of y has a
// weight that other rows of the token do not have.
inline OpCase own_rows_case(Format format, const ExpertShape& s, bool shared_x, bool bias) {
  return {"moe_matmul", label("moe_matmul", format, s) + " and combine" + (shared_x ? " shared" : "") + (bias ? " bias" : ""), weight_error(format),
          2.0 * static_cast<double>(s.n * s.n_used * s.dim * s.ffn), expert_bytes(format, s, 1), [=](OpRig& rig) {
            const int64_t rows = s.n * s.n_used;
            const Tensor x = rig.activations(shared_x ? s.n : rows, s.dim), y = rig.output(rows, s.ffn);
            const Tensor ids = rig.experts(s.n, s.n_used, s.n_experts, s.n_own), b = bias ? rig.values(s.n_own, s.ffn) : Tensor{};
            const Weight& w = rig.weight(format, s.ffn, s.dim, s.n_own);
            std::vector<int32_t> id(static_cast<size_t>(rows));
            std::vector<float> weight(id.size());
            rig.backend().download(id.data(), ids);
            for (size_t i = 0; i < id.size(); ++i) weight[i] = id[i] < 0 ? 0.0f : 0.5f + static_cast<float>(i % 7);
            const Tensor weights = rig.output(s.n, s.n_used), residual = rig.values(s.n, s.ffn);
            rig.backend().upload(weights, weight.data());
            return OpRun{[=, &rig, &w] {
                           rig.backend().moe_matmul(y, x, w, ids, b);
                           rig.backend().moe_combine(residual, y, weights);
                         },
                         {residual}};
          },
          0, format_error(format)};
}

inline OpCase moe_combine_case(int64_t n, int64_t n_used, int64_t dim) {
  return {"moe_combine", fmt::format("moe_combine {} x {} of {}", n, n_used, dim), kFloatError, 2.0 * static_cast<double>(n * n_used * dim),
          4.0 * static_cast<double>(n * (n_used + 2) * dim), [=](OpRig& rig) {
            const Tensor residual = rig.values(n, dim), y = rig.values(n * n_used, dim), weights = rig.values(n, n_used);
            return OpRun{[=, &rig] { rig.backend().moe_combine(residual, y, weights); }, {residual}};
          }};
}

// All backends hold the router's numbers exactly, so they choose the same experts. The values between gate and down are
// rounded with their own scales.
inline OpCase moe_case(Format gate, Format down, const ExpertShape& s, Activation act, bool bias = false) {
  return {"moe", label("moe", gate, s) + fmt::format(" down {} act {}{}", info(down).name, static_cast<int>(act), bias ? " bias" : ""),
          3 * std::max(format_error(gate), format_error(down)), 6.0 * static_cast<double>(s.n * s.n_used * s.dim * s.ffn),
          expert_bytes(gate, s, 2) + expert_bytes(down, s, 1), [=](OpRig& rig) {
            const int64_t rows = s.n * s.n_used;
            MoeArgs a{.residual = rig.values(s.n, s.dim), .x = rig.activations(s.n, s.dim),
                      .w_router = &rig.weight(Format::BF16, s.n_experts, s.dim), .b_router = bias ? rig.values(1, s.n_experts) : Tensor{},
                      .route = {.n_used = static_cast<int>(s.n_used), .normalize = true, .scale = 1.5f, .first_own = s.first_own, .n_own = s.n_own},
                      .w_gate = &rig.weight(gate, s.ffn, s.dim, s.n_here()), .w_up = &rig.weight(gate, s.ffn, s.dim, s.n_here()),
                      .w_down = &rig.weight(down, s.dim, s.ffn, s.n_here()), .act = act};
            if (bias) a.b_gate = rig.values(s.n_here(), s.ffn), a.b_up = rig.values(s.n_here(), s.ffn), a.b_down = rig.values(s.n_here(), s.dim);
            a.logits = rig.output(s.n, s.n_experts), a.weights = rig.output(s.n, s.n_used), a.ids = rig.experts(s.n, s.n_used, s.n_experts);
            a.gate = rig.output(rows, s.ffn), a.up = rig.output(rows, s.ffn), a.out = rig.output(rows, s.dim);
            return OpRun{[=, &rig] { rig.unfused() ? rig.backend().Backend::moe(a) : rig.backend().moe(a); }, {a.residual}};
          }};
}

inline void add_expert_cases(std::vector<OpCase>& cases) {
  for (const int64_t n : {1, 7, 40}) {
    cases.push_back(moe_route_case(n, 8, {.n_used = 2, .normalize = true}));
    cases.push_back(moe_route_case(n, 60, {.n_used = 4}));
    cases.push_back(moe_route_case(n, 1, {.n_used = 1, .scoring = Scoring::kSigmoid}));
    cases.push_back(moe_route_case(n, 64, {.n_used = 6, .scale = 2.5f, .n_groups = 8, .n_groups_used = 3}));
    cases.push_back(moe_route_case(n, 32, {.n_used = 4, .scoring = Scoring::kSigmoid, .normalize = true, .scale = 2.5f, .n_groups = 4, .n_groups_used = 2}, true));
    cases.push_back(moe_route_case(n, 60, {.n_used = 4, .normalize = true, .first_own = 13, .n_own = 22}));
    cases.push_back(moe_route_case(n, 8, {.n_used = 3, .scoring = Scoring::kSigmoid, .n_groups = 4, .n_groups_used = 2, .n_own = 5}, true));
    for (const int64_t dim : {1, 33, 512}) cases.push_back(moe_combine_case(n, 3, dim)), cases.push_back(copy_case(n, dim));
    for (const auto act : {Activation::kSilu, Activation::kClampedSwiglu}) {
      cases.push_back(moe_case(Format::F32, Format::F32, {n, 2, 5, 48, 72}, act, n == 7));
      cases.push_back(moe_case(Format::Q4_K, Format::Q6_K, {n, 3, 8, 256, 256}, act, n != 7));
      cases.push_back(moe_case(Format::MXFP4, Format::MXFP4, {n, 4, 32, 64, 96}, act, true));
      cases.push_back(moe_case(Format::F32, Format::F32, {n, 2, 5, 48, 72, 2, 2}, act, n == 7));
      cases.push_back(moe_case(Format::Q4_K, Format::Q6_K, {n, 6, 12, 256, 256, 7, 5}, act, n != 7));
      cases.push_back(moe_case(Format::MXFP4, Format::MXFP4, {n, 4, 32, 64, 96, 0, 11}, act, true));
      cases.push_back(moe_case(Format::F16, Format::IQ4_NL, {n, 3, 4, 96, 64, 3, 1}, act, n == 1));  // a single expert
    }
    cases.push_back(moe_case(Format::Q8_0, Format::F16, {n, 1, 1, 64, 32}, Activation::kSilu));
    cases.push_back(moe_case(Format::F16, Format::IQ4_NL, {n, 3, 4, 96, 64}, Activation::kSilu, true));
  }
  for (const Format format : {Format::F32, Format::F16, Format::BF16, Format::Q8_0, Format::Q4_K, Format::MXFP4}) {
    const int64_t k = std::max<int64_t>(info(format).block_size, 32);
    for (const bool shared_x : {false, true}) {
      cases.push_back(moe_matmul_case(format, {1, 2, 3, k, 33}, shared_x, shared_x));
      cases.push_back(moe_matmul_case(format, {50, 3, 4, 2 * k, 40}, shared_x, !shared_x));
      cases.push_back(moe_matmul_case(format, {9, 1, 6, k, 7}, shared_x, false));
      cases.push_back(own_rows_case(format, {1, 6, 8, k, 33, 0, 4}, shared_x, shared_x));
      cases.push_back(own_rows_case(format, {50, 3, 7, 2 * k, 40, 0, 3}, shared_x, !shared_x));
      cases.push_back(own_rows_case(format, {9, 1, 6, k, 64, 0, 2}, shared_x, false));
    }
  }
}

// ---- the table ----

inline std::vector<Format> all_formats() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(static_cast<Format>(i));
  return formats;
}

inline constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kClampedSwiglu};

inline void add_matmul_cases(std::vector<OpCase>& cases) {
  for (const Format format : all_formats()) {
    const int64_t block = info(format).block_size, k = std::max<int64_t>(block, 32);
    const MatmulShape shapes[] = {{1, 1, k},          {1, 33, 2 * k},    {3, 17, k},  {2, 64, 4 * k}, {4, 40, 2 * k}, {5, 96, k},
                                  {6, 16, 3 * k},     {7, 48, k},        {8, 31, k},  {9, 32, k},     {10, 35, k},    {11, 7, k},
                                  {13, 65, 3 * k},    {17, 160, 2 * k},  {33, 72, k}, {64, 257, k},   {100, 100, 512}, {1, 1000, 1024}};
    for (const MatmulShape& s : shapes) {
      cases.push_back(matmul_case(format, s, s.n % 2 == 0));
      cases.push_back(matmul_add_case(format, s, s.n % 3 == 0));
    }
    for (const auto act : kActivations)
      for (const int64_t n : {1, 5, 30}) cases.push_back(gate_up_case(format, format, {n, 90, 2 * k}, act, n == 5));
    cases.push_back(rounding_case(format, {100, 64, 512}));
    cases.push_back(norm_matmul_case(format, {40, 50, std::max<int64_t>(k, 128)}));
    cases.push_back(embed_case(format, 77, k, {{0, 5}, {3, 1}, {0, 40}}, block == 1 ? 1.0f : 12.5f));
  }
  for (const Format format : {Format::F32, Format::F16, Format::BF16}) {  // rows whose length is a multiple of no block
    for (const int64_t n_in : {1, 3, 31, 65}) cases.push_back(matmul_case(format, {14, 45, n_in}, true));
    cases.push_back(matmul_case(format, {100, 150, 1101}, true));  // long enough for kernels of prompts
    cases.push_back(matmul_case(format, {100, 150, 1120}, true));
    cases.push_back(gate_up_case(format, format, {61, 90, 600}, Activation::kSilu));
  }
  // Prompts whose weights are unpacked for many tokens.
  for (const Format format : {Format::F16, Format::BF16, Format::Q8_0, Format::IQ4_NL, Format::IQ4_XS, Format::AFFINE8_32, Format::AFFINE8_64}) {
    cases.push_back(matmul_case(format, {1100, 40, 512}, true));
    cases.push_back(gate_up_case(format, format, {61, 90, 256}, Activation::kSilu, true));
  }
  for (const Format format : {Format::Q4_0, Format::Q4_K, Format::Q6_K})
    cases.push_back(gate_up_case(format, format, {140, 150, 2560}, Activation::kSilu, true));
  // A batch of sequences: one format for each way in which a device may store its codes and scales.
  for (const Format format : {Format::Q4_0, Format::Q4_1, Format::Q8_0, Format::Q5_1, Format::Q6_K, Format::Q2_K, Format::IQ4_NL, Format::NVFP4}) {
    cases.push_back(matmul_add_case(format, {33, 1040, 4096}, true));
    cases.push_back(gate_up_case(format, format, {20, 1024, 4096}, Activation::kSilu));
  }
  for (const int64_t n : {1, 14, 40}) {
    cases.push_back(gate_up_case(Format::Q4_K, Format::Q6_K, {n, 200, 512}, Activation::kSilu));
    cases.push_back(gate_up_case(Format::F16, Format::Q4_0, {n, 96, 64}, Activation::kSilu));
    cases.push_back(gate_up_case(Format::BF16, Format::F32, {n, 96, 64}, Activation::kSilu));
  }
}

inline void add_row_cases(std::vector<OpCase>& cases) {
  for (const int64_t n : {1, 2, 33})
    for (const int64_t dim : {1, 15, 16, 64, 100, 896, 4097}) {
      cases.push_back(norm_case(n, dim, NormKind::kRms, dim == 64, n == 2));
      if (dim > 1) cases.push_back(norm_case(n, dim, NormKind::kLayer, dim != 64, n != 2));  // one value: 0 / 0 except for eps
      cases.push_back(add_case(n, dim));
      for (const auto act : kActivations)
        cases.push_back(act_mul_case(n, dim, act, n == 2));
      cases.push_back(scale_case(n, dim, 0.3f, 0.0f));
      cases.push_back(scale_case(n, dim, 0.7f, 30.0f));
    }
  cases.push_back(scale_case(3, 50000, 1.0f, 25.0f));
  cases.push_back(gather_case({{0, 4}, {2, 1}, {0, 9}}, 70));
  for (const auto layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved})
    for (const int head_dim : {16, 64, 80, 96, 128, 256})
      for (const int rot_dim : {head_dim, head_dim / 2, 6})
        cases.push_back(rope_case({{0, 3}, {700, 1}, {5, 9}}, 3, head_dim, rot_dim, layout));
}

// Decode: sequences that end on both sides of the boundaries of pages, steps and splits, with heads of every width and
// groups of every size. Then a few tokens each, with every operation that can modify scores.
inline void add_decode_cases(std::vector<OpCase>& cases) {
  const std::vector<SeqShape> edges = {{0, 1}, {14, 1}, {15, 1}, {16, 1}, {254, 1}, {4096, 1}};
  const std::vector<SeqShape> few = {{254, 3}, {0, 2}, {700, 8}, {16, 1}}, mixed = {{0, 70}, {600, 1}, {130, 5}};
  for (const int head_dim : {64, 80, 112, 128, 160, 192, 256, 512})
    for (const int group : {1, 16}) cases.push_back(attention_case({group, 1, head_dim}, edges));
  for (const int group : {2, 4, 8}) cases.push_back(attention_case({2 * group, 2, 256}, edges));
  for (const int head_dim : {112, 192, 256, 512}) {
    for (const auto& seqs : {few, mixed}) cases.push_back(attention_case({8, 2, head_dim}, seqs));
    for (const DType dtype : {DType::kBF16, DType::kE4M3}) cases.push_back(attention_case({4, 1, head_dim, dtype}, mixed));
    cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 2, .head_dim = head_dim, .block_size = 32, .window = 90, .softcap = 30.0f},
                                   few));
    cases.push_back(attention_case({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .window = 40, .causal = false}, {{0, 100}, {0, 3}}));
    cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 1, .head_dim = head_dim, .sinks = true}, mixed));
  }
  cases.push_back(attention_case({24, 1, 256}, mixed));  // more heads a group than a tile has rows
  const auto latent = [](int n_heads, DType dtype = DType::kF16) {
    return AttentionShape{.n_heads = n_heads, .n_kv_heads = 1, .head_dim = 576, .dtype = dtype, .latent = true};
  };
  cases.push_back(attention_case(latent(20), edges));
  for (const int n_heads : {16, 64, 128}) cases.push_back(attention_case(latent(n_heads), {{0, 1}, {14, 1}, {16, 1}, {254, 1}, {500, 1}}));
  for (const auto& seqs : {few, mixed}) cases.push_back(attention_case(latent(16), seqs));
  for (const DType dtype : {DType::kBF16, DType::kE4M3}) cases.push_back(attention_case(latent(20, dtype), {{300, 1}, {0, 9}}));
}

inline void add_attention_cases(std::vector<OpCase>& cases) {
  const std::vector<SeqShape> mixed = {{0, 19}, {100, 1}, {37, 5}, {0, 1}, {64, 16}, {15, 1}};
  for (const int head_dim : {16, 20, 64, 80, 96, 128, 256})
    for (const int group : {1, 3, 7}) cases.push_back(attention_case({2 * group, 2, head_dim}, mixed));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kE4M3})
    for (const int block_size : {1, 5, 8, 16, 24, 32, 64})
      cases.push_back(attention_case({.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .dtype = dtype, .block_size = block_size}, mixed));
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    for (const int head_dim : {16, 20, 80, 96, 128, 256, 576})
      cases.push_back(attention_case({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .dtype = dtype, .block_size = 24, .window = 70}, mixed));
    for (const int head_dim : {32, 64, 80, 96, 128, 256}) {
      cases.push_back(attention_case({9, 3, head_dim, dtype}, {{2000, 1}}));
      cases.push_back(attention_case({4, 1, head_dim, dtype}, {{0, 130}, {90, 70}, {40, 1}, {0, 33}}));
    }
  }
  for (const DType dtype : {DType::kBF16, DType::kE4M3})
    for (const int head_dim : {20, 32, 64, 96, 128, 256}) {
      cases.push_back(attention_case({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .dtype = dtype, .window = 70}, mixed));
      cases.push_back(attention_case({.n_heads = 3, .n_kv_heads = 1, .head_dim = head_dim, .dtype = dtype}, {{900, 1}, {0, 130}, {40, 70}}));
    }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kE4M3})
    for (const int head_dim : {20, 64, 576})
      for (const int block_size : {5, 16})
        if (head_dim < 576 || (block_size == 16 && dtype != DType::kF32))  // ref takes long for these
          cases.push_back(attention_case({.n_heads = 20, .n_kv_heads = 1, .head_dim = head_dim, .dtype = dtype, .block_size = block_size,
                                          .latent = true}, mixed));
  for (const int group : {2, 4, 5, 6, 8, 9, 12, 16, 48, 70}) cases.push_back(attention_case({group, 1, 32}, {{0, 50}, {70, 1}}));
  for (const int window : {1, 7, 16, 60, 4096}) {
    cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .window = window}, mixed));
    cases.push_back(attention_case({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .window = window}, {{1500, 1}, {900, 3}}));
  }
  cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .softcap = 2.0f}, mixed));
  cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .causal = false}, {{0, 70}, {0, 3}, {0, 33}}));
  // Long enough that the keys are split.
  for (const int window : {1, 7, 16, 33, 200})
    cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .dtype = DType::kF32, .window = window, .causal = false},
                                   {{0, 130}, {0, 1}, {0, 33}, {0, 70}}));
  cases.push_back(attention_case({9, 3, 64}, {{2000, 1}}));
  cases.push_back(attention_case({14, 2, 64}, {{1100, 2}, {3, 1}}));
  cases.push_back(attention_case({.n_heads = 3, .n_kv_heads = 1, .head_dim = 128, .window = 700, .softcap = 30.0f}, {{1000, 1}, {5, 1}}));
  // Prompts of several hundred rows; some have few rows.
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    cases.push_back(attention_case({4, 2, head_dim}, {{0, 300}}));
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kE4M3})
      cases.push_back(attention_case({4, 1, head_dim, dtype}, {{0, 130}, {90, 70}, {40, 1}, {0, 33}}));
    cases.push_back(attention_case({.n_heads = 3, .n_kv_heads = 1, .head_dim = head_dim, .block_size = 32, .window = 50}, {{300, 100}, {0, 90}}));
    cases.push_back(attention_case({.n_heads = 2, .n_kv_heads = 2, .head_dim = head_dim, .block_size = 48, .causal = false}, {{0, 261}, {0, 64}}));
  }
  for (const int head_dim : {16, 64, 576}) cases.push_back(attention_case({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .sinks = true}, mixed));
  cases.push_back(attention_case({.n_heads = 8, .n_kv_heads = 1, .head_dim = 64, .window = 20, .sinks = true}, mixed));
  cases.push_back(attention_case({.n_heads = 6, .n_kv_heads = 2, .head_dim = 64, .sinks = true}, {{2000, 1}}));  // in parts
}

inline void add_qkv_cases(std::vector<OpCase>& cases) {
  const std::vector<SeqShape> mixed = {{0, 19}, {40, 1}, {37, 5}};
  const std::vector<SeqShape> decode = {{40, 1}};
  for (const auto& seqs : {mixed, decode}) {
    for (const Format format : all_formats())
      cases.push_back(qkv_case({{6, 2, 64}, 512, format, format, format, false, false, RopeLayout::kInterleaved, 64}, seqs));
    cases.push_back(qkv_case({{14, 2, 64}, 256, Format::Q4_K, Format::Q4_K, Format::Q6_K, true, false, RopeLayout::kHalfSplit, 64}, seqs));
    cases.push_back(qkv_case({{4, 4, 96}, 256, Format::Q4_0, Format::F16, Format::Q5_1, true, true, RopeLayout::kHalfSplit, 32}, seqs));
    cases.push_back(qkv_case({{4, 2, 128}, 64, Format::F32, Format::F32, Format::F32, false, true, RopeLayout::kHalfSplit, 128}, seqs));
    cases.push_back(qkv_case({{6, 2, 16}, 64, Format::F32, Format::F32, Format::F32, false, false, RopeLayout::kHalfSplit, 16, true}, seqs));
    cases.push_back(qkv_case({{2, 1, 32, DType::kF32}, 32, Format::F32, Format::F32, Format::F32}, seqs));
  }
}

// Caches of q4_0 are for GPUs; there, heads of types with scales have a multiple of 8 columns.
inline bool runs_on(const Backend& backend, const OpCase& c) {
  const auto has = [&](const char* text) { return c.name.find(text) != c.name.npos; };
  if (has(" q4_0")) return backend.keeps_kv_as(DType::kQ4_0) && !has("heads of 20 ");
  return !has(" q8_0") || !has("heads of 20 ") || backend.is_host();
}

inline void add_encoder_cases(std::vector<OpCase>& cases) {
  const std::vector<SeqShape> seqs = {{0, 5}, {0, 1}, {0, 19}};
  for (const int64_t dim : {1, 31, 64, 257}) {
    for (const Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) cases.push_back(act_case(3, dim, act));
    for (const int64_t n_rows : {1, 19}) cases.push_back(add_positions_case(seqs, dim, n_rows));
    for (const Pooling pooling : {Pooling::kCls, Pooling::kMean, Pooling::kLast}) cases.push_back(pool_case(seqs, dim, pooling));
  }
}

inline std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  add_matmul_cases(cases);
  add_row_cases(cases);
  add_attention_cases(cases);
  add_decode_cases(cases);
  add_qkv_cases(cases);
  add_expert_cases(cases);
  add_encoder_cases(cases);
  return cases;
}

}  // namespace ingot
