// What this machine can do, for a choice of CPUs: bytes read from memory, and products of each kind on registers.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/rates.h"

namespace ingot::cpu {

struct MachinePeaks {
  Rate read;                   // GB/s
  std::vector<Rate> products;  // GFLOP/s, or 10^9 operations on integers a second, in the order of peak_products()
};

// The names of the products that this machine can compute, such as "bf16 tiles" and "f32 AVX2".
std::vector<std::string> product_names();

// Runs one thread on each of these CPUs; takes about half a second and 0.3 s for each product. Reads bytes_to_read
// bytes, which should be several times the size of the caches, in pieces of 4 MiB.
MachinePeaks measure_machine(std::span<const int> cpus, size_t bytes_to_read);

}  // namespace ingot::cpu
