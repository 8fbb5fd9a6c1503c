// The files of a split GGUF model: their names (`model-00001-of-00003.gguf`), and what must agree between them.
#pragma once
#include <cstdint>
#include <string>

#include "io/metadata.h"

namespace ingot {

// How many files the model has: 1 for a file that is not split (split.count 0 is what a merge leaves behind).
uint32_t split_count(const Metadata& metadata);

// The path of part i (from 0) beside `path`, which is any part. Throws Error when the name of `path` does not follow
// the pattern for n_parts, or when the part lies outside the folder (a symbolic link may only lead where `path` itself
// lies).
std::string split_path(const std::string& path, uint32_t part, uint32_t n_parts);

// Throws Error, naming the file of `part`, when it is not number `index` of `n_parts`, or when a key that it shares
// with the first part has another value there (it is from another model).
void check_part(const Metadata& first, const Metadata& part, uint32_t index, uint32_t n_parts);

}  // namespace ingot
