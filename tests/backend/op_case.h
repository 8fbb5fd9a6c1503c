// OpCase: one line of the op table (ops_cases.h).
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
  double tolerance;    // of the root mean square error, relative to the output's; an element may err by 10 times that
  double flops;        // of one run
  double bytes;        // weights, activations and cache that one run must read or write once
  std::function<OpRun(OpRig&)> prepare;
  double slack = 0;    // absolute error that an element may have in addition: see kF16Flip
  double loose = 0;    // the tolerance of backends that round weights or activations of any inputs, if it is larger
};

// Enough for every case.
inline constexpr StepLimits kCaseLimits = {.max_tokens = 512,
                                           .max_seqs = 8,
                                           .max_logits = 8,
                                           .max_kv_len = 4096,
                                           .max_width = 4100,
                                           .max_heads = 64,
                                           .head_dim = 256,
                                           .n_vocab = 16};

using Results = std::vector<std::vector<float>>;

// The case's outputs on a backend that has reserved memory for it.
inline Results run_case(const OpCase& c, Backend& backend, uint64_t seed, bool unfused) {
  OpRig rig(backend, seed, unfused);
  const OpRun op = c.prepare(rig);
  op.run();
  Results results;
  for (const Tensor& t : op.outputs) {
    results.emplace_back(t.rows * t.cols);
    backend.download(results.back().data(), t);
  }
  return results;
}

inline std::vector<Format> all_formats() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(static_cast<Format>(i));
  return formats;
}

}  // namespace ingot
