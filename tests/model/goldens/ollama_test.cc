// Hybrids in Ollama's dialect of GGUF, from Ollama's own converter: KV heads listed by layer, other names, a
// feed-forward of length 0, tensors of a vision tower and of layers that draft tokens. The expected logits are those of
// transformers.
#include "model/golden_models.h"

#include "io/gguf/writer.h"

namespace ingot {
namespace {

// A golden's file, with its keys changed by `edit`.
std::vector<uint8_t> in_dialect(const Gguf& golden, const std::function<void(GgufWriter&)>& edit) {
  GgufWriter writer;
  for (const Metadata::Entry& entry : golden.metadata().entries()) writer.set(entry.key, entry.value);
  edit(writer);
  for (const TensorInfo& tensor : golden.tensors()) {
    std::string name(tensor.name);
    if (name.ends_with(".ssm_dt.bias")) name.resize(name.size() - 5);
    const std::span<const uint8_t> data = golden.data(tensor);
    writer.add_tensor(name, tensor.ggml_type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      {data.begin(), data.end()});
  }
  for (const char* name : {"v.patch_embed.weight", "mtp.norm.weight"})
    writer.add_tensor(name, 0, {32}, std::vector<uint8_t>(128));
  return writer.to_bytes();
}

TEST(Ollama, HybridsHaveTheSameLogits) {
  for (const std::string name : {"qwen35", "qwen35moe"}) {
    const Golden golden = read_golden(name);
    const Gguf file = Gguf::open((kModels / (name + ".gguf")).string());
    const uint32_t n_layers = file.metadata().get_u32(name + ".block_count"),
                   n_kv_heads = file.metadata().get_u32(name + ".attention.head_count_kv");
    const std::vector<uint8_t> bytes = in_dialect(file, [&](GgufWriter& w) {
      auto set = [&](const char* key, auto value) { w.set(name + "." + key, value); };
      std::vector<uint32_t> kv_heads(n_layers);
      for (uint32_t i = 1; i < n_layers; i += 2) kv_heads[i] = n_kv_heads;
      set("attention.head_count_kv", kv_heads);
      set("full_attention_interval", uint32_t{4});  // differs from the list, which takes precedence
      set("ssm.v_head_reordered", true);
      set("rope.mrope_interleaved", true);
      set("rope.mrope_section", std::vector<int32_t>{1, 1, 1});
      set("vision.block_count", uint32_t{2});
      if (name == "qwen35moe") set("feed_forward_length", uint32_t{0});
      if (name == "qwen35moe") set("norm_top_k_prob", true);
    });
    const auto dialect = std::make_shared<const Gguf>(Gguf::parse(bytes, "ollama.gguf"));
    const RunnerOptions options{
        .backend = {.device = "ref"}, .max_batch_tokens = 512, .max_logits = 512, .kv_dtype = DType::kF32};
    Ranks runner(config_from_gguf(*dialect), gguf_source(dialect), options, nullptr);
    EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, 512), golden.logits), 1e-4) << name;
  }
}

}  // namespace
}  // namespace ingot
