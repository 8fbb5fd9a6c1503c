// Mixes: which matrix of a model gets which type under a name such as Q4_K_M. The names, the numbers of
// general.file_type and the choices are llama.cpp's, so that files are what their names say. For model/gguf_export.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quant/format.h"

namespace ingot {

// What a matrix does, as far as mixes care.
enum class Role : uint8_t { kEmbedding, kOutput, kAttnV, kAttnOut, kFfnDown, kOther };

// In which layers a rule holds.
enum class Where : uint8_t { kAll, kFirstTwo, kFirstFour, kFirst16th, kFirst8th, kMoreBits };

// Of those that hold, the first counts.
struct MixRule {
  Role role;
  Where where;
  Format format;
  bool shared_kv = false;  // only where at least four query heads share a key and value head
  std::optional<bool> with_importance = std::nullopt;
};

struct Mix {
  const char* name;    // "Q4_K_M"
  uint32_t file_type;  // general.file_type
  Format base;
  std::span<const MixRule> rules = {};
  Format output = Format::Q6_K;  // of the output matrix, or the embedding that stands for it
};

// Any case; Q3_K, Q4_K and Q5_K stand for their _M. Throws UsageError that lists the names.
const Mix& find_mix(std::string_view name);
std::string mix_names();                              // "F32, F16, ..., Q4_K_M, ..."
std::optional<uint32_t> file_type_of(Format format);  // of the first mix with that base

// What a mix needs to know of a model.
struct MixModel {
  int n_layers = 0;
  int heads_per_kv = 1;
  bool tied = true;       // there is no output matrix
  bool is_large = false;  // 80 layers and shared key and value heads: attn_v is small there and gets more
};

struct MixOptions {
  std::optional<Format> output, embedding;  // in place of the mix's choice
  bool with_importance = false;
};

// May this tensor be quantized, by its GGUF name and dimensions? Vectors, norms, routers and the like may not.
bool is_quantizable(std::string_view name, int n_dims);

// The type for a matrix of rows of n_in elements. What does not fit into whole blocks falls back to a type that does,
// as in llama.cpp (Q4_K to Q5_0 and such, F16 at last).
Format choose_format(const Mix& mix, const MixOptions& options, const MixModel& model, std::string_view name,
                     int64_t n_in);

}  // namespace ingot
