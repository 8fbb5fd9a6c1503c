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
  double tolerance;    // of the root mean square error, relative to the output's own; an element may err by 10 times that
  double flops;        // of one run
  double bytes;        // weights, activations and cache that one run must read or write once
  std::function<OpRun(OpRig&)> prepare;
  double slack = 0;    // absolute error that an element may have in addition: see kF16Flip
  double loose = 0;    // the tolerance of backends that round weights or activations of any inputs, if it is larger
};

inline std::vector<Format> all_formats() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(static_cast<Format>(i));
  return formats;
}

}  // namespace ingot
