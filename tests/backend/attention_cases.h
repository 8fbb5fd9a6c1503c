// The lines of the op table for heads: rope, attention, and q, k and v.
#pragma once
#include <cmath>

#include "op_case.h"

namespace ingot {

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

inline OpCase hadamard_case(int64_t n, int64_t n_blocks, int block) {
  return {
      "hadamard", fmt::format("hadamard {} x {} blocks of {}", n, n_blocks, block), kFloatError, 0, 0, [=](OpRig& rig) {
        const Tensor x = rig.values(n, n_blocks * block, 4.0f);
        return OpRun{[=, &rig] { rig.backend().hadamard(x, block); }, {x}};
      }};
}

// A rope whose frequencies take turns between the axes of the positions.
inline OpCase rope_axes_case(std::vector<SeqShape> seqs, int rot_dim, bool has_positions) {
  return {"rope_angles", fmt::format("rope of {} with axes, {}", rot_dim, has_positions), kFloatError, 0, 0,
          [=](OpRig& rig) {
            const int n = has_positions ? rig.begin_with_axes(seqs) : rig.begin(seqs);
            const Tensor angles = rig.output(n, rot_dim), freq = inverse_frequencies(rig, rot_dim);
            std::vector<int32_t> of_frequencies;
            for (int i = 0; i < rot_dim / 2; ++i) of_frequencies.push_back(i % kRopeAxes);
            const Tensor axes = rig.backend().alloc(DType::kI32, 1, rot_dim / 2);
            rig.backend().upload(axes, of_frequencies.data());
            return OpRun{[=, &rig] { rig.backend().rope_angles(angles, freq, 1.25f, axes); }, {angles}};
          }};
}

inline constexpr KvTypes kBytesAndNibbles{DType::kQ8_0, DType::kQ4_0};

struct AttentionShape {
  int n_heads, n_kv_heads, head_dim;
  KvTypes dtype;
  int block_size = 16;
  int window = 0;
  float softcap = 0;
  bool causal = true;
  bool sinks = false;
  bool latent = false;  // values are the keys
  bool images = false;  // some tokens see later ones
};

inline std::string label(const AttentionShape& a, const std::vector<SeqShape>& seqs) {
  std::string text = fmt::format("{}/{} heads of {} dtype {} block {}", a.n_heads, a.n_kv_heads, a.head_dim,
                                 static_cast<int>(a.dtype.keys), a.block_size);
  if (a.window > 0) text += fmt::format(" window {}", a.window);
  if (a.softcap > 0) text += fmt::format(" softcap {}", a.softcap);
  if (!a.causal) text += " not causal";
  if (a.sinks) text += " sinks";
  if (has_scales(a.dtype.keys)) text += " " + kv_type_name(a.dtype);
  if (a.latent) text += " latent";
  if (a.images) text += " images";
  for (size_t i = 0, n = 1; i < seqs.size(); i += n, n = 1) {
    while (i + n < seqs.size() && seqs[i + n].past == seqs[i].past && seqs[i + n].q_len == seqs[i].q_len) ++n;
    text += n == 1 ? " " : fmt::format(" {} x ", n);
    text += fmt::format("{}+{}", seqs[i].past, seqs[i].q_len);
  }
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
            if (a.images) rig.begin_with_images();
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
  using Types = std::initializer_list<KvTypes>;
  for (const KvTypes dtype :
       Types{DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, kBytesAndNibbles, DType::kE4M3})
    for (const int block_size : {1, 5, 8, 16, 24, 32, 64})
      cases.push_back(attention_case({.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .dtype = dtype, .block_size = block_size}, mixed));
  for (const int window : {0, 13})
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0})
      for (const int head_dim : {20, 64})
        cases.push_back(attention_case({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .dtype = dtype, .window = window, .images = true},
                                       {{0, 19}, {100, 1}, {37, 50}, {0, 130}}));
  for (const KvTypes dtype : Types{DType::kQ8_0, DType::kQ4_0, kBytesAndNibbles}) {
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
  // Several tokens far into a context, beside sequences of other lengths.
  const std::vector<SeqShape> deep = {{700, 5}, {0, 3}, {20, 1}}, deeper = {{10, 30}, {661, 70}, {0, 1}, {600, 7}};
  for (const int head_dim : {32, 64, 96, 128, 192, 256})
    for (const auto& seqs : {deep, deeper}) cases.push_back(attention_case({4, 1, head_dim}, seqs));
  for (const KvTypes dtype : Types{DType::kBF16, DType::kE4M3, DType::kQ8_0, DType::kQ4_0, kBytesAndNibbles})
    cases.push_back(attention_case({4, 1, 64, dtype}, deeper));
  cases.push_back(attention_case({.n_heads = 4, .n_kv_heads = 1, .head_dim = 64, .window = 550, .sinks = true}, deeper));
  cases.push_back(attention_case({.n_heads = 8, .n_kv_heads = 1, .head_dim = 128, .block_size = 32, .window = 500, .sinks = true}, deep));
  cases.push_back(attention_case({.n_heads = 7, .n_kv_heads = 1, .head_dim = 64, .softcap = 30.0f}, deep));
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
    cases.push_back(qkv_case({{4, 2, 96}, 256, Format::BF16, Format::BF16, Format::BF16, true, false, RopeLayout::kHalfSplit, 32}, seqs));
    cases.push_back(qkv_case({{3, 3, 64}, 256, Format::F16, Format::F16, Format::F16}, seqs));
    cases.push_back(qkv_case({{6, 2, 16}, 64, Format::F32, Format::F32, Format::F32, false, false, RopeLayout::kHalfSplit, 16, true}, seqs));
    cases.push_back(qkv_case({{2, 1, 32, DType::kF32}, 32, Format::F32, Format::F32, Format::F32}, seqs));
  }
}

// Writes the keys of sources to their cache, and attends to them. Sources are longer and shorter than the sequences.
inline OpCase source_case(std::vector<SeqShape> seqs, std::vector<int> lengths, AttentionShape a) {
  std::string name = label(a, seqs) + " sources";
  for (const int n : lengths) name += fmt::format(" {}", n);
  return {"attention", name, kFloatError, 0, 0, [=](OpRig& rig) {
            KvCache& kv = rig.sources_and_batch(seqs, lengths, {.n_layers = 1, .n_kv_heads = a.n_kv_heads,
                                                                .head_dim = a.head_dim, .block_size = a.block_size,
                                                                .dtype = a.dtype});
            const int n = rig.batch().n_tokens();
            const int64_t kv_dim = int64_t{a.n_kv_heads} * a.head_dim, q_dim = int64_t{a.n_heads} * a.head_dim;
            const Tensor k = rig.values(rig.batch().n_source_rows(), kv_dim),
                         v = rig.values(rig.batch().n_source_rows(), kv_dim), q = rig.values(n, q_dim),
                         y = rig.output(n, q_dim);
            const AttentionArgs args{.n_heads = a.n_heads, .n_kv_heads = a.n_kv_heads, .head_dim = a.head_dim,
                                     .scale = 1 / std::sqrt(static_cast<float>(a.head_dim))};
            return OpRun{[=, &rig, &kv] {
                           rig.backend().kv_write(kv, 0, k, v);
                           rig.backend().attention(y, q, kv, args);
                         },
                         {y}};
          }};
}

}  // namespace ingot
