// Writes the seeds of the config.json fuzzer into the folder given as the first argument: both generations of keys,
// each kind of rope, each method of quantization.
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_hf_config FOLDER\n", stderr);
    return 2;
  }
  const std::string sizes =
      R"("model_type":"m","num_hidden_layers":2,"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":96,)"
      R"("vocab_size":261,"max_position_embeddings":256,"rms_norm_eps":1e-05)";
  const std::pair<const char*, std::string> seeds[] = {
      {"smallest", "{" + sizes + "}"},
      {"old", "{" + sizes + R"(,"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2.0},"torch_dtype":"bfloat16","head_dim":null,"eos_token_id":2})"},
      {"new", "{" + sizes + R"(,"rope_parameters":{"rope_theta":1e4,"rope_type":"default"},"dtype":"float16","head_dim":16,"eos_token_id":[1,2]})"},
      {"llama3", "{" + sizes + R"(,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":32}})"},
      {"yarn", "{" + sizes + R"(,"rope_scaling":{"rope_type":"yarn","factor":4,"beta_fast":32,"beta_slow":1,"mscale":1,"mscale_all_dim":1,"attention_factor":0.5,"truncate":false}})"},
      {"window", "{" + sizes + R"(,"sliding_window":8,"use_sliding_window":true,"max_window_layers":1,"layer_types":["full_attention","sliding_attention"]})"},
      {"nested", R"({"model_type":"w","eos_token_id":3,"text_config":{)" + sizes + R"(,"tie_word_embeddings":true,"hidden_act":"silu","bos_token_id":1}})"},
      {"mlx", "{" + sizes + R"(,"quantization":{"group_size":64,"bits":4,"mode":"affine","lm_head":{"group_size":32,"bits":8},"a":false,"b":{"mode":"mxfp4"}}})"},
      {"gptq", "{" + sizes + R"(,"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true,"sym":false,"checkpoint_format":"gptq_v2"}})"},
      {"awq", "{" + sizes + R"(,"quantization_config":{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm","zero_point":true}})"},
      {"awq_gemv", "{" + sizes + R"(,"quantization_config":{"quant_method":"awq","w_bit":4,"q_group_size":64,"version":"gemv"}})"},
      {"gptq_dynamic", "{" + sizes + R"(,"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{"-:.*lm_head":{},"+:.*\\.0\\.":{"bits":8,"group_size":32,"sym":true}}}})"},
      {"nvfp4", "{" + sizes + R"(,"quantization_config":{"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{"g":{"targets":["Linear"],)"
                    R"("format":"nvfp4-pack-quantized","weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16}}}}})"},
      {"fp8", "{" + sizes + R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e4m3"}})"},
      {"compressed", "{" + sizes + R"(,"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":{"targets":["re:.*q_proj","Linear"],)"
                         R"("weights":{"num_bits":4,"type":"int","symmetric":false,"strategy":"group","group_size":32}}},"ignore":["lm_head"],"sparsity_config":{"format":"dense"}}})"},
  };
  std::filesystem::create_directories(argv[1]);
  for (const auto& [name, text] : seeds)
    ingot::write_file(std::string(argv[1]) + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}
