// Reads how the weights of a Hugging Face or MLX directory are quantized: `quantization` or `quantization_config` of
// config.json. For quantized_tensors.h, which finds out from the tensors which modules are quantized. The Error for an
// unsupported quantization names alternatives. Settings for activations and the KV cache are ignored, because ingot has
// its own quantization for them.
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

// The tensors that make up one matrix, and their layout. Tensor names follow the module's name. Shapes are for a matrix
// [out, in] with groups of g. "packed" is a stream of codes in 32-bit words, the first code in the lowest bits.
enum class QuantLayout : uint8_t {
  // weight U32 packed [out, in * bits / 32], scales and biases [out, in / g]: w = scale * code + bias
  kMlxAffine,
  // weight as above; scales U8: [out, in / 32] in E8M0 for the first two, [out, in / 16] in E4M3 for the third
  kMlxMxfp4,
  kMlxMxfp8,
  kMlxNvfp4,
  // qweight I32 packed [in * bits / 32, out], qzeros packed [in / g, out * bits / 32], scales [in / g, out], optional
  // g_idx I32 [in], the group of each column: w = scale * (code - zero)
  kGptq,
  // qweight I32 [in, out / 8], qzeros [in / g, out / 8], scales [in / g, out]; of 8 outputs, the even ones come first
  kAwq,
  // qweight I32 packed [out, in / 8], qzeros packed [out, z], scales [out, 8 * z]; z: words for in / g codes, padded
  kAwqRows,
  // weight_packed I32 packed [out, in * bits / 32], weight_scale [out, in / g], optional weight_zero_point packed [out
  // * bits / 32, in / g], weight_shape, weight_g_idx. Older versions of the library pack only whole codes into a word
  // and leave the remaining bits unused.
  kPacked,
  // weight_packed U8 [out, in / 2], the low nibble first; weight_scale U8 [out, in / 32], E8M0
  kPackedMxfp4,
  // weight_packed as in kPackedMxfp4, weight_scale F8_E4M3 [out, in / 16], weight_global_scale F32, a divisor
  kPackedNvfp4,
  // as kPackedMxfp4, with weight_packed named weight
  kModelOptMxfp4,
  // as kPackedNvfp4, with weight_packed named weight, and weight_scale_2 F32, a factor
  kModelOptNvfp4,
  // weight I8 [out, in], weight_scale [out, in / g] or one scale, optional weight_zero_point I8 of the same shape
  kInt8,
  // weight F8_E4M3 [out, in], weight_scale or weight_scale_inv: one scale, [out, 1], or one for each block; U8 is E8M0
  kFloat8,
  // NAME_blocks U8 [experts, out, in / 32, 16], NAME_scales U8 [experts, out, in / 32]
  kMxfp4Blocks,
};

struct QuantScheme {
  QuantLayout layout = QuantLayout::kMlxAffine;
  int bits = 8;
  int group = 0;           // elements of a row that share a scale; 0: the whole row
  bool symmetric = true;   // the zero point is the middle code
  bool zeros_less_one = false;  // GPTQ's first format stores zero points minus 1
  int64_t block_rows = 0, block_cols = 0;  // kFloat8: the block that shares a scale; 0: given by the scale's shape

  bool operator==(const QuantScheme&) const = default;
};

class HfQuantization {
 public:
  // Reads the quantization of config.json, at its root or in text_config, or of hf_quant_config.json, used by
  // ModelOpt's older checkpoints. Returns nothing if the file has no quantization. Throws Error.
  static std::optional<HfQuantization> read(const Json& config);
  // Reads a directory's config.json, or else its hf_quant_config.json.
  static std::optional<HfQuantization> read(const HfDirectory& directory);

  // "MLX", or quant_method, printable; "modelopt" for both of ModelOpt's files.
  const std::string& method() const { return method_; }
  // The scheme of a module whose tensors are quantized; null if the config does not cover the module.
  const QuantScheme* find(std::string_view module) const;
  // Modules with their own scheme, by name (MLX); nothing: not quantized.
  const std::map<std::string, std::optional<QuantScheme>, std::less<>>& overrides() const { return overrides_; }

 private:
  struct Group {
    std::vector<std::string> names;  // of modules, or of classes (a class matches all modules)
    std::vector<std::shared_ptr<const Pattern>> patterns;
    QuantScheme scheme;
  };
  // A scheme for the modules that match an expression (GPTQ); nothing: not quantized.
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
  std::map<std::string, QuantScheme, std::less<>> subtrees_;  // by name of the outermost module (ModelOpt)
  std::vector<Rule> rules_;  // the first match counts
  std::vector<Group> groups_;
};

}  // namespace ingot
