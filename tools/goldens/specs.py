"""The tiny models of tests/data/models: a row of SPECS for each (make_models.py)."""
from dataclasses import dataclass, field

from transformers import (ApertusConfig, ArceeConfig, BambaConfig, FalconH1Config, FalconMambaConfig, JambaConfig, KimiLinearConfig, MambaConfig, RecurrentGemmaConfig, GraniteMoeHybridConfig, NemotronHConfig, Cohere2Config, Cohere2MoeConfig, Ernie4_5Config, Ernie4_5_MoeConfig, Glm4Config, HunYuanDenseV1Config,
                          LagunaConfig, Llama4TextConfig, Ministral3Config, Mistral4Config, MuseGlimmerTextConfig, Qwen2_5_VLTextConfig, Qwen3VLMoeTextConfig, Qwen3VLTextConfig, PhimoeConfig, SolarOpenConfig, Starcoder2Config, DeepseekV2Config, DeepseekV3Config, Exaone4Config, Gemma2Config, Gemma3nTextConfig, Gemma3TextConfig, Gemma4TextConfig, Gemma4UnifiedTextConfig, GemmaConfig, Glm4MoeConfig,
                          Glm4MoeLiteConfig, GptOssConfig, GraniteConfig, GraniteMoeConfig, Lfm2Config, Lfm2MoeConfig, Lfm3Config, LlamaConfig, Mamba2Config, MiniMaxM2Config, MistralConfig,
                          MixtralConfig, Olmo2Config, Olmo3Config, OlmoHybridConfig, OlmoeConfig, Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config,
                          Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3MoeConfig, Qwen3NextConfig, SeedOssConfig, SmolLM3Config)


@dataclass
class Spec:
    name: str
    config: type
    n_tokens: int  # prompt length: rarely a multiple of a cache block
    vocab: int
    types: dict  # GGUF tensor name pattern -> format of a matrix; the first match counts; vectors are always F32
    rope: dict = field(default_factory=dict)
    n_layers: int = 2
    dim: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 0  # 0: dim / n_heads, and the file has no key for it
    ffn: int = 96  # 0: the config has no such key
    eps: float = 1e-5
    tied: bool = False
    extra: dict = field(default_factory=dict)
    seed: int = 0  # 0: by the place in the list
    hf: str = ""  # "new", "old", "sharded" or "packed": also write a Hugging Face directory
    context: int = 256  # max_position_embeddings, if the rope does not state a context
    n_ctx: int = 0  # the context to run the model with, if the result depends on it
    gain: float = 1.0  # factor on the embedding or the output matrix, so that logits have a usual size
    push: float = 1.0  # factor on the layers' outputs, which a scaled embedding would otherwise hide


F32, F16, BF16 = {"*": "F32"}, {"*": "F16"}, {"*": "BF16"}
LLAMA3 = dict(rope_type="llama3", rope_theta=20000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)
YARN_BETAS = dict(rope_type="yarn", rope_theta=1e6, factor=2.5, original_max_position_embeddings=64, beta_fast=4.0,
                  beta_slow=0.5)
GEMMA3 = {"full_attention": dict(rope_type="linear", rope_theta=1e6, factor=8.0),
          "sliding_attention": dict(rope_type="default", rope_theta=1e4)}
GEMMA4 = {"full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25),
          "sliding_attention": dict(rope_type="default", rope_theta=1e4)}
GEMMA3N = {"full_attention": dict(rope_type="default", rope_theta=1e6), "sliding_attention": dict(rope_type="default", rope_theta=1e4)}
MISTRAL3 = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=1.0,
                llama_4_scaling_beta=0.4)
LAGUNA = {"full_attention": dict(rope_type="default", rope_theta=5e5, partial_rotary_factor=0.5),
          "sliding_attention": dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0)}
SF = ["sliding_attention", "full_attention"]
SFSF = SF * 2
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.02, 1.05, 1.1, 1.3, 1.4],
                long_factor=[1.1, 1.5, 2.6, 4.5, 9.0, 14.0])
