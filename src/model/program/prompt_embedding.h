// PromptEmbedding: vectors, for example of an image, that replace tokens of a prompt.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "backend/batch.h"
#include "backend/shared_floats.h"

namespace ingot {

// At each of these positions, the prompt has any token of the vocabulary as a placeholder.
struct PromptEmbedding {
  int position = 0;  // of the first row, in the prompt
  int n_rows = 0;
  // Digest of the source of the rows. The prefix cache compares digests instead of rows.
  std::array<uint64_t, 2> digest{};
  SharedFloats rows;  // [n_rows, RunnerInfo::embedding_dim]
  // For ropes with several axes: the place of each row on each axis, after the place of the token before. Empty: 0, 1,
  // 2 and so on, on all axes. Later tokens continue after n_places; 0: n_rows.
  std::vector<std::array<int32_t, kRopeAxes>> places = {};
  int n_places = 0;

  // Each row also sees the rows after it, so a step has all rows or none (Batch::seen_len).
  bool sees_all = false;

  int size() const { return n_places > 0 ? n_places : n_rows; }  // in places
};

}  // namespace ingot
