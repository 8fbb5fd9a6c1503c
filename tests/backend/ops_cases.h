// The op table: every op of a backend, with the formats and edge shapes that matter, as data. ops_test.cc runs each
// case on a backend and on ref, and compares the results; bench/ops_bench.cc times larger cases from the same
// functions. A new op needs a new function here and its lines in all_cases() (docs/add-an-op.md).
#pragma once
#include "attention_cases.h"
#include "expert_cases.h"
#include "op_case.h"

namespace ingot {

struct MatmulShape {
  int64_t n;      // tokens
  int64_t n_out;
  int64_t n_in;
};

inline std::string label(const char* op, Format format, const MatmulShape& s) {
  return fmt::format("{} {} [{} x {}] x {}", op, info(format).name, s.n_out, s.n_in, s.n);
}
inline double matmul_bytes(Format format, const MatmulShape& s, int n_weights = 1) {
  return static_cast<double>(n_weights) * static_cast<double>(s.n_out) *
             static_cast<double>(row_bytes(format, s.n_in)) +
         4.0 * static_cast<double>(s.n) * static_cast<double>(s.n_in + s.n_out);
}
inline double matmul_flops(const MatmulShape& s) {
  return 2.0 * static_cast<double>(s.n) * static_cast<double>(s.n_out) * static_cast<double>(s.n_in);
}

inline OpCase matmul_case(Format format, MatmulShape s, bool bias = false) {
  return {"matmul",
          label("matmul", format, s) + (bias ? " bias" : ""),
          weight_error(format),
          matmul_flops(s),
          matmul_bytes(format, s),
          [=](OpRig& rig) {
            const Tensor x = rig.activations(s.n, s.n_in), b = bias ? rig.values(1, s.n_out) : Tensor{};
            const Tensor y = rig.output(s.n, s.n_out);
            const Weight& w = rig.weight(format, s.n_out, s.n_in);
            return OpRun{[=, &rig, &w] { rig.backend().matmul(y, x, w, b); }, {y}};
          },
          0,
          format_error(format)};
}

// Normal activations, which may have to be rounded.
inline OpCase rounding_case(Format format, MatmulShape s) {
  return {"matmul",
          label("matmul", format, s) + " rounding",
          format_error(format),
          matmul_flops(s),
          matmul_bytes(format, s),
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
  return {"gate_up",
          label("gate_up", gate, s) +
              fmt::format(" up {} act {}{}", info(up).name, static_cast<int>(act), bias ? " bias" : ""),
          2.5 * std::max(weight_error(gate), weight_error(up)),
          2 * matmul_flops(s),
          matmul_bytes(gate, s, 2),
          [=](OpRig& rig) {
            const Tensor x = rig.activations(s.n, s.n_in), y = rig.output(s.n, s.n_out);
            const Tensor bg = bias ? rig.values(1, s.n_out) : Tensor{}, bu = bias ? rig.values(1, s.n_out) : Tensor{};
            const Weight &wg = rig.weight(gate, s.n_out, s.n_in), &wu = rig.weight(up, s.n_out, s.n_in);
            const GateUpArgs args{.y = y,
                                  .x = x,
                                  .norm = {},
                                  .normed = {},
                                  .w_gate = &wg,
                                  .w_up = &wu,
                                  .b_gate = bg,
                                  .b_up = bu,
                                  .act = act};
            return OpRun{[=, &rig] {
                           if (rig.unfused()) return rig.backend().Backend::gate_up(args);
                           rig.backend().gate_up(args);
                         },
                         {y}};
          },
          0,
          2.5 * std::max(format_error(gate), format_error(up))};
}

// Products of two inputs, with every end that a product may have. `other`: the format of a third of the weights.
inline OpCase matmuls_case(Format format, Format other, MatmulShape s) {
  return {"matmuls",
          label("matmuls", format, s) + fmt::format(" and {}", info(other).name),
          2.5 * std::max(weight_error(format), weight_error(other)),
          5 * matmul_flops(s),
          matmul_bytes(format, s, 5),
          [=](OpRig& rig) {
            std::vector<Product> products;
            std::vector<Tensor> outputs;
            Backend& backend = rig.backend();
            const auto input = [&](int64_t n_in) {
              const Tensor drawn = rig.activations(s.n, n_in), x = backend.alloc(backend.act_dtype(), s.n, n_in);
              backend.copy(x, drawn);
              return x;
            };
            const Tensor wide = input(s.n_in), narrow = input(s.n_in / 2);
            const auto add = [&](const Tensor& x, Format of, int64_t n_out, bool bias) -> Product& {
              outputs.push_back(rig.output(s.n, n_out));
              products.push_back({.y = outputs.back(), .x = x, .w = &rig.weight(of, n_out, x.cols)});
              if (bias) products.back().bias = rig.values(1, n_out);
              return products.back();
            };
            add(wide, format, s.n_out, false);
            add(wide, format, s.n_out + 9, true);
            add(narrow, other, s.n_out, false).act = Activation::kSigmoid;
            add(wide, other, 7, true).cap = 1;
            add(narrow, format, s.n_out, true).act = Activation::kSquaredRelu;
            return OpRun{[=, &rig] {
                           if (rig.unfused()) return rig.backend().Backend::matmuls(products);
                           rig.backend().matmuls(products);
                         },
                         outputs};
          },
          0,
          2.5 * std::max(format_error(format), format_error(other))};
}

inline OpCase norm_matmul_case(Format format, MatmulShape s) {
  // The norm's weights spread the values, so the largest of a group is further from most of the others.
  return {"norm_matmul",
          label("norm_matmul", format, s),
          1.5 * format_error(format),
          matmul_flops(s),
          matmul_bytes(format, s),
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
  return {"norm",
          fmt::format("norm {} x {} kind {}{}{}", n, dim, static_cast<int>(kind), bias ? " bias" : "",
                      in_place ? " in place" : ""),
          kFloatError,
          4.0 * static_cast<double>(n * dim),
          8.0 * static_cast<double>(n * dim),
          [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 3.0f, 0.5f), y = in_place ? x : rig.output(n, dim);
            const NormArgs args = rig.norm(dim, kind, bias);
            return OpRun{[=, &rig] { rig.backend().norm(y, x, args); }, {y}};
          }};
}

inline OpCase add_case(int64_t n, int64_t dim) {
  return {"add",
          fmt::format("add {} x {}", n, dim),
          1e-7,
          static_cast<double>(n * dim),
          12.0 * static_cast<double>(n * dim),
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

inline OpCase act_case(int64_t n, int64_t dim, Activation act, bool has_bias) {
  return {"act",
          fmt::format("act {} x {} of kind {}{}", n, dim, static_cast<int>(act), has_bias ? " bias" : ""),
          kFloatError,
          10.0 * static_cast<double>(n * dim),
          8.0 * static_cast<double>(n * dim),
          [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 3.0f), bias = has_bias ? rig.values(1, dim) : Tensor{};
            return OpRun{[=, &rig] { rig.backend().act(x, act, bias); }, {x}};
          }};
}

inline OpCase add_positions_case(std::vector<SeqShape> seqs, int64_t dim, int64_t n_rows) {
  return {"add_positions",
          fmt::format("add_positions {} sequences x {} of {} rows", seqs.size(), dim, n_rows),
          kFloatError,
          0,
          0,
          [=](OpRig& rig) {
            const Tensor table = rig.values(n_rows, dim), x = rig.values(rig.begin(seqs), dim);
            return OpRun{[=, &rig] { rig.backend().add_positions(x, table); }, {x}};
          }};
}

inline OpCase cut_patches_case(int rows, int columns, int patch) {
  return {"cut_patches", fmt::format("cut_patches {} of {} x {}", patch, rows, columns), 0, 0, 0, [=](OpRig& rig) {
            const int64_t n = int64_t{rows} * columns, n_bytes = 3 * n * patch * patch;
            const PatchArgs args{.rgb = rig.integers(1, (n_bytes + 3) / 4, INT32_MIN, INT32_MAX),
                                 .values = rig.values(3, 256),
                                 .places = rig.integers(1, n, 0, n - 1),
                                 .width = columns * patch,
                                 .patch = patch};
            const Tensor y = rig.output(n, 3 * patch * patch);
            return OpRun{[=, &rig] { rig.backend().cut_patches(y, args); }, {y}};
          }};
}

inline OpCase add_mixed_rows_case(int64_t n, int64_t n_each, int64_t dim) {
  return {"add_mixed_rows", fmt::format("add_mixed_rows {} x {} of {}", n, dim, n_each), kFloatError, 0, 0,
          [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim), table = rig.values(9, dim), rows = rig.integers(n, n_each, 0, 8),
                         factors = rig.values(n, n_each);
            return OpRun{[=, &rig] { rig.backend().add_mixed_rows(x, table, rows, factors); }, {x}};
          }};
}

inline OpCase mean_rows_case(int64_t n, int64_t n_each, int64_t dim) {
  return {"mean_rows", fmt::format("mean_rows {} of {} x {}", n, n_each, dim), kFloatError, 0, 0, [=](OpRig& rig) {
            const Tensor x = rig.values(n * n_each, dim, 1.0f, 0.5f), y = rig.output(n, dim);
            return OpRun{[=, &rig] { rig.backend().mean_rows(y, x); }, {y}};
          }};
}

inline OpCase pool_case(std::vector<SeqShape> seqs, int64_t dim, Pooling pooling) {
  return {"pool",
          fmt::format("pool {} sequences x {} by {}", seqs.size(), dim, static_cast<int>(pooling)),
          kFloatError,
          0,
          0,
          [=](OpRig& rig) {
            const Tensor x = rig.values(rig.begin(seqs), dim, 1.0f, 0.5f),
                         y = rig.output(static_cast<int64_t>(seqs.size()), dim);
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

inline OpCase clamp_case(int64_t n, int64_t dim) {
  return {"clamp", fmt::format("clamp {} x {}", n, dim), 0, 0, 0, [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 2.0f);
            return OpRun{[=, &rig] { rig.backend().clamp(x, -0.5f, 1.25f); }, {x}};
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

inline OpCase add_normed_case(int64_t n, int64_t dim, NormKind kind, float factor) {
  return {"add_normed", fmt::format("add_normed {} x {} kind {} factor {}", n, dim, static_cast<int>(kind), factor),
          kFloatError, 6.0 * static_cast<double>(n * dim), 12.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim), y = rig.values(n, dim, 3.0f, 0.5f);
            const NormArgs args = rig.norm(dim, kind, kind == NormKind::kLayer);
            return OpRun{[=, &rig] {
                           if (rig.unfused()) return rig.backend().Backend::add_normed(x, y, args, factor);
                           rig.backend().add_normed(x, y, args, factor);
                         },
                         {x}};
          }};
}

// Rows are parts of longer rows, as in a layer.
inline OpCase gated_norm_case(int64_t n, int64_t n_groups, int64_t width) {
  const int64_t dim = n_groups * width;
  return {"gated_norm", fmt::format("gated_norm {} x {} groups of {}", n, n_groups, width), kFloatError,
          8.0 * static_cast<double>(n * dim), 12.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor columns = rig.values(n, 2 * dim + 4), y = rig.output(n, dim);
            const Tensor gate = columns.slice_cols(0, dim), x = columns.slice_cols(dim, dim);
            NormArgs args = rig.norm(dim, NormKind::kRms, false);
            args.weight = args.weight.reshape(n_groups, width);
            return OpRun{[=, &rig] {
                           if (rig.unfused()) return rig.backend().Backend::gated_norm(y, x, gate, args);
                           rig.backend().gated_norm(y, x, gate, args);
                         },
                         {y}};
          }};
}

// One norm of each row without a weight.
inline OpCase plain_norm_case(int64_t n, int64_t dim) {
  return {"norm", fmt::format("norm without a weight {} x {}", n, dim), kFloatError, 0, 8.0 * static_cast<double>(n * dim),
          [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim), y = rig.output(n, dim);
            return OpRun{[=, &rig] { rig.backend().norm(y, x, {.eps = 1e-6f}); }, {y}};
          }};
}

inline OpCase scale_by_position_case(std::vector<SeqShape> seqs, int64_t dim, PositionScale args) {
  return {"scale_by_position", fmt::format("scale_by_position of {} x {} period {}", seqs.size(), dim, args.period),
          kFloatError, 0, 8.0 * static_cast<double>(dim), [=](OpRig& rig) {
            const Tensor x = rig.values(rig.begin(seqs), dim);
            return OpRun{[=, &rig] { rig.backend().scale_by_position(x, args); }, {x}};
          }};
}

inline OpCase scale_groups_case(int64_t n, int64_t n_groups, int64_t size, GroupFactor kind, bool one_row = false) {
  constexpr const char* kNames[] = {"", " softplus", " sigmoid"};
  return {"scale_groups",
          fmt::format("scale_groups {} x {} of {}{}{}", n, n_groups, size, kNames[static_cast<int>(kind)],
                      one_row ? " one row" : ""),
          kFloatError, 0, 8.0 * static_cast<double>(n * n_groups * size), [=](OpRig& rig) {
            const Tensor x = rig.values(n, n_groups * size), factors = rig.values(one_row ? 1 : n, n_groups, 3.0f);
            return OpRun{[=, &rig] { rig.backend().scale_groups(x, factors, kind); }, {x}};
          }};
}

inline OpCase match_size_case(int64_t n, int64_t m, int64_t dim) {
  return {"match_size", fmt::format("match_size {} of {} x {}", m, n, dim), kFloatError, 0,
          12.0 * static_cast<double>(n * m * dim), [=](OpRig& rig) {
            const Tensor y = rig.values(n * m, dim, 3.0f), x = rig.values(n, dim);
            return OpRun{[=, &rig] { rig.backend().match_size(y, x); }, {y}};
          }};
}

inline OpCase mix_streams_case(int64_t n, int64_t m, int64_t dim) {
  return {"mix_streams", fmt::format("mix_streams {} of {} x {}", m, n, dim), kFloatError, 0,
          8.0 * static_cast<double>(n * m * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim), streams = rig.values(n, (m - 1) * dim), coefs = rig.values(n, m * m);
            return OpRun{[=, &rig] { rig.backend().mix_streams(x, streams, coefs); }, {x, streams}};
          }};
}

inline OpCase correct_streams_case(int64_t n, int64_t m, int64_t dim) {
  return {"correct_streams", fmt::format("correct_streams {} of {} x {}", m, n, dim), kFloatError, 0,
          8.0 * static_cast<double>(n * m * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim), predicted = rig.values(n, dim),
                         streams = rig.values(n, (m - 1) * dim), coefs = rig.values(n, m);
            return OpRun{[=, &rig] { rig.backend().correct_streams(x, predicted, streams, coefs); }, {x, streams}};
          }};
}

inline OpCase keep_above_case(int64_t n, int64_t dim, float deviations) {
  return {"keep_above", fmt::format("keep_above {} x {} by {}", n, dim, deviations), kFloatError, 0,
          8.0 * static_cast<double>(n * dim), [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 2.0f, 0.3f);
            return OpRun{[=, &rig] { rig.backend().keep_above(x, deviations); }, {x}};
          }};
}

