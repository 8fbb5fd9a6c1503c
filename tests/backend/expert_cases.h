// The lines of the op table for mixtures of experts.
#pragma once
#include <algorithm>

#include "op_case.h"

namespace ingot {

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

inline OpCase moe_route_case(int64_t n, int64_t n_experts, RouteArgs args, bool bias = false, bool scales = false) {
  return {"moe_route",
          fmt::format("moe_route {} of {} x {} scoring {}{} groups {}/{}{}{}", args.n_used, n_experts, n,
                      static_cast<int>(args.scoring), args.normalize ? " normalized" : "", args.n_groups_used,
                      args.n_groups, (bias ? " bias" : "") + std::string(scales ? " scales" : ""), label_of_own(args.first_own, args.n_own)),
          kFloatError,
          0,
          4.0 * static_cast<double>(n * n_experts),
          [=](OpRig& rig) {
            RouteArgs with_bias = args;
            if (bias) with_bias.bias = rig.values(1, n_experts, 0.2f);
            if (scales) with_bias.expert_scale = rig.values(1, n_experts, 2.0f);
            const Tensor logits = rig.values(n, n_experts, 2.0f), weights = rig.output(n, args.n_used);
            const Tensor ids = rig.experts(n, args.n_used, n_experts);
            return OpRun{[=, &rig] { rig.backend().moe_route(ids, weights, logits, with_bias); }, {weights}};
          }};
}

// x has a row for each token, or for each token and expert.
inline OpCase moe_matmul_case(Format format, const ExpertShape& s, bool shared_x, bool bias) {
  return {"moe_matmul",
          label("moe_matmul", format, s) + (shared_x ? " shared" : "") + (bias ? " bias" : ""),
          weight_error(format),
          2.0 * static_cast<double>(s.n * s.n_used * s.dim * s.ffn),
          expert_bytes(format, s, 1),
          [=](OpRig& rig) {
            const int64_t rows = s.n * s.n_used;
            const Tensor x = rig.activations(shared_x ? s.n : rows, s.dim), y = rig.output(rows, s.ffn);
            const Tensor ids = rig.experts(s.n, s.n_used, s.n_experts),
                         b = bias ? rig.values(s.n_experts, s.ffn) : Tensor{};
            const Weight& w = rig.weight(format, s.ffn, s.dim, s.n_experts);
            return OpRun{[=, &rig, &w] { rig.backend().moe_matmul(y, x, w, ids, b); }, {y}};
          },
          0,
          format_error(format)};
}

// Rows of other ranks' experts are not computed, and the sum leaves them out, whatever they hold. Row k of y has a
// weight that other rows of the token do not have.
inline OpCase own_rows_case(Format format, const ExpertShape& s, bool shared_x, bool bias) {
  return {"moe_matmul",
          label("moe_matmul", format, s) + " and combine" + (shared_x ? " shared" : "") + (bias ? " bias" : ""),
          weight_error(format),
          2.0 * static_cast<double>(s.n * s.n_used * s.dim * s.ffn),
          expert_bytes(format, s, 1),
          [=](OpRig& rig) {
            const int64_t rows = s.n * s.n_used;
            const Tensor x = rig.activations(shared_x ? s.n : rows, s.dim), y = rig.output(rows, s.ffn);
            const Tensor ids = rig.experts(s.n, s.n_used, s.n_experts, s.n_own),
                         b = bias ? rig.values(s.n_own, s.ffn) : Tensor{};
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
          0,
          format_error(format)};
}

inline OpCase moe_combine_case(int64_t n, int64_t n_used, int64_t dim) {
  return {"moe_combine",
          fmt::format("moe_combine {} x {} of {}", n, n_used, dim),
          kFloatError,
          2.0 * static_cast<double>(n * n_used * dim),
          4.0 * static_cast<double>(n * (n_used + 2) * dim),
          [=](OpRig& rig) {
            const Tensor residual = rig.values(n, dim), y = rig.values(n * n_used, dim),
                         weights = rig.values(n, n_used);
            return OpRun{[=, &rig] { rig.backend().moe_combine(residual, y, weights); }, {residual}};
          }};
}

// All backends hold the router's numbers exactly, so they choose the same experts. The values between gate and down are
// rounded with their own scales.
inline OpCase moe_case(Format gate, Format down, const ExpertShape& s, Activation act, bool bias = false,
                       bool own_router_x = false) {
  return {
      "moe",
      label("moe", gate, s) +
          fmt::format(" down {} act {}{}", info(down).name, static_cast<int>(act),
                      (bias ? " bias" : "") + std::string(own_router_x ? " router's own input" : "")),
      3 * std::max(format_error(gate), format_error(down)),
      6.0 * static_cast<double>(s.n * s.n_used * s.dim * s.ffn),
      expert_bytes(gate, s, 2) + expert_bytes(down, s, 1),
      [=](OpRig& rig) {
        const int64_t rows = s.n * s.n_used;
        MoeArgs a{.residual = rig.values(s.n, s.dim),
                  .x = rig.activations(s.n, s.dim),
                  .w_router = &rig.weight(Format::BF16, s.n_experts, s.dim),
                  .b_router = bias ? rig.values(1, s.n_experts) : Tensor{},
                  .route = {.n_used = static_cast<int>(s.n_used),
                            .normalize = true,
                            .scale = 1.5f,
                            .first_own = s.first_own,
                            .n_own = s.n_own},
                  .w_gate = &rig.weight(gate, s.ffn, s.dim, s.n_here()),
                  .w_up = &rig.weight(gate, s.ffn, s.dim, s.n_here()),
                  .w_down = &rig.weight(down, s.dim, s.ffn, s.n_here()),
                  .act = act};
        if (own_router_x) a.router_x = rig.activations(s.n, s.dim);
        if (bias)
          a.b_gate = rig.values(s.n_here(), s.ffn), a.b_up = rig.values(s.n_here(), s.ffn),
          a.b_down = rig.values(s.n_here(), s.dim);
        a.logits = rig.output(s.n, s.n_experts), a.weights = rig.output(s.n, s.n_used),
        a.ids = rig.experts(s.n, s.n_used, s.n_experts);
        a.gate = rig.output(rows, s.ffn), a.up = rig.output(rows, s.ffn), a.out = rig.output(rows, s.dim);
        return OpRun{[=, &rig] { rig.unfused() ? rig.backend().Backend::moe(a) : rig.backend().moe(a); }, {a.residual}};
      }};
}

inline void add_expert_cases(std::vector<OpCase>& cases) {
  for (const int64_t n : {1, 7, 40}) {
    cases.push_back(moe_route_case(n, 8, {.n_used = 2, .normalize = true}));
    cases.push_back(moe_route_case(n, 60, {.n_used = 4}));
    cases.push_back(moe_route_case(n, 40, {.n_used = 3, .normalize = true}, false, true));
    cases.push_back(moe_route_case(n, 40, {.n_used = 3, .first_own = 9, .n_own = 20}, false, true));
    cases.push_back(moe_route_case(n, 16, {.n_used = 2, .scoring = Scoring::kSparseMixer}));
    cases.push_back(moe_route_case(n, 70, {.n_used = 3, .scoring = Scoring::kSparseMixer, .first_own = 20, .n_own = 30}));
    cases.push_back(moe_case(Format::Q4_0, Format::Q8_0, {n, 2, 9, 64, 96}, Activation::kGeluTanh, false, true));
    cases.push_back(moe_case(Format::F16, Format::IQ4_NL, {n, 3, 5, 64, 96}, Activation::kGeluTanh, false, true));
    cases.push_back(moe_route_case(n, 1, {.n_used = 1, .scoring = Scoring::kSigmoid}));
    cases.push_back(moe_route_case(n, 64, {.n_used = 6, .scale = 2.5f, .n_groups = 8, .n_groups_used = 3}));
    cases.push_back(moe_route_case(n, 32,
                                   {.n_used = 4,
                                    .scoring = Scoring::kSigmoid,
                                    .normalize = true,
                                    .scale = 2.5f,
                                    .n_groups = 4,
                                    .n_groups_used = 2},
                                   true));
    cases.push_back(moe_route_case(n, 60, {.n_used = 4, .normalize = true, .first_own = 13, .n_own = 22}));
    cases.push_back(moe_route_case(
        n, 8, {.n_used = 3, .scoring = Scoring::kSigmoid, .n_groups = 4, .n_groups_used = 2, .n_own = 5}, true));
    for (const int64_t dim : {1, 33, 512}) cases.push_back(moe_combine_case(n, 3, dim));
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
  // Experts with tens to hundreds of rows each.
  for (const int64_t n : {60, 150, 340}) {
    cases.push_back(moe_case(Format::Q4_0, Format::Q4_0, {n, 3, 4, 160, 96}, Activation::kSilu));
    cases.push_back(moe_case(Format::MXFP4, Format::MXFP4, {n, 2, 3, 64, 160}, Activation::kClampedSwiglu, true));
    cases.push_back(moe_case(Format::Q8_0, Format::F16, {n, 3, 4, 64, 96}, Activation::kSilu));
    cases.push_back(moe_matmul_case(Format::Q8_0, {n, 3, 4, 96, 72}, n == 60, n == 150));
    cases.push_back(own_rows_case(Format::IQ4_NL, {n, 3, 7, 160, 264, 0, 3}, n == 60, n == 150));
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

}  // namespace ingot