PHI4 = dict(original_max_position_embeddings=32, sliding_window=None, partial_rotary_factor=0.75)
GPT_OSS = dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=4.0, beta_slow=0.5, original_max_position_embeddings=64,
               truncate=False)
LATENT = dict(q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, moe_intermediate_size=24)
DEEPSEEK_YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0)
QWEN_NEXT = dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.25)
DELTA = dict(full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=20,
             linear_conv_kernel_dim=4)
DELTA_MOE = DELTA | dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40)
OLMO3 = {"full_attention": YARN | dict(rope_theta=5e5), "sliding_attention": dict(rope_type="default", rope_theta=5e5)}
LLLGG = dict(sliding_window=13, sliding_window_pattern="LLLG", layer_types=["sliding_attention"] * 3 + ["full_attention"] * 2)
LA = ["linear_attention", "full_attention"]
MULTIPLIERS = dict(embedding_multiplier=1.7, attention_multiplier=0.2, residual_multiplier=0.45, logits_scaling=3.0)
MAMBA = dict(mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=6, mamba_chunk_size=8)
NEMOTRON = dict(layer_norm_epsilon=1e-5, mamba_num_heads=4, mamba_head_dim=6, n_groups=2, ssm_state_size=6, chunk_size=8)
# Powers of two, so that a matrix has 16 bits with its factor and without.
FALCON = dict(mamba_d_ssm=16, embedding_multiplier=4.0, lm_head_multiplier=0.5, mlp_multipliers=[0.5, 2.0], key_multiplier=0.5, attention_in_multiplier=2.0,
              attention_out_multiplier=0.5, ssm_multipliers=[0.5, 2.0, 4.0, 0.5, 2.0], ssm_in_multiplier=0.5, ssm_out_multiplier=2.0)
LFM3 = {"full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.5),
        "sliding_attention": dict(rope_type="default", rope_theta=1e4)}
LFM2 = dict(norm_eps=1e-5, layer_types=["conv", "full_attention", "conv"])
K_TYPES = {"token_embd*": "Q6_K", "*.0.attn_q*": "Q4_K", "*.0.attn_k*": "Q5_K", "*.0.attn_v*": "Q6_K",
           "*.0.ffn_gate*": "Q2_K", "*.0.ffn_up*": "Q4_K", "*.0.ffn_down*": "Q5_0", "*.1.attn_q*": "Q3_K",
           "*.1.attn_k*": "IQ4_XS", "*.1.attn_v*": "Q4_K", "*.1.ffn_gate*": "Q5_K", "*.1.ffn_up*": "Q3_K",
           "*.1.ffn_down*": "IQ4_NL", "*.attn_output*": "Q5_1"}  # rows below 256 fall back, as in real files
MIXED = {"token_embd*": "Q8_0", "output.weight": "Q5_0", "*.0.attn_[qk]*": "Q4_1", "*.0.*": "Q5_1",
         "*.1.attn_*": "IQ4_NL", "*.1.ffn_down*": "BF16", "*.1.*": "MXFP4"}