inline OpCase xielu_case(int64_t n, int64_t dim) {
  return {"xielu", fmt::format("xielu {} x {}", n, dim), kFloatError, 0, 8.0 * static_cast<double>(n * dim),
          [=](OpRig& rig) {
            const Tensor x = rig.values(n, dim, 2.0f);
            return OpRun{[=, &rig] { rig.backend().xielu(x, {.plus = 0.9f, .minus = 1.2f}); }, {x}};
          }};
}

// ---- the table ----

inline constexpr Activation kActivations[] = {Activation::kSilu,        Activation::kGeluTanh,
                                              Activation::kGelu,        Activation::kClampedSwiglu,
                                              Activation::kSquaredRelu, Activation::kSigmoid};

inline void add_matmul_cases(std::vector<OpCase>& cases) {
  for (const Format format : all_formats()) {
    const int64_t block = info(format).block_size, k = std::max<int64_t>(block, 32);
    const MatmulShape shapes[] = {{1, 1, k},    {1, 33, 2 * k},  {3, 17, k},      {2, 64, 4 * k},   {4, 40, 2 * k},
                                  {5, 96, k},   {6, 16, 3 * k},  {7, 48, k},      {8, 31, k},       {9, 32, k},
                                  {10, 35, k},  {11, 7, k},      {13, 65, 3 * k}, {17, 160, 2 * k}, {33, 72, k},
                                  {64, 257, k}, {100, 100, 512}, {1, 1000, 1024}};
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
  for (const Format format : {Format::F16, Format::BF16, Format::Q8_0, Format::IQ4_NL, Format::IQ4_XS, Format::MXFP4,
                              Format::AFFINE8_32, Format::AFFINE8_64, Format::F8_E4M3_32}) {
    cases.push_back(matmul_case(format, {1100, 40, 512}, true));
    cases.push_back(gate_up_case(format, format, {61, 90, 256}, Activation::kSilu, true));
  }
  for (const Format format : {Format::Q4_0, Format::Q4_K, Format::Q6_K})
    cases.push_back(gate_up_case(format, format, {140, 150, 2560}, Activation::kSilu, true));
  // A batch of sequences: one format for each way in which a device may store its codes and scales.
  for (const Format format : {Format::Q4_0, Format::Q4_1, Format::Q8_0, Format::Q5_1, Format::Q6_K, Format::Q2_K,
                              Format::IQ4_NL, Format::MXFP4, Format::NVFP4, Format::F8_E4M3_32}) {
    cases.push_back(matmul_add_case(format, {33, 1040, 4096}, true));
    cases.push_back(gate_up_case(format, format, {20, 1024, 4096}, Activation::kSilu));
  }
  for (const int64_t n : {1, 14, 40}) {
    cases.push_back(gate_up_case(Format::Q4_K, Format::Q6_K, {n, 200, 512}, Activation::kSilu));
    cases.push_back(gate_up_case(Format::F16, Format::Q4_0, {n, 96, 64}, Activation::kSilu));
    cases.push_back(matmuls_case(Format::F16, Format::Q4_0, {n, 96, 128}));
    cases.push_back(matmuls_case(Format::F16, Format::F16, {n, 200, 4096}));
    cases.push_back(matmuls_case(Format::Q4_K, Format::F16, {n, 200, 512}));
    cases.push_back(gate_up_case(Format::BF16, Format::F32, {n, 96, 64}, Activation::kSilu));
  }
}

inline void add_row_cases(std::vector<OpCase>& cases) {
  for (const int64_t n : {1, 2, 33})
    for (const int64_t dim : {1, 15, 16, 64, 100, 896, 4097}) {
      cases.push_back(norm_case(n, dim, NormKind::kRms, dim == 64, n == 2));
      if (dim > 1)
        cases.push_back(norm_case(n, dim, NormKind::kLayer, dim != 64, n != 2));  // one value: 0 / 0 except for eps
      cases.push_back(add_case(n, dim));
      cases.push_back(add_normed_case(n, dim, NormKind::kRms, n == 2 ? 0.3f : 1.0f));
      if (dim > 1) cases.push_back(add_normed_case(n, dim, NormKind::kLayer, n == 1 ? 1.7f : 1.0f));
      for (const auto act : kActivations)
        cases.push_back(act_mul_case(n, dim, act, n == 2));
      cases.push_back(scale_case(n, dim, 0.3f, 0.0f));
      cases.push_back(scale_case(n, dim, 0.7f, 30.0f));
    }
  for (const int64_t n : {1, 5})
    for (const int64_t n_groups : {1, 3, 8})
      for (const int64_t width : {1, 33, 128, 700, 2052, 9000}) cases.push_back(gated_norm_case(n, n_groups, width));
  for (const int64_t n : {1, 7, 40})
    for (const int64_t dim : {1, 33, 512}) cases.push_back(copy_case(n, dim));
  cases.push_back(scale_case(3, 50000, 1.0f, 25.0f));
  for (const int64_t dim : {1, 8, 15, 64, 256, 897}) {
    cases.push_back(plain_norm_case(3, dim));
    cases.push_back(clamp_case(3, dim));
    cases.push_back(xielu_case(5, dim));
    for (const int64_t m : {2, 4, 8}) {
      cases.push_back(match_size_case(3, m - 1, dim));
      cases.push_back(mix_streams_case(3, m, dim));
      cases.push_back(correct_streams_case(3, m, dim));
    }
    cases.push_back(keep_above_case(4, dim, 0.5f));
    cases.push_back(keep_above_case(2, dim, -1.0f));
    cases.push_back(scale_by_position_case({{0, 3}, {700, 1}, {90, 20}}, dim, {.beta = 0.3f, .period = 16}));
    cases.push_back(scale_by_position_case({{5, 2}}, dim, {.beta = 0.1f, .period = 3, .offset = 1}));
    for (const GroupFactor kind : {GroupFactor::kAsIs, GroupFactor::kSoftplus, GroupFactor::kSigmoid}) {
      cases.push_back(scale_groups_case(4, 1, dim, kind));
      cases.push_back(scale_groups_case(9, 6, dim, kind));
      cases.push_back(scale_groups_case(5, dim, 1, kind, true));
    }
  }
  cases.push_back(gather_case({{0, 4}, {2, 1}, {0, 9}}, 70));
  for (const auto layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved})
    for (const int head_dim : {16, 64, 80, 96, 128, 256})
      for (const int rot_dim : {head_dim, head_dim / 2, 6})
        cases.push_back(rope_case({{0, 3}, {700, 1}, {5, 9}}, 3, head_dim, rot_dim, layout));
  for (const int block : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512})
    for (const int64_t n_blocks : {1, 3, 9}) cases.push_back(hadamard_case(5, n_blocks, block));
  cases.push_back(hadamard_case(1, 1, 1));
  cases.push_back(hadamard_case(70, 64, 128));
  for (const auto dtype : {DType::kF16, DType::kF32})
    for (const auto& [heads, kv_heads, head_dim] : {std::array{6, 6, 64}, {8, 2, 128}, {3, 1, 80}}) {
      const AttentionShape shape{heads, kv_heads, head_dim, dtype};
      cases.push_back(source_case({{0, 3}, {9, 1}, {40, 1}}, {17, 1, 90}, shape));
      cases.push_back(source_case({{700, 1}, {0, 5}}, {1500, 33}, shape));
    }
  for (const bool has_positions : {false, true}) cases.push_back(rope_axes_case({{0, 3}, {700, 1}, {5, 9}}, 64, has_positions));
}

