// Describes a file that is not the expected model file: a Git LFS pointer, a web page, a zip archive...
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

// `head`: the first bytes of the file; `n_bytes`: the size of the whole file. Never empty: "a Git LFS pointer of 134
// bytes: ...".
std::string describe_file(std::span<const uint8_t> head, uint64_t n_bytes);

}  // namespace ingot
