// Rows of the tensor table. A row says how a checkpoint stores one tensor: its names in each dialect, its shape as
// functions of the config, how ranks divide it, and the member of a block that the tensor fills. Each kind of layer
// part has its rows in its own file (layers/); the rows outside layers are here. If the checkpoint lacks an optional
// row, its member stays empty, and the step that uses the member is left out. tensor_finder.h finds a row's tensor.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "backend/tensor.h"
#include "model/config/config.h"

namespace ingot {

// Elements [first, first + n).
struct Range {
  int64_t first = 0, n = 0;
};

using SizeOf = int64_t (*)(const Config&);

// A dimension of a tensor.
struct Dim {
  SizeOf size = nullptr;  // null: no dimension
  // The elements that a rank has, in order; `rank` is its config, with a share. Null: all elements.
  std::vector<Range> (*of_rank)(const Config& rank) = nullptr;
  // For successive matrices of which a token reads some, such as those of experts: how many. Null: all.
  SizeOf used = nullptr;

  constexpr explicit operator bool() const { return size != nullptr; }
};
inline int64_t size_of(SizeOf size, const Config& c) { return size == nullptr ? 0 : size(c); }
inline int64_t size_of(const Dim& dim, const Config& c) { return size_of(dim.size, c); }

// Part of a larger tensor. total: its rows; every step-th row from `first` on is in the slice. total null: the slice is
// the whole tensor. With groups, the tensor's rows form that many equal groups, and the slice is the same part of each
// group, from `first` on in the group.
struct Slice {
  SizeOf total = nullptr;
  SizeOf first = nullptr;
  int step = 1;
  bool transposed = false;  // the rows of the larger tensor are the columns of the slice
  SizeOf groups = nullptr;
};

// How ranks divide a tensor among them (shards.h), so that a layer needs only two sums over all ranks: one after
// attention's output matrix and one after the down projection. If each rank has whole experts, a row that counts
// experts is divided only by experts, unless it is kNone.
enum class Shard : uint8_t {
  kNone,      // each rank has all of it
  kColumns,   // some of the outputs: rows of each stored matrix, or elements of each vector
  kRows,      // some of the inputs; the products of all ranks are summed
  kMatrices,  // some of the successive matrices or vectors: heads or channels
  kOnce       // rank 0 has it: a bias that is added to a sum over all ranks
};

// The values of optional(): whether a checkpoint may lack the tensor.
inline constexpr auto kOptional = [](const Config&) { return true; };

// The order of a tensor's rows in GGUF files, if it is not that of Hugging Face checkpoints: the source row of each
// row. `n` is their number. Empty: the same order.
using RowOrder = std::vector<int32_t> (*)(const Config&, int64_t n);

// What the names of a tensor say: a layer, which may not be the tensor's own, and a number.
struct TensorNames {
  int layer = 0, number = 0;
};

// Names: "{}" stands for the layer. Names separated by '|' are tried in turn. "{1}" stands for the expert, if each
// expert has a separate tensor. A name after '~' is for matrices that are stored transposed. Names of
// vectors with '&' between them are joined. Matrices are
// [n_out, n_in]; successive matrices are stored one after another. If several rows fill one member, the first that
// exists is used.
struct MatrixRow {
  const char* gguf_name = "";
  const char* hf_name = "";
  Weight& (*member)(void* owner) = nullptr;  // at<...>
  Dim n_out, n_in;
  Shard shard = Shard::kNone;
  bool (*optional)(const Config&) = nullptr;         // null: the tensor is needed
  bool (*when)(const Config&, int layer) = nullptr;  // the layers and models that have the row; null: all
  Slice gguf_slice = {}, hf_slice = {};
  Dim count = {};  // number of successive matrices; none: one
  RowOrder gguf_rows = nullptr, gguf_columns = nullptr;
  // If GGUF files have several tensors in place of this one: their GGUF names, and the source rows of each.
  std::vector<std::pair<const char*, std::vector<int32_t>>> (*gguf_split)(const Config&) = nullptr;
  unsigned use = kForMatmul;
  float (*gguf_factor)(const Config&, int64_t row) = nullptr;  // of the row in GGUF files; null: none
  // The layer that the name in Hugging Face checkpoints says ("{0}"), and a number ("{2}"). Null: the tensor's layer.
  TensorNames (*hf_names)(const Config&, int layer) = nullptr;

