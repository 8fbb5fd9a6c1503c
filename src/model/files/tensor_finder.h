// Finds the tensor of a row of the tensor table in a checkpoint. Handles several possible names, rows or columns of a
// fused tensor, experts that are separate tensors (they are joined), norms that are stored minus 1, and the source's
// quantizer. Used by code that loads weights (weights.cc) and code that writes them (gguf_export.cc).
#pragma once
#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "model/config/shards.h"
#include "model/files/weights.h"

namespace ingot {

class TensorFinder {
 public:
  // The source must outlive the finder. With shapes_only, results have no data and no data is read.
  TensorFinder(WeightSource& source, const Config& config, bool shapes_only = false)
      : source_(source),
        config_(config.share ? config.share->model : config),
        rank_config_(config),
        shapes_only_(shapes_only) {}

  // With the config of a rank, finds the rank's part. In the result, n_out counts the rows of all experts together.
  // Returns false if the row is optional and the checkpoint lacks the tensor, or if the rank has no part of it. Throws
  // Error naming a tensor that is missing or has another shape or type.
  bool find(const MatrixRow& row, int layer, HostTensor& out);
  // The result is [n_experts or 1, n].
  bool find(const VectorRow& row, int layer, HostTensor& out);
  // The name that a row has, or would have, in the checkpoint; for messages.
  template <class Row>
  std::string name_of(const Row& row, int layer) const {
    const TensorNames said = names_said(row, layer);
    return name_at(names_of(is_gguf() ? row.gguf_name : row.hf_name).front(), said.layer, 0, said.number);
  }

  // Tells the source that the data found will not be read again.
  void release(const HostTensor& found);

 private:
  struct Wanted {
    const char* names;
    int layer;
    bool optional;
    int64_t n_matrices;
    int64_t n_out = 0, n_in = 0;  // of each matrix
    int64_t total = 0,
            first = 0;  // the tensor's rows (of vectors: columns), and the first wanted one; total 0: all
    int step = 1;
    bool transposed = false;  // the wanted rows are the columns of the result
    bool add_one = false;
    bool is_log = false;
    int number = 0;  // TensorNames
  };

  template <class Row>
  Wanted wanted_of(const Row& row, int layer, const Slice& slice, const Config& sizes) const {
    const TensorNames said = names_said(row, layer);
    return {.names = is_gguf() ? row.gguf_name : row.hf_name,
            .layer = said.layer,
            .optional = is_optional(row, config_),
            .n_matrices = count_of(row, sizes),
            .total = size_of(slice.total, sizes),
            .first = size_of(slice.first, sizes),
            .step = slice.step,
            .transposed = slice.transposed,
            .number = said.number};
  }
  template <class Row>
  TensorNames names_said(const Row& row, int layer) const {
    if constexpr (requires { row.hf_names; })
      if (row.hf_names != nullptr && !is_gguf()) return row.hf_names(config_, layer);
    return {layer};
  }

  bool norm_weight_plus_one();
  bool is_gguf() const { return source_.dialect() == Dialect::kGguf; }
  static std::vector<std::string> names_of(const char* names);
  static std::string name_at(const std::string& pattern, int layer, int expert, int number = 0);
  bool find_matrix(const Wanted& wanted, HostTensor& out);
  bool find_vector(const Wanted& wanted, HostTensor& out);
  bool join_vectors(const std::string& names, const Wanted& wanted, HostTensor& out);
  bool take_part(const std::optional<RankPart>& kept_part, HostTensor& host);  // tensor_cut.cc
  bool find_stored(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out);
  void check_shape(const std::string& name, int64_t n_out, int64_t n_in, const HostTensor& found) const;
  bool find_each(const std::string& pattern, const Wanted& wanted, HostTensor& out);
  void take_rows(const Wanted& wanted, HostTensor& host);
  void transpose(const Wanted& wanted, HostTensor& host);
  void decode_blocks(HostTensor& host);
  void quantize(const std::string& gguf_name, HostTensor& host);
  bool ask(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out);
  bool is_own(const HostTensor& host) const {
    return std::ranges::any_of(copies_, [&](const auto& copy) { return copy.data() == host.data; });
  }
  HostTensor own(HostTensor shape, std::vector<uint8_t> bytes);

  WeightSource& source_;
  const Config config_;       // of the whole model, as the tensors in the source
  const Config rank_config_;  // of the rank
  const bool shapes_only_;
  std::optional<bool> plus_one_;  // whether this checkpoint stores the norms less 1, once known
  std::list<std::vector<uint8_t>> copies_;
};

// The longest block of the matrices that ranks divide by their inputs.
int64_t largest_block(WeightSource& source, const Config& model, bool whole_experts = false);

}  // namespace ingot