SPECS = [
    Spec("llama", LlamaConfig, 41, 261, F32, dim=32, n_heads=2, n_kv_heads=1, hf="new"),
    Spec("llama_f16", LlamaConfig, 45, 263, F16, dict(rope_theta=30000.0), tied=True),
    Spec("llama_bf16", LlamaConfig, 48, 259, BF16, dict(rope_theta=5000.0), dim=32, n_heads=8, n_kv_heads=2,
         head_dim=16, n_layers=3, hf="sharded"),
    Spec("llama_tied_llama3", LlamaConfig, 70, 261, F16, LLAMA3, dim=32, n_heads=4, n_kv_heads=1, head_dim=32,
         tied=True, hf="old"),
    Spec("llama_linear", LlamaConfig, 57, 269, F16, dict(rope_type="linear", factor=2.5, rope_theta=10000.0), dim=32,
         n_heads=2, n_kv_heads=1, n_layers=3, tied=True),
    Spec("llama_yarn", LlamaConfig, 67, 261, F16, YARN, dim=32, n_heads=4, n_kv_heads=1, head_dim=32, tied=True),
    Spec("llama_bias", LlamaConfig, 27, 267, F16, dict(rope_theta=10000.0), dim=32, eps=0.01, tied=True,
         extra=dict(attention_bias=True, mlp_bias=True)),
    Spec("mistral", MistralConfig, 53, 271, F16, dict(rope_theta=1e5), dim=32, n_heads=3, n_kv_heads=1, head_dim=32,
         extra=dict(sliding_window=None), hf="old"),
    Spec("qwen2", Qwen2Config, 47, 265, F16, dict(rope_theta=1e6), ffn=32, eps=1e-6, hf="new"),
    Spec("qwen2_tied", Qwen2Config, 59, 277, F16, dict(rope_theta=1e4), dim=32, n_heads=2, n_kv_heads=1, ffn=160,
         n_layers=3, eps=1e-6, tied=True),
    Spec("qwen3", Qwen3Config, 33, 261, F16, dict(rope_theta=1e6), dim=32, n_heads=2, n_kv_heads=1, head_dim=48, ffn=32,
         eps=1e-6),
    Spec("qwen3_tied_yarn", Qwen3Config, 66, 273, F16, YARN_BETAS, dim=32, n_heads=4, n_kv_heads=2, head_dim=32,
         eps=1e-3, tied=True, hf="new"),
    Spec("llama_q8_0", LlamaConfig, 44, 261, {"*": "Q8_0"}, dict(rope_theta=10000.0)),
    Spec("llama_q4_0", LlamaConfig, 46, 263, {"output.weight": "Q8_0", "*": "Q4_0"}, dict(rope_theta=10000.0),
         n_heads=4, n_kv_heads=2, head_dim=32, ffn=160),
    Spec("qwen2_mixed", Qwen2Config, 49, 267, MIXED, dict(rope_theta=1e6), eps=1e-6),
    Spec("qwen3_q8_0", Qwen3Config, 26, 261, {"*": "Q8_0"}, dict(rope_theta=1e6), n_heads=4, n_kv_heads=1,
         head_dim=48, ffn=160, eps=1e-6, tied=True),
    Spec("llama_k", LlamaConfig, 40, 261, K_TYPES, dict(rope_theta=10000.0), dim=256, n_heads=4, n_kv_heads=2,
         head_dim=32, tied=True),
    Spec("mistral_window", MistralConfig, 61, 265, F16, dict(rope_theta=1e4), dim=32, n_heads=2, n_kv_heads=1, ffn=64,
         tied=True, extra=dict(sliding_window=16), hf="new"),
    Spec("gemma", GemmaConfig, 43, 267, F16, dim=32, n_heads=3, n_kv_heads=1, head_dim=16, ffn=48, eps=1e-6, tied=True, push=4.0, hf="new"),
    Spec("gemma2", Gemma2Config, 57, 263, F16, dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=48, n_layers=3, eps=1e-6, tied=True, push=4.0,
         extra=dict(sliding_window=20, attn_logit_softcapping=3.0, final_logit_softcapping=5.0, query_pre_attn_scalar=12), hf="new"),
    Spec("gemma3", Gemma3TextConfig, 61, 269, F16, GEMMA3, dim=32, n_heads=4, n_kv_heads=1, head_dim=16, ffn=40, n_layers=7, eps=1e-6,
         tied=True, push=3.0, extra=dict(sliding_window=12, query_pre_attn_scalar=16), hf="new"),
    Spec("phi3", Phi3Config, 52, 261, F16, dict(rope_theta=10000.0), dim=32, n_heads=3, n_kv_heads=1, head_dim=16, ffn=40, extra=dict(
        sliding_window=19, original_max_position_embeddings=256), hf="new"),
    Spec("phi3_long", Phi3Config, 71, 265, F16, LONGROPE, dim=48, n_heads=3, n_kv_heads=1, ffn=40, tied=True, extra=PHI4, hf="new"),
    Spec("phi3_short", Phi3Config, 49, 271, F16, LONGROPE, dim=48, n_heads=3, n_kv_heads=3, ffn=40, tied=True, n_ctx=128,
         extra=PHI4 | dict(original_max_position_embeddings=128), hf="new"),
    Spec("smollm3", SmolLM3Config, 47, 267, F16, dict(rope_theta=5e6), dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=5, eps=1e-6,
         tied=True, hf="new"),
    Spec("granite", GraniteConfig, 55, 263, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, ffn=40, gain=2.0, hf="new",
         extra=dict(embedding_multiplier=1.7, attention_multiplier=0.2, residual_multiplier=0.35, logits_scaling=3.0)),
    Spec("olmo2", Olmo2Config, 45, 265, F16, dict(rope_theta=5e5), dim=32, n_heads=4, n_kv_heads=2, ffn=40, eps=1e-6, hf="new"),
    Spec("mixtral", MixtralConfig, 46, 267, F16, dict(rope_theta=1e6), dim=32, n_heads=4, n_kv_heads=2, ffn=40, hf="new",
         extra=dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
    Spec("qwen2moe", Qwen2MoeConfig, 53, 263, F16, dict(rope_theta=1e6), dim=32, n_heads=4, n_kv_heads=2, ffn=72, eps=1e-6, hf="new",
         extra=dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=56, norm_topk_prob=False)),
    Spec("qwen3moe", Qwen3MoeConfig, 49, 271, F16, dict(rope_theta=1e6), dim=32, n_heads=4, n_kv_heads=1, head_dim=16, ffn=72, eps=1e-6,
         hf="new", extra=dict(num_experts=7, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True)),
    Spec("granitemoe", GraniteMoeConfig, 51, 261, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, ffn=40, gain=2.0, hf="new",
         extra=dict(embedding_multiplier=1.7, attention_multiplier=0.2, residual_multiplier=0.45, logits_scaling=3.0, num_local_experts=6,
                    num_experts_per_tok=3)),
    Spec("qwen3moe_q8_0", Qwen3MoeConfig, 40, 265, {"*": "Q8_0"}, dict(rope_theta=1e6), dim=64, n_heads=4, n_kv_heads=2, head_dim=32, ffn=72,
         eps=1e-6, tied=True, extra=dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)),
    Spec("gpt_oss", GptOssConfig, 58, 269, F16, GPT_OSS, dim=32, n_heads=4, n_kv_heads=2, head_dim=16, ffn=40, n_layers=3, hf="new",
         extra=dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=20)),
    Spec("gpt_oss_mxfp4", GptOssConfig, 44, 263, {"*_exps.weight": "MXFP4", "*": "F16"}, GPT_OSS, dim=64, n_heads=4, n_kv_heads=2, head_dim=16,
         ffn=32, extra=dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=16)),
    Spec("deepseek2_lite", DeepseekV2Config, 47, 265, F16, dict(rope_theta=1e4), dim=32, n_heads=2, n_kv_heads=2, head_dim=8, ffn=56, eps=1e-6, hf="new",
         extra=LATENT | dict(q_lora_rank=None, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1)),
    Spec("deepseek2_groups", DeepseekV2Config, 50, 261, F16, DEEPSEEK_YARN, dim=32, n_heads=4, n_kv_heads=4, head_dim=8, ffn=56, eps=1e-6, hf="new",
         extra=LATENT | dict(n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=0, n_group=4, topk_group=2,
                             topk_method="group_limited_greedy", routed_scaling_factor=1.5)),
    Spec("deepseek3", DeepseekV3Config, 55, 267, F16, DEEPSEEK_YARN, dim=40, n_heads=5, n_kv_heads=5, head_dim=8, ffn=56, eps=1e-6, n_layers=3, hf="new",
         extra=LATENT | dict(n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1, n_group=4, topk_group=2,
                             norm_topk_prob=True, routed_scaling_factor=2.0)),
    Spec("qwen3next", Qwen3NextConfig, 71, 263, F16, QWEN_NEXT, dim=32, n_heads=4, n_kv_heads=2, head_dim=24, ffn=56, eps=1e-6, n_layers=4,
         hf="new", extra=DELTA_MOE),
    Spec("qwen35", Qwen3_5TextConfig, 83, 265, F16, QWEN_NEXT, dim=40, n_heads=3, n_kv_heads=1, head_dim=24, ffn=56, eps=1e-6, n_layers=4,
         tied=True, hf="new", extra=DELTA),
    Spec("qwen35_even", Qwen3_5TextConfig, 35, 261, F16, QWEN_NEXT, dim=32, n_heads=2, n_kv_heads=2, head_dim=16, ffn=48, eps=1e-6, n_layers=3,
         extra=dict(full_attention_interval=3, linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=8, linear_value_head_dim=8,
                    linear_conv_kernel_dim=3)),
    Spec("qwen35moe", Qwen3_5MoeTextConfig, 66, 267, F16, QWEN_NEXT, dim=32, n_heads=4, n_kv_heads=1, head_dim=16, ffn=0, eps=1e-6, n_layers=4,
         hf="packed", extra=DELTA_MOE),
    Spec("qwen35_q8_0", Qwen3_5TextConfig, 45, 269, {"*": "Q8_0"}, QWEN_NEXT, dim=64, n_heads=4, n_kv_heads=2, head_dim=32, ffn=96, eps=1e-6,
         n_layers=2, tied=True, extra=DELTA | dict(linear_value_head_dim=32, linear_key_head_dim=16, linear_num_value_heads=4)),
    Spec("olmo3", Olmo3Config, 61, 267, F16, OLMO3, dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=5, eps=1e-6, hf="new",
         extra=dict(sliding_window=14)),
    Spec("olmoe", OlmoeConfig, 47, 263, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, ffn=24, hf="new",
         extra=dict(num_experts=6, num_experts_per_tok=3)),
    Spec("seed_oss", SeedOssConfig, 45, 269, F16, dict(rope_theta=1e7), dim=32, n_heads=4, n_kv_heads=1, head_dim=12, ffn=40, eps=1e-6, hf="new"),
    Spec("exaone4", Exaone4Config, 63, 265, F16, LLAMA3, dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=5, hf="new", extra=LLLGG),
    Spec("glm4_moe", Glm4MoeConfig, 51, 261, F16, dict(rope_theta=1e6, partial_rotary_factor=0.5), dim=32, n_heads=4, n_kv_heads=2, head_dim=12,
         ffn=56, n_layers=3, hf="new", extra=dict(n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=24,
                                                  first_k_dense_replace=1, routed_scaling_factor=1.5, attention_bias=True, use_qk_norm=True,
                                                  num_mtp_layers=0)),
    Spec("glm4_moe_lite", Glm4MoeLiteConfig, 53, 263, F16, dict(rope_theta=1e6), dim=40, n_heads=5, n_kv_heads=5, head_dim=8, ffn=56, n_layers=3,
         hf="new", extra=LATENT | dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=1.8)),
    Spec("minimax_m2", MiniMaxM2Config, 49, 271, F16, dict(rope_theta=5e6, partial_rotary_factor=0.5), dim=32, n_heads=4, n_kv_heads=2, head_dim=12,
         ffn=24, eps=1e-6, hf="new", extra=dict(num_local_experts=7, num_experts_per_tok=2)),
    Spec("gemma4_e", Gemma4TextConfig, 35, 261, F16, GEMMA4, dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=24, n_layers=4, eps=1e-6, tied=True, push=3.0,
         hf="new", extra=dict(sliding_window=9, layer_types=SFSF, num_kv_shared_layers=2, use_double_wide_mlp=True, global_head_dim=20,
                              hidden_size_per_layer_input=8, vocab_size_per_layer_input=261, final_logit_softcapping=6.0)),
    Spec("gemma4_moe", Gemma4TextConfig, 33, 259, F16, GEMMA4, dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=24, n_layers=2, eps=1e-6, tied=True, push=3.0,
         hf="new", extra=dict(sliding_window=10, layer_types=SF, global_head_dim=24, num_global_key_value_heads=1, attention_k_eq_v=True,
                              hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=16)),
    Spec("gemma4_dense", Gemma4UnifiedTextConfig, 34, 260, F16, GEMMA4, dim=32, n_heads=4, n_kv_heads=4, head_dim=8, ffn=24, n_layers=2, eps=1e-6, tied=True,
         push=3.0, hf="new", extra=dict(sliding_window=11, layer_types=SF, global_head_dim=16, num_global_key_value_heads=2, attention_k_eq_v=True,
                                        final_logit_softcapping=9.0)),
    Spec("gemma3n", Gemma3nTextConfig, 29, 259, F16, GEMMA3N, dim=16, n_heads=2, n_kv_heads=1, head_dim=12, ffn=24, n_layers=4, eps=1e-6, tied=True, push=2.0,
         hf="new", extra=dict(sliding_window=9, layer_types=SFSF, num_kv_shared_layers=2, hidden_size_per_layer_input=6, vocab_size_per_layer_input=259,
                              final_logit_softcapping=9.0, activation_sparsity_pattern=[0.8, 0.0, 0.6, 0.0])),
    Spec("ministral3", Ministral3Config, 47, 261, F16, MISTRAL3, dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, hf="new"),
    Spec("mistral4", Mistral4Config, 43, 260, F16, MISTRAL3, dim=32, n_heads=4, n_kv_heads=4, head_dim=24, ffn=40, eps=1e-6, hf="new",
         extra=LATENT | dict(n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=0, n_group=1, topk_group=1)),
    Spec("cohere2", Cohere2Config, 37, 261, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=2, tied=True, gain=16.0, push=6.0, hf="new",
         extra=dict(layer_norm_eps=1e-5, sliding_window=11, layer_types=SF, logit_scale=0.0625)),
    Spec("cohere2_moe", Cohere2MoeConfig, 35, 259, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, head_dim=8, ffn=24, n_layers=2, tied=True, gain=16.0, push=6.0,
         hf="new", extra=dict(layer_norm_eps=1e-5, sliding_window=10, layer_types=SF, logit_scale=0.0625, num_experts=5, num_experts_per_tok=2, num_shared_experts=2,
                              expert_selection_fn="sigmoid", mlp_layer_types=["dense", "sparse"], prefix_dense_intermediate_size=40,
                              prefix_dense_sliding_window_pattern=2)),
    Spec("glm4", Glm4Config, 35, 260, F16, dict(rope_theta=1e4, partial_rotary_factor=0.5), dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, hf="new",
         extra=dict(attention_bias=True)),
    Spec("ernie4_5", Ernie4_5Config, 34, 261, F16, dict(rope_theta=5e5), dim=32, n_heads=4, n_kv_heads=1, head_dim=12, ffn=40, tied=True, hf="new"),
    Spec("ernie4_5_moe", Ernie4_5_MoeConfig, 33, 259, F16, dict(rope_theta=5e5), dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=2, tied=True, hf="new",
         extra=dict(moe_num_experts=5, moe_k=2, moe_num_shared_experts=1, moe_intermediate_size=24, moe_layer_start_index=1)),
    Spec("starcoder2", Starcoder2Config, 36, 260, F16, dict(rope_theta=1e5), dim=32, n_heads=4, n_kv_heads=2, ffn=48, tied=True, hf="new",
         extra=dict(norm_epsilon=1e-5, sliding_window=13)),
    Spec("apertus", ApertusConfig, 37, 261, F16, LLAMA3, dim=32, n_heads=4, n_kv_heads=2, ffn=48, hf="new"),
    Spec("arcee", ArceeConfig, 34, 259, F16, YARN, dim=32, n_heads=4, n_kv_heads=2, ffn=48, hf="new"),
    Spec("hunyuan_dense", HunYuanDenseV1Config, 35, 260, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, tied=True, hf="new"),
    Spec("llama4", Llama4TextConfig, 41, 259, F16, dict(rope_theta=5e5), dim=32, n_heads=4, n_kv_heads=2, head_dim=8, ffn=24, n_layers=4, hf="new",
         extra=dict(intermediate_size_mlp=40, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2)),
    Spec("phimoe", PhimoeConfig, 33, 259, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, ffn=24, hf="new",
         extra=dict(num_local_experts=5, num_experts_per_tok=2, router_jitter_noise=0.01)),
    Spec("solar_open", SolarOpenConfig, 34, 261, F16, dict(rope_theta=1e6), dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, hf="new",
         extra=dict(n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=24, routed_scaling_factor=1.5)),
    Spec("laguna", LagunaConfig, 37, 260, F16, LAGUNA, dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, n_layers=3, hf="new",
         extra=dict(sliding_window=11, layer_types=["full_attention", "sliding_attention", "full_attention"], num_attention_heads_per_layer=[4, 6, 4],
                    mlp_layer_types=["dense", "sparse", "sparse"], num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24,
                    shared_expert_intermediate_size=32, moe_routed_scaling_factor=1.5)),
    Spec("muse_glimmer", MuseGlimmerTextConfig, 33, 259, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=2, head_dim=8, ffn=24, n_layers=4, gain=5.0,
         hf="new", extra=dict(sliding_window=11)),
    Spec("qwen2_5_vl", Qwen2_5_VLTextConfig, 34, 259, F16, dict(rope_theta=1e6, mrope_section=[1, 1, 2]), dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=2, hf="new"),
    Spec("qwen3_vl", Qwen3VLTextConfig, 33, 259, F16, dict(rope_theta=1e6, mrope_section=[2, 2, 2]), dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, n_layers=2,
         eps=1e-6, hf="new"),
    Spec("qwen3_vl_moe", Qwen3VLMoeTextConfig, 32, 260, F16, dict(rope_theta=1e6, mrope_section=[3, 2, 1]), dim=32, n_heads=4, n_kv_heads=2, head_dim=12, ffn=40, n_layers=2,
         eps=1e-6, hf="new", extra=dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24)),
    Spec("lfm2", Lfm2Config, 25, 259, F16, dict(rope_theta=1e6), dim=16, n_heads=2, n_kv_heads=1, ffn=36, n_layers=3, tied=True, seed=1049, hf="new",
         extra=LFM2 | dict(block_multiple_of=7, block_ffn_dim_multiplier=1.2)),
    Spec("lfm2_moe", Lfm2MoeConfig, 23, 259, F16, dict(rope_theta=1e6), dim=16, n_heads=2, n_kv_heads=1, ffn=24, n_layers=3, tied=True, seed=1050, hf="new",
         extra=LFM2 | dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8, num_dense_layers=1, conv_L_cache=4)),
    Spec("lfm3", Lfm3Config, 25, 259, F16, LFM3, dim=16, n_heads=2, n_kv_heads=1, head_dim=8, ffn=24, n_layers=3, tied=True, seed=1064, hf="new",
         extra=dict(norm_eps=1e-5, layer_types=["conv", "sliding_attention", "full_attention"], sliding_window=9, conv_L_cache=7)),
    Spec("mamba2", Mamba2Config, 23, 259, F16, dim=16, n_heads=1, n_kv_heads=1, head_dim=8, ffn=0, n_layers=2, gain=1.4, seed=1051, hf="new",
         extra=dict(layer_norm_epsilon=1e-5, num_heads=4, n_groups=2, state_size=6, conv_kernel=4, chunk_size=8)),
    Spec("mamba", MambaConfig, 17, 259, F16, dim=16, n_heads=1, n_kv_heads=1, head_dim=8, ffn=0, n_layers=2, tied=True, gain=1.4, seed=1058, hf="new",
         extra=dict(layer_norm_epsilon=1e-5, state_size=6, time_step_rank=3)),
    Spec("falcon_mamba", FalconMambaConfig, 17, 259, F16, dim=8, n_heads=1, n_kv_heads=1, head_dim=8, ffn=0, n_layers=2, tied=True, gain=1.4, seed=1059, hf="new",
         extra=dict(layer_norm_epsilon=1e-5, mixer_rms_eps=1e-5, state_size=6, time_step_rank=3)),
    Spec("jamba", JambaConfig, 17, 259, F16, dim=8, n_heads=2, n_kv_heads=1, ffn=8, n_layers=3, tied=True, seed=1060, hf="new",
         extra=dict(num_experts=3, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=0, mamba_d_state=6,
                    mamba_dt_rank=3)),
    Spec("kimi_linear", KimiLinearConfig, 17, 259, F16, dim=8, n_heads=2, n_kv_heads=2, ffn=16, n_layers=2, seed=1061, hf="new",
         extra=dict(layer_types=LA, mlp_layer_types=["dense", "sparse"], num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                    kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, linear_head_dim=6, linear_num_heads=2)),
    Spec("olmo_hybrid", OlmoHybridConfig, 17, 259, F16, dict(rope_theta=None), dim=16, n_heads=2, n_kv_heads=1, ffn=16, n_layers=2, eps=1e-6, seed=1063, hf="new",
         extra=dict(layer_types=LA, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)),
    Spec("recurrent_gemma", RecurrentGemmaConfig, 17, 259, F16, dict(rope_theta=1e4, partial_rotary_factor=0.5), dim=24, n_heads=2, n_kv_heads=1, ffn=32, n_layers=2,
         eps=1e-6, tied=True, push=2.0, seed=1062, hf="new", extra=dict(lru_width=16, attention_window_size=9, logits_soft_cap=9.0, block_types=["recurrent", "attention"])),
    Spec("granite_hybrid", GraniteMoeHybridConfig, 17, 259, F16, dim=16, n_heads=2, n_kv_heads=1, ffn=8, n_layers=2, tied=True, gain=2.0, seed=1052, hf="new",
         extra=MULTIPLIERS | MAMBA | dict(layer_types=LA, num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=12)),
    Spec("granite_hybrid_dense", GraniteMoeHybridConfig, 17, 259, F16, dim=16, n_heads=2, n_kv_heads=1, ffn=24, n_layers=2, tied=True, gain=2.0, seed=1053,
         extra=MULTIPLIERS | MAMBA | dict(layer_types=LA, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=24, position_embedding_type="rope")),
    Spec("bamba", BambaConfig, 17, 259, F16, dict(rope_theta=1e4), dim=16, n_heads=2, n_kv_heads=1, ffn=24, n_layers=2, tied=True, seed=1054, hf="new",
         extra=MAMBA | dict(attn_layer_indices=[1])),
    Spec("nemotron_h", NemotronHConfig, 17, 259, F16, dim=8, n_heads=2, n_kv_heads=1, head_dim=8, ffn=16, n_layers=4, seed=1055, hf="old",
         extra=NEMOTRON | dict(layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"])),
    Spec("nemotron_h_moe", NemotronHConfig, 17, 259, F16, dim=8, n_heads=2, n_kv_heads=1, head_dim=8, ffn=16, n_layers=4, seed=1056, hf="new",
         extra=NEMOTRON | dict(layers_block_type=["linear_attention", "moe", "full_attention", "moe"], n_routed_experts=4, num_experts_per_tok=2,
                               moe_intermediate_size=8, moe_shared_expert_intermediate_size=16, moe_latent_size=8, routed_scaling_factor=1.5)),
    Spec("falcon_h1", FalconH1Config, 17, 259, F16, dict(rope_theta=1e4), dim=8, n_heads=2, n_kv_heads=1, head_dim=8, ffn=16, n_layers=2, seed=1057, hf="new",
         extra=MAMBA | FALCON),
]
