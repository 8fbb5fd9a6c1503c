// Says what a file really is when it is not the model file that was expected: a Git LFS pointer, a web page, a zip...
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

// The first bytes are enough; `n_bytes` is the size of the whole file. Never empty: "a Git LFS pointer of 134 bytes:
// ...".
std::string describe_file(std::span<const uint8_t> head, uint64_t n_bytes);

}  // namespace ingot
