// A mix gives each matrix of a model a format, under a name such as Q4_K_M. The names, the numbers of general.file_type
// and the choices are those of llama.cpp, so a name means the same in both.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quant/format.h"

namespace ingot {

// The roles of matrices that mixes distinguish.
enum class Role : uint8_t { kEmbedding, kOutput, kAttnV, kAttnOut, kFfnDown, kOther };

// The layers to which a rule applies.
enum class Where : uint8_t { kAll, kFirstTwo, kFirstFour, kFirst16th, kFirst8th, kMoreBits };

// The first rule that applies is used.
struct MixRule {
  Role role;
  Where where;
  Format format;
  bool shared_kv = false;  // only if at least four query heads share a key and value head
  std::optional<bool> with_importance = std::nullopt;
};

struct Mix {
  const char* name;    // "Q4_K_M"
  uint32_t file_type;  // general.file_type
  Format base;
  std::span<const MixRule> rules = {};
  Format output = Format::Q6_K;  // of the output matrix, or of the embedding when tied
};

// Accepts upper and lower case; Q3_K, Q4_K and Q5_K mean their _M mixes. Throws UsageError that lists the names.
const Mix& find_mix(std::string_view name);
std::string mix_names();                              // "F32, F16, ..., Q4_K_M, ..."
std::optional<uint32_t> file_type_of(Format format);  // of the first mix with that base

// The facts about a model that a mix depends on.
struct MixModel {
  int n_layers = 0;
  int heads_per_kv = 1;
  bool tied = true;       // the model has no output matrix
  bool is_large = false;  // 80 layers with shared key and value heads: attn_v is small there and gets more bits
};

struct MixOptions {
  std::optional<Format> output, embedding;  // override the mix's choice
  std::optional<Format> layer_inputs = {};  // of the table of layers' own inputs, which otherwise keeps its type
  bool with_importance = false;
};

inline constexpr std::string_view kLayerInputsTable = "per_layer_token_embd.weight";

// True if the tensor with this GGUF name may be quantized. Vectors, norms, routers and some other tensors may not.
bool is_quantizable(std::string_view name, int n_dims);

// The format for a matrix with rows of n_in elements. If the rows are not whole blocks of the mix's format, falls back
// to another format as llama.cpp does (Q4_K to Q5_0, for example, and F16 last).
Format choose_format(const Mix& mix, const MixOptions& options, const MixModel& model, std::string_view name,
                     int64_t n_in);

}  // namespace ingot
