// The seed of a test that draws its inputs: INGOT_TEST_SEED if it is set, otherwise another one in each run. CI sets
// it, so that only a change can fail a run there.
#pragma once
#include <cstdlib>
#include <random>

namespace ingot {

inline unsigned test_seed() {
  const char* given = std::getenv("INGOT_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
}

}  // namespace ingot
