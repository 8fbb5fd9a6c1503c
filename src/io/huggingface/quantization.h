// How the weights of a Hugging Face or MLX directory are quantized: `quantization` or `quantization_config` of
// config.json, checked, and read into the little that is needed to read them (quantized_tensors.h). Which modules
// are quantized is for the tensors to say; this says how. What is not supported is refused by name, with what would
// work. How activations and the KV cache are quantized is passed over: ingot has its own ways with them.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace ingot {

class HfDirectory;
class Pattern;

// The tensors that make up one matrix, by the names that they have after the module's, and how they lie. Shapes are for
// a matrix [out, in] with groups of g; "packed" is a stream of codes in 32-bit words, the first in the lowest bits.
enum class QuantLayout : uint8_t {
  // weight U32 packed [out, in * bits / 32], scales and biases [out, in / g]: w = scale * code + bias
  kMlxAffine,
  // weight likewise, scales U8: [out, in / 32] in E8M0 of the first two, [out, in / 16] in E4M3 of the third
  kMlxMxfp4,
  kMlxMxfp8,
  kMlxNvfp4,
  // qweight I32 packed [in * bits / 32, out], qzeros packed [in / g, out * bits / 32], scales [in / g, out], perhaps
  // g_idx I32 [in], the group of each column: w = scale * (code - zero)
  kGptq,
  // qweight I32 [in, out / 8], qzeros [in / g, out / 8], scales [in / g, out]; of 8 outputs the even ones first
  kAwq,
  // qweight I32 packed [out, in / 8], qzeros packed [out, z], scales [out, 8 * z]; z: words for in / g, and some
  kAwqRows,
  // weight_packed I32 packed [out, in * bits / 32], weight_scale [out, in / g], perhaps weight_zero_point packed
  // [out * bits / 32, in / g], weight_shape, weight_g_idx; older versions of the library pack whole codes into words,
  // so that some of the 32 bits are left over
  kPacked,
  // weight_packed U8 [out, in / 2], the low nibble first; weight_scale U8 [out, in / 32], E8M0
  kPackedMxfp4,
  // weight_packed likewise, weight_scale F8_E4M3 [out, in / 16], weight_global_scale F32, which divides
  kPackedNvfp4,
  // as kPackedMxfp4, but that weight_packed is named weight
  kModelOptMxfp4,
  // as kPackedNvfp4, but that weight_packed is named weight, and weight_scale_2 F32 multiplies
  kModelOptNvfp4,
  // weight I8 [out, in], weight_scale [out, in / g] or one, perhaps weight_zero_point I8 likewise
  kInt8,
  // weight F8_E4M3 [out, in], weight_scale or weight_scale_inv: one, [out, 1], or one a block; U8 is E8M0
  kFloat8,
  // NAME_blocks U8 [experts, out, in / 32, 16], NAME_scales U8 [experts, out, in / 32]
  kMxfp4Blocks,
};

struct QuantScheme {
  QuantLayout layout = QuantLayout::kMlxAffine;
  int bits = 8;
  int group = 0;           // elements of a row that share a scale; 0: the whole row does
  bool symmetric = true;   // the zero point is the middle code
  bool zeros_less_one = false;  // GPTQ's first format keeps zero points so
  int64_t block_rows = 0, block_cols = 0;  // kFloat8: the block that shares a scale; 0: whatever the scale's shape says

  bool operator==(const QuantScheme&) const = default;
};

class HfQuantization {
 public:
  // What config.json says, at its root or in text_config; nothing when that is not a word. Throws Error. ModelOpt's
  // hf_quant_config.json, which its older checkpoints have in place of such words, is read likewise.
  static std::optional<HfQuantization> read(const Json& config);
  // Of a directory: config.json, else hf_quant_config.json.
  static std::optional<HfQuantization> read(const HfDirectory& directory);

  // "MLX", or quant_method, safe to print; "modelopt" of either of its files.
  const std::string& method() const { return method_; }
  // The scheme of a module that turned out to be quantized; null when the config does not cover it.
  const QuantScheme* find(std::string_view module) const;
  // Modules with a scheme of their own, by name (MLX).
  const std::map<std::string, std::optional<QuantScheme>, std::less<>>& overrides() const { return overrides_; }

 private:
  struct Group {
    std::vector<std::string> names;  // of modules, or of classes, which match every module
    std::vector<std::shared_ptr<const Pattern>> patterns;
    QuantScheme scheme;
  };
  // Modules with a scheme of their own, or none, by an expression (GPTQ).
  struct Rule {
    std::shared_ptr<const Pattern> pattern;
    std::optional<QuantScheme> scheme;
  };
  void read_mlx(const Json& json);
  void read_modelopt(const Json& json);
  void read_rules(const Json& dynamic);
  void read_groups(const Json& json);
  static Group read_group(const Json& json, std::string_view format);

  std::string method_;
  std::optional<QuantScheme> scheme_;
  std::map<std::string, std::optional<QuantScheme>, std::less<>> overrides_;
  std::map<std::string, QuantScheme, std::less<>> subtrees_;  // by name, of modules with all that is in them (ModelOpt)
  std::vector<Rule> rules_;  // the first that matches counts
  std::vector<Group> groups_;
};

}  // namespace ingot
