// Reads the fields that requests for vectors share, and writes vectors.
#pragma once
#include <optional>
#include <span>

#include "server/answers/embed_run.h"
#include "server/requests/fields.h"

namespace ingot {

// Returns the number of tokens to which a text is cut, from its end, or nothing if texts that are too long are refused.
// The fields are `truncate` and vLLM's truncate_prompt_tokens. -1 means the model's maximum. Throws ApiError.
std::optional<int> read_cut(const Fields& fields, const Embedder& embedder, bool cuts_by_default = false);
// input: "text", ["text", ...], [1, 2, ...] or [[1, 2], ...], cut to `max_tokens` tokens. Throws ApiError.
std::vector<EmbedText> read_texts(const Fields& fields, const Embedder& embedder, std::optional<int> max_tokens);
// The number of elements of each vector that the answer keeps.
size_t read_dimensions(const Fields& fields, const Embedder& embedder);

// The first n_kept elements of vector i, rescaled to length 1 if elements are cut off. Throws ApiError 500 if an
// element is not finite.
std::span<float> vector_of(EmbedAnswer& answer, size_t i, size_t n_kept);
void append_numbers(std::string& out, std::span<const float> vector);  // "[1,2]"

}  // namespace ingot
