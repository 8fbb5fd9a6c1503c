// How the weights of a Hugging Face or MLX directory are quantized: reads and checks `quantization` or
// `quantization_config` of config.json, for quantized_tensors.h. The tensors themselves tell which modules are
// quantized; this file tells how. An unsupported quantization is refused by name, with alternatives. Settings for
// activations and the KV cache are ignored, because ingot quantizes them in its own ways.
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

// The tensors that make up one matrix, by the names that follow the module's name, and their layout. Shapes are for a
// matrix [out, in] with groups of g; "packed" is a stream of codes in 32-bit words, the first code in the lowest bits.
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
  // qweight I32 [in, out / 8], qzeros [in / g, out / 8], scales [in / g, out]; of 8 outputs the even ones come first
  kAwq,
  // qweight I32 packed [out, in / 8], qzeros packed [out, z], scales [out, 8 * z]; z: words for in / g codes, padded
  kAwqRows,
  // weight_packed I32 packed [out, in * bits / 32], weight_scale [out, in / g], optional weight_zero_point packed [out
  // * bits / 32, in / g], weight_shape, weight_g_idx. Older versions of the library pack whole codes into words, so
  // that some of the 32 bits are unused.
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
  bool zeros_less_one = false;  // GPTQ's first format stores zero points less 1
  int64_t block_rows = 0, block_cols = 0;  // kFloat8: the block that shares a scale; 0: as the scale's shape implies

  bool operator==(const QuantScheme&) const = default;
};

class HfQuantization {
 public:
  // Reads config.json, at its root or in text_config; nothing if it has no quantization. Throws Error. Also reads
  // hf_quant_config.json, which ModelOpt's older checkpoints have instead.
  static std::optional<HfQuantization> read(const Json& config);
  // Reads a directory's config.json, or else its hf_quant_config.json.
  static std::optional<HfQuantization> read(const HfDirectory& directory);

  // "MLX", or quant_method, printable; "modelopt" for either of its files.
  const std::string& method() const { return method_; }
  // The scheme of a module whose tensors are quantized; null if the config does not cover the module.
  const QuantScheme* find(std::string_view module) const;
  // Modules with a scheme of their own, by name (MLX).
  const std::map<std::string, std::optional<QuantScheme>, std::less<>>& overrides() const { return overrides_; }

 private:
  struct Group {
    std::vector<std::string> names;  // of modules, or of classes (a class matches every module)
    std::vector<std::shared_ptr<const Pattern>> patterns;
    QuantScheme scheme;
  };
  // Modules that match an expression and have a scheme of their own, or none (GPTQ).
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
  std::map<std::string, QuantScheme, std::less<>> subtrees_;  // by name, of modules with all inside them (ModelOpt)
  std::vector<Rule> rules_;  // the first match counts
  std::vector<Group> groups_;
};

}  // namespace ingot