  // The dimension that ranks divide; none: ranks do not divide the tensor.
  Dim divided() const {
    return shard == Shard::kNone ? Dim{} : shard == Shard::kColumns ? n_out : shard == Shard::kRows ? n_in : count;
  }
};

// Vectors are [1, n] in f32, or [count, n].
struct VectorRow {
  const char* gguf_name = "";
  const char* hf_name = "";
  Tensor& (*member)(void* owner) = nullptr;
  float& (*scalar)(void* owner) = nullptr;  // in place of member: one number, in host memory
  Dim n;
  Shard shard = Shard::kNone;
  bool (*optional)(const Config&) = nullptr;
  bool (*when)(const Config&, int layer) = nullptr;
  enum Kept : uint8_t {
    kAsIs,
    kLessOne,
    kLog
  } hf_kept = kAsIs;  // in Hugging Face checkpoints: unchanged; norms less 1; x stored as log(-x)
  Slice gguf_slice = {}, hf_slice = {};
  Dim count = {};
  RowOrder gguf_rows = nullptr;  // of elements, or of successive vectors
  int gguf_ones = 0;  // dimensions of size 1 that GGUF files have between n and count
  float (*factor)(const Config&) = nullptr;  // multiplies the values on loading; null: none

  Dim divided() const { return shard == Shard::kColumns ? n : shard == Shard::kMatrices ? count : Dim{}; }
};

// The rows of one owner: a kind's block, or the model.
struct TensorRows {
  std::span<const MatrixRow> matrices;
  std::span<const VectorRow> vectors;
};

template <class Row>
bool applies(const Row& row, const Config& config, int layer) {
  return row.when == nullptr || row.when(config, layer);
}
template <class Row>
bool is_optional(const Row& row, const Config& config) {
  return row.optional != nullptr && row.optional(config);
}
template <class Row>
int64_t count_of(const Row& row, const Config& config) {
  return row.count ? size_of(row.count, config) : 1;
}

// at<&Block::join, &Join::post_norm, &NormArgs::weight> is a function that returns that member of an owner.
namespace member_path {
template <class Owner, class Member>
Owner owner_of(Member Owner::*);
template <auto first, auto... rest>
auto& get(void* owner) {
  return ((static_cast<decltype(owner_of(first))*>(owner)->*first).* ... .*rest);
}
}  // namespace member_path
template <auto... path>
inline constexpr auto at = &member_path::get<path...>;

// The weights outside the layers.
struct ModelWeights {
  Weight embedding;                    // [n_vocab, dim]
  Tensor final_norm, final_norm_bias;  // [1, dim]
  Weight output;                       // [n_vocab, dim]
  Tensor output_bias;                  // [1, n_vocab]
  bool tied = false;                   // the output is the embedding
  Tensor rope_divisors;                // [1, rot_dim / 2]
  Tensor rope_short, rope_long;        // [1, rot_dim / 2]: LongRoPE's factors, if the config has none
  Tensor embed_norm, embed_norm_bias;  // [1, dim]
  Tensor positions;    // [first_position + n_ctx_train, dim], or [1, dim]: the first token type is added to each row
  Tensor token_types;  // [n_token_types, dim]: load_weights subtracts the first row from the second
  Weight layer_table, layer_project;  // [n_vocab, n_layers * width], [n_layers * width, dim]: LayerInputsBlock
  Tensor layer_norm;                  // [1, width]
  Weight altup_start, altup_end;      // AltUpStartBlock's, AltUpEndBlock's
};

TensorRows model_rows();
const MatrixRow& embedding_row();
const MatrixRow& output_row();

// Dimensions that several owners have.
inline constexpr Dim kOne = {[](const Config&) -> int64_t { return 1; }};
inline constexpr Dim kModelDim = {[](const Config& c) -> int64_t { return c.dim; }};

}  // namespace ingot
