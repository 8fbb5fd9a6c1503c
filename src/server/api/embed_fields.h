// Reads what requests for vectors have in common, and writes vectors.
#pragma once
#include <optional>
#include <span>

#include "server/api/fields.h"
#include "server/embed_run.h"

namespace ingot {

// The number of tokens that a text is cut to, from its end; nothing: a text that is too long is refused. The fields are
// `truncate` and vLLM's truncate_prompt_tokens, where -1 means as many tokens as the model reads. Throws ApiError.
std::optional<int> read_cut(const Fields& fields, const Embedder& embedder, bool cuts_by_default = false);
// input: "text", ["text", ...], [1, 2, ...] or [[1, 2], ...], cut to `most` tokens. Throws ApiError.
std::vector<EmbedText> read_texts(const Fields& fields, const Embedder& embedder, std::optional<int> most);
// How many numbers of each vector the answer keeps.
size_t read_dimensions(const Fields& fields, const Embedder& embedder);

// The first n_kept numbers of vector i, of length 1 again if some are cut off. Throws ApiError 500 if one is not
// finite.
std::span<float> vector_of(EmbedAnswer& answer, size_t i, size_t n_kept);
void append_numbers(std::string& out, std::span<const float> vector);  // "[1,2]"

}  // namespace ingot
