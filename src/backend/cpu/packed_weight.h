// PackedWeight: a weight in panels (kernels.h), the layout of the matmul kernels. It is made at load time from any
// quant format, using only the format's FormatInfo. Codes and scales are stored exactly, with two exceptions. First, an
// f32 scale or minimum becomes an f16 times the tensor's power of two, which represents any bf16 and any f16 exactly.
// (A zero point times a scale may have more bits. They are rounded away, an error of at most 2^-12 of the minimum.)
// Second, F8_E4M3 has no codes, so it is rounded to int8 with a scale for each of its blocks. (The error is 0.6 % of a
// standard deviation; the 3 mantissa bits of E4M3 cause 2.6 %.) F16 weights that are all bf16 numbers are
// stored as BF16 if the core multiplies bf16. A format without a matching kernel is stored as f32.
//
// The formats of FileBlocks (kernels.h) can also be packed as small as in the file, for machines that lack the memory
// for codes. Their products are then slower.
//
// Products of many tokens may unpack the panels, part by part, into numbers that multiply faster.
#pragma once
#include <cstdint>
#include <optional>

#include "backend/cpu/kernel_choice.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/tensor.h"
#include "base/threads.h"

namespace ingot::cpu {

struct PackedWeight {
  int64_t n_out = 0;
  int64_t n_in = 0;
  int64_t n_panels = 0;  // in each expert
  int64_t panel_bytes = 0;
  int kind = -1;  // in kQuantKinds; -1: dense
  Dense dense = Dense::kF32;
  float factor = 1;          // common factor of all scales, a power of two
  bool flips_codes = false;  // codes of 8 bits are stored minus 128
  ActLayout activations;     // the layout of packed activations

  std::optional<FileBlocks> file_blocks;  // the panels hold blocks of the file
  ActLayout few_activations;              // of file blocks, for few tokens

  Unpacked unpacked = Unpacked::kNo;  // the form for many tokens
  ActLayout many_activations;         // the activations of that form
  ActLayout token_activations;        // of kInt8
  bool batch_changes_bits = false;    // unpacking changes the bits of a row's product

  uint8_t codebook[16] = {};
  Memory memory;
  KernelChoice choice{};

  const uint8_t* panels() const { return memory.data(); }
};

// Whether the activations are bf16 in blocks.
inline bool in_blocks(Unpacked unpacked) { return unpacked == Unpacked::kBF16 || unpacked == Unpacked::kBlocks; }

// The form for any number of tokens.
inline Unpacked common_form(const PackedWeight& w) { return w.file_blocks ? Unpacked::kBytes : Unpacked::kNo; }

// The largest number of tokens in a tile.
inline int max_tile(const PackedWeight& w, const Kernels& kernels, Unpacked unpacked = Unpacked::kNo) {
  if (unpacked == Unpacked::kInt16) return kernels.int16_tile;
  if (unpacked == Unpacked::kRows) return kFewTokens;
  if (unpacked == Unpacked::kInt8) return kByteTile;
  if (in_blocks(unpacked)) return kernels.block_tile;
  return w.kind >= 0 ? kernels.quant_tile : kernels.dense_tile;
}

// The fastest form for a product of n_rows in which a row has the bits that it has alone (but see
// CpuBackend::run_task).
Unpacked exact_form(const PackedWeight& w, const Kernels& kernels, int64_t n_rows);

// The form of a weight for a product of n_rows.
Unpacked unpacked_for(const PackedWeight& w, const Kernels& kernels, int64_t n_rows);

// The layout of the activations that multiply a weight.
inline const ActLayout& activations_of(const PackedWeight& w, Unpacked unpacked) {
  if (unpacked == Unpacked::kRows) return w.few_activations;
  if (unpacked == Unpacked::kInt8) return w.token_activations;
  return unpacked == common_form(w) ? w.activations : w.many_activations;
}

// The job of multiplying the first expert's panels by n_rows rows of packed activations.
MatmulJob job_of(const PackedWeight& w, const Kernels& kernels, int n_rows, const uint8_t* act, Tensor y,
                 Unpacked unpacked = Unpacked::kNo);

// The number type in which a prompt's matmul with weights of this format multiplies: "int8", "int16", "bf16" or "f32".
// (For F16 weights that are all bf16 numbers, pack_weight may choose bf16 instead.)
const char* multiplies_as(Format format, const Kernels& kernels);

// How to pack a weight: for the fastest products, or in hardly more bytes than in the file.
enum class Packing : uint8_t { kFast, kSmall };

// The bytes that pack_weight allocates for a weight of this shape.
size_t packed_bytes(const Weight& shape, Packing packing);

// Packs the weight for `kernels`. The result's choice is `kernels` for any number of rows.
PackedWeight pack_weight(const Weight& host, const Kernels& kernels, ThreadPool& pool,
                         Packing packing = Packing::kFast);

// Whether panels keep a format's numbers, so that rows can be read from the panels instead of the file. Not so for float8
// and for NVFP4 with a scale of the matrix, which are rounded.
bool packs_exactly(Format format);

// Decodes a row of a weight with one expert, packed from `format`, where packs_exactly(format). out: [n_in]
void read_packed_row(const PackedWeight& w, Format format, int64_t row, float* out);

// Whether panels of this format are the same bytes for all x86 instruction sets: true unless codes or levels of the
// codebook need 8 bits.
bool packs_alike(Format format, Packing packing = Packing::kFast);

}  // namespace ingot::cpu