// Caches of two types are for GPUs; there, heads of types with scales have a multiple of 8 columns.
inline bool runs_on(const Backend& backend, const OpCase& c) {
  const auto has = [&](const char* text) { return c.name.find(text) != c.name.npos; };
  if (has("q8_0/q4_0") && !backend.keeps_kv_as(kBytesAndNibbles)) return false;
  return (!has(" q8_0") && !has(" q4_0")) || !has("heads of 20 ") || backend.is_host();
}

inline void add_encoder_cases(std::vector<OpCase>& cases) {
  const std::vector<SeqShape> seqs = {{0, 5}, {0, 1}, {0, 19}};
  for (const int64_t dim : {1, 31, 64, 257}) {
    for (const Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kSquaredRelu,
                                 Activation::kSigmoid})
      for (const bool has_bias : {false, true}) cases.push_back(act_case(3, dim, act, has_bias));
    for (const int64_t n_rows : {1, 19}) cases.push_back(add_positions_case(seqs, dim, n_rows));
    for (const Pooling pooling : {Pooling::kCls, Pooling::kMean, Pooling::kLast})
      cases.push_back(pool_case(seqs, dim, pooling));
    for (const int64_t n_each : {1, 9}) cases.push_back(mean_rows_case(5, n_each, dim));
  }
  for (const int patch : {1, 7, 16}) cases.push_back(cut_patches_case(3, 5, patch));
  for (const int64_t n_each : {1, 4}) cases.push_back(add_mixed_rows_case(20, n_each, 300));
  // Many rows, as in vision towers.
  for (const int64_t dim : {64, 300, 768, 1030, 1152, 1536, 2560, 5000}) {
    for (const int64_t n : {1, 70}) cases.push_back(norm_case(n, dim, NormKind::kLayer, true, false));
    cases.push_back(act_case(40, dim, Activation::kGeluTanh, true));
    cases.push_back(mean_rows_case(20, 4, dim));
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
