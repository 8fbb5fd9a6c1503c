// Small checkpoints of each quantized layout, and a function that uses them like a loader: for the sweeps of damaged
// files and the fuzzer.
#pragma once
#include <string>
#include <vector>

#include "io/huggingface/quantized_tensors.h"
#include "io/quantized_bytes.h"
#include "io/walk_safetensors.h"

namespace ingot {

struct QuantizedFixture {
  const char* name;
  std::string config;
  QuantizedBytes file;
};

inline std::string quantization_config(const std::string& members) { return R"({"quantization_config":{)" + members + "}}"; }

inline std::vector<QuantizedFixture> quantized_fixtures() {
  const std::string zeros(256, '\0'), shape = u64_bytes(8) + u64_bytes(32);
  const std::string groups = R"("config_groups":{"g":{"targets":["re:m"],"weights":{"num_bits":)";
  return {
      {"mlx", R"({"quantization":{"group_size":64,"bits":3,"n":{"group_size":32,"bits":8},"o":false}})",
       QuantizedBytes()
           .add("m.weight", "U32", {2, 6})
           .add("m.scales", "BF16", {2, 1})
           .add("m.biases", "F16", {2, 1})
           .add("n.weight", "U32", {1, 8})
           .add("n.scales", "F32", {1, 1})
           .add("n.biases", "F32", {1, 1})},
      {"mxfp8", R"({"quantization":{"group_size":32,"bits":8,"mode":"mxfp8"}})",
       QuantizedBytes().add("m.weight", "U32", {2, 8}).add("m.scales", "U8", {2, 1})},
      {"nvfp4", R"({"quantization":{"group_size":16,"bits":4,"mode":"nvfp4"}})",
       QuantizedBytes().add("m.weight", "U32", {2, 8}).add("m.scales", "U8", {2, 4})},
      {"gptq", quantization_config(R"("quant_method":"gptq","bits":4,"group_size":16,"sym":false)"),
       QuantizedBytes()
           .add("m.qweight", "I32", {4, 8})
           .add("m.qzeros", "I32", {2, 1})
           .add("m.scales", "F16", {2, 8})
           .add("m.g_idx", "I32", {32}, zeros)},
      {"awq", quantization_config(R"("quant_method":"awq","bits":4,"group_size":32)"),
       QuantizedBytes().add("m.qweight", "I32", {32, 1}).add("m.qzeros", "I32", {1, 1}).add("m.scales", "F16", {1, 8})},
      {"packed",
       quantization_config(R"("quant_method":"compressed-tensors","format":"pack-quantized",)" + groups +
                           R"(4,"strategy":"channel","symmetric":false}}})"),
       QuantizedBytes()
           .add("m.weight_packed", "I32", {8, 4})
           .add("m.weight_scale", "F16", {8, 1})
           .add("m.weight_shape", "I64", {2}, shape)
           .add("m.weight_zero_point", "I32", {1, 1})},
      {"awq_gemv", quantization_config(R"("quant_method":"awq","bits":4,"group_size":32,"version":"gemv")"),
       QuantizedBytes().add("m.qweight", "I32", {2, 4}).add("m.qzeros", "I32", {2, 4}).add("m.scales", "F16", {2, 32})},
      {"gptq_dynamic",
       quantization_config(R"("quant_method":"gptq","bits":4,"group_size":32,"dynamic":{"-:n":{},"+:m":{"bits":8}})"),
       QuantizedBytes().add("m.qweight", "I32", {8, 4}).add("m.qzeros", "I32", {1, 1}).add("m.scales", "F16", {1, 4})},
      {"packed_5bit",
       quantization_config(R"("quant_method":"compressed-tensors","format":"pack-quantized",)" + groups +
                           R"(5,"strategy":"channel"}}})"),
       QuantizedBytes()
           .add("m.weight_packed", "I32", {2, 5})
           .add("m.weight_scale", "F16", {2, 1})
           .add("m.weight_shape", "I64", {2}, u64_bytes(2) + u64_bytes(32))},
      {"packed_old",
       quantization_config(R"("quant_method":"compressed-tensors","format":"pack-quantized",)" + groups +
                           R"(5,"strategy":"channel","symmetric":false}}})"),
       QuantizedBytes()
           .add("m.weight_packed", "I32", {2, 6})
           .add("m.weight_scale", "F16", {2, 1})
           .add("m.weight_shape", "I64", {2}, u64_bytes(2) + u64_bytes(32))
           .add("m.weight_zero_point", "I32", {1, 1})},
      {"packed_mxfp4",
       quantization_config(R"("quant_method":"compressed-tensors","format":"mxfp4-pack-quantized",)" + groups +
                           R"(4,"type":"float","group_size":32}}})"),
       QuantizedBytes().add("m.weight_packed", "U8", {2, 16}).add("m.weight_scale", "U8", {2, 1})},
      {"packed_nvfp4",
       quantization_config(R"("quant_method":"compressed-tensors","format":"nvfp4-pack-quantized",)" + groups +
                           R"(4,"type":"float","group_size":16}}})"),
       QuantizedBytes()
           .add("m.weight_packed", "U8", {2, 8})
           .add("m.weight_scale", "F8_E4M3", {2, 1})
           .add("m.weight_global_scale", "F32", {1}, std::string("\0\0\x80\x3f", 4))},
      {"modelopt_nvfp4", quantization_config(R"("quant_method":"modelopt","quant_algo":"NVFP4","group_size":16)"),
       QuantizedBytes()
           .add("m.weight", "U8", {2, 32})
           .add("m.weight_scale", "F8_E4M3", {2, 4})
           .add("m.weight_scale_2", "F32", {}, std::string("\0\0\x80\x3f", 4))},
      {"modelopt_mixed",
       R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"m":{"quant_algo":"W4A8_MXFP4_FP8"},"n":{"quant_algo":"FP8"}}}})",
       QuantizedBytes()
           .add("m.weight", "U8", {2, 16})
           .add("m.weight_scale", "U8", {2, 1})
           .add("n.weight", "F8_E4M3", {2, 32})
           .add("n.weight_scale", "F32", {})},
      {"int8",
       quantization_config(R"("quant_method":"compressed-tensors","format":"int-quantized",)" + groups +
                           R"(8,"strategy":"tensor"}}})"),
       QuantizedBytes().add("m.weight", "I8", {2, 32}).add("m.weight_scale", "F32", {1})},
      {"fp8", quantization_config(R"("quant_method":"fp8","weight_block_size":[2,32])"),
       QuantizedBytes().add("m.weight", "F8_E4M3", {3, 64}).add("m.weight_scale_inv", "F32", {2, 2})},
      {"experts", quantization_config(R"("quant_method":"mxfp4")"),
       QuantizedBytes().add("m_blocks", "U8", {2, 1, 1, 16}).add("m_scales", "U8", {2, 1, 1})},
  };
}

// Opens the checkpoint and reads every row, like a loader. Returns the number of matrices.
inline size_t use_quantized(const std::string& bytes, const std::string& config) {
  const auto quantization = HfQuantization::read(JsonDocument::parse(config, "config.json").root());
  const auto files = Safetensors::parse(span_of(bytes), "m.safetensors");
  walk(files);
  const QuantizedTensors tensors(files, quantization, "model");
  for (const QuantizedMatrix& m : tensors.matrices()) {
    ensure(m.n_out > 0 && m.n_in > 0 && tensors.find(m.module) == &m, "each matrix is found");
    const GatheredMatrix gathered = tensors.gather(m);
    const size_t bytes_a_row = row_bytes(gathered.format, m.n_in);
    ensure(gathered.data.size() * 8 >= static_cast<size_t>(m.n_out) * bytes_a_row, "the rows are there");
    std::vector<float> row(static_cast<size_t>(m.n_in));
    for (int64_t i = 0; i < m.n_out; ++i)
      decode_row(gathered.format, gathered.bytes() + static_cast<size_t>(i) * bytes_a_row, row.data(), m.n_in);
  }
  return tensors.matrices().size();
}

}  // namespace ingot
