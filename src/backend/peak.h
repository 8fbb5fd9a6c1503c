// What this machine can do at most, measured with the cpu backend's own instructions: the 100 per cent of benchmark tables.
#pragma once
#include <string>

namespace ingot {

struct MachinePeak {
  double read_gb_s = 0;     // 10^9 bytes a second from memory, all threads together
  double f32_gflop_s = 0;   // fused multiply-adds count two
  double int8_gop_s = 0;    // byte dot products, likewise
};

// Takes about half a second and 256 MiB. n_threads and isa as in BackendOptions.
MachinePeak measure_peak(int n_threads = 0, const std::string& isa = "");

}  // namespace ingot
