// Reads what requests for vectors have in common, and writes vectors.
#pragma once
#include <span>

#include "server/api/fields.h"
#include "server/embed_run.h"

namespace ingot {

// input: "text", ["text", ...], [1, 2, ...] or [[1, 2], ...]. `cut`: a text that is too long loses its end, else it is
// refused. Throws ApiError.
std::vector<EmbedText> read_texts(const Fields& fields, const Embedder& embedder, bool cut);
// How many numbers of each vector the answer keeps.
size_t read_dimensions(const Fields& fields, const Embedder& embedder);

// The first n_kept numbers of vector i, of length 1 again if some are cut off. Throws ApiError 500 if one is not
// finite.
std::span<float> vector_of(EmbedAnswer& answer, size_t i, size_t n_kept);
void append_numbers(std::string& out, std::span<const float> vector);  // "[1,2]"

}  // namespace ingot
