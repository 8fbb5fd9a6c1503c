// The files of a split GGUF model: their names (`model-00001-of-00003.gguf`), and the keys that must agree.
#pragma once
#include <cstdint>
#include <string>

#include "io/metadata.h"

namespace ingot {

// The number of files of the model: 1 if the file is not split (a merged file may have split.count 0).
uint32_t split_count(const Metadata& metadata);

// The path of part `part` (from 0), in the folder of `path`, which is any part. Throws Error if the name of `path` does
// not follow the pattern for n_parts, or if the part is outside the folder (a symbolic link may point only into the
// folder that contains `path` itself).
std::string split_path(const std::string& path, uint32_t part, uint32_t n_parts);

// Throws Error naming the file of `part` if `part` is not number `index` of `n_parts`, or if a key has different values
// in `part` and the first part, so `part` belongs to another model.
void check_part(const Metadata& first, const Metadata& part, uint32_t index, uint32_t n_parts);

}  // namespace ingot
