"""Shapes of real models, as tables: the sizes of a model, and the tensors and keys that GGUF files have for each kind of layer part.

Sizes and products of sizes stand for numbers. `i` is the number of a layer.
"""

SHAPES = {  # of Hugging Face's configs; `experts`: number, used by a token, FFN dim; `attention`: the layers that have it, if not all
    "smollm-135m": dict(arch="llama", layers=30, dim=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, tokens=49152, theta=1e4),
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, dim=896, heads=14, kv_heads=2, head_dim=64, ffn=4864, tokens=151936, theta=1e6),
    "qwen3-0.6b": dict(arch="qwen3", layers=28, dim=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, tokens=151936, theta=1e6),
    "llama-3.2-1b": dict(arch="llama", layers=16, dim=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, tokens=128256, theta=5e5),
    "llama-3.1-8b": dict(arch="llama", layers=32, dim=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, tokens=128256, theta=5e5),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, dim=2048, heads=32, kv_heads=4, head_dim=128, ffn=6144, tokens=151936, theta=1e6,
                          experts=(128, 8, 768)),
    "lfm2-350m": dict(arch="lfm2", layers=16, dim=1024, heads=16, kv_heads=8, head_dim=64, ffn=4608, tokens=65536, theta=1e6,
                      attention=(2, 5, 8, 10, 12, 14), conv=3),
    "lfm2-1.2b": dict(arch="lfm2", layers=16, dim=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, tokens=65536, theta=1e6,
                      attention=(2, 5, 8, 10, 12, 14), conv=3),
    "mamba-130m": dict(arch="mamba", layers=24, dim=768, inner=1536, state=16, rank=48, conv=4, tokens=50280),
    "mamba-1.4b": dict(arch="mamba", layers=48, dim=2048, inner=4096, state=16, rank=128, conv=4, tokens=50280),
    "mamba2-130m": dict(arch="mamba2", layers=24, dim=768, inner=1536, ssm_heads=24, state=128, conv=4, tokens=50288),
    "mamba2-1.3b": dict(arch="mamba2", layers=48, dim=2048, inner=4096, ssm_heads=64, state=128, conv=4, tokens=50288),
    "rwkv7-0.4b": dict(arch="rwkv7", layers=24, dim=1024, head_dim=64, ffn=4096, decay=64, rate=64, value=32, gate=128, tokens=65536),
    "rwkv7-1.5b": dict(arch="rwkv7", layers=24, dim=2048, head_dim=64, ffn=8192, decay=96, rate=96, value=64, gate=256, tokens=65536),
    "recurrentgemma-2b": dict(arch="recurrentgemma", layers=26, dim=2560, heads=10, kv_heads=1, head_dim=256, ffn=7680, tokens=256000,
                              theta=1e4, rope=128, window=2048, attention=range(2, 26, 3), conv=4),
    "kimi-linear-48b-a3b": dict(arch="kimi-linear", layers=27, dim=2304, heads=32, kv_heads=1, head_dim=128, ffn=9216, tokens=163840,
                                theta=1e4, attention=(*range(3, 26, 4), 26), conv=4, kv_rank=512, nope=128, rope=64, value=128,
                                experts=(256, 8, 1024), shared=1024, dense=1),
    "qwen3.5-0.8b": dict(arch="qwen35", layers=24, dim=1024, heads=8, kv_heads=2, head_dim=256, ffn=3584, tokens=248320, theta=1e7,
                         rope=64, attention=range(3, 24, 4), conv=4, key_heads=16, value_heads=16, key=128, value=128),
    "qwen3-next-80b-a3b": dict(arch="qwen3next", layers=48, dim=2048, heads=16, kv_heads=2, head_dim=256, ffn=5120, tokens=151936,
                               theta=1e7, rope=64, attention=range(3, 48, 4), conv=4, key_heads=16, value_heads=32, key=128, value=128,
                               experts=(512, 10, 512), shared=512),
    "granite-4.0-h-1b": dict(arch="granitehybrid", layers=40, dim=1536, heads=12, kv_heads=4, head_dim=128, ffn=4096, tokens=100352,
                             theta=1e4, attention=range(5, 40, 10), conv=4, inner=3072, ssm_heads=48, state=128),
    "falcon-h1-1.5b": dict(arch="falcon-h1", layers=24, dim=2048, heads=8, kv_heads=2, head_dim=128, ffn=4096, tokens=65536, theta=1e11,
                           conv=4, inner=3072, ssm_heads=48, state=256),
}

# The parts of a layer by architecture: of the layers with attention, and of the others, if these differ; then the tensors beside the layers.
TIED, OWN_HEAD = "token_embd output_norm", "token_embd output_norm output"
FAMILIES = {
    "llama": ("norm attention ffn_norm ffn", "", TIED),
    "qwen2": ("norm attention biases ffn_norm ffn", "", TIED),
    "qwen3": ("norm attention head_norms ffn_norm ffn", "", TIED),
    "qwen3moe": ("norm attention head_norms ffn_norm experts", "", TIED),
    "lfm2": ("norm attention head_norms ffn_norm ffn", "norm short_conv ffn_norm ffn", "token_embd embd_norm"),
    "mamba": ("norm mamba1", "", TIED),
    "mamba2": ("norm mamba2 mamba2_norm", "", TIED),
    "rwkv7": ("norm norm_bias time_mix channel_mix", "", OWN_HEAD + " embd_norm embd_norm_bias output_norm_bias"),
    "recurrentgemma": ("norm attention output_bias ffn_norm ffn ffn_biases", "norm rg_lru ffn_norm ffn ffn_biases", TIED),
    "kimi-linear": ("norm latent_attention ffn_norm experts router_bias shared_expert", "norm kda ffn_norm experts router_bias shared_expert",
                    OWN_HEAD),
    "qwen35": ("norm gated_attention head_norms post_norm ffn", "norm delta_net delta_gates post_norm ffn", TIED),
    "qwen3next": ("norm gated_attention head_norms post_norm experts shared_expert shared_gate",
                  "norm delta_net delta_gate_pairs post_norm experts shared_expert shared_gate", OWN_HEAD),
    "granitehybrid": ("norm attention ffn_norm ffn", "norm mamba2 mamba2_norm ffn_norm ffn", TIED),
    "falcon-h1": ("norm mamba2 attention ffn_norm_of_falcon ffn", "", OWN_HEAD),
}
DENSE = {"experts": "ffn", "router_bias": "", "shared_expert": "", "shared_gate": ""}  # the parts of the first `dense` layers

# The tensors of a part: a name, its dims, of which the first is the length of a row, and * if the tensor has the type of the file. The
# others are F32.
TENSORS = {
    "token_embd": "token_embd.weight dim tokens *",
    "output": "output.weight dim tokens *",
    "output_norm": "output_norm.weight dim",
    "output_norm_bias": "output_norm.bias dim",
    "embd_norm": "token_embd_norm.weight dim",
    "embd_norm_bias": "token_embd_norm.bias dim",
    "norm": "attn_norm.weight dim",
    "norm_bias": "attn_norm.bias dim",
    "ffn_norm": "ffn_norm.weight dim",
    "ffn_norm_of_falcon": "ffn_norm dim",
    "post_norm": "post_attention_norm.weight dim",
    "head_norms": "attn_q_norm.weight head_dim / attn_k_norm.weight head_dim",
    "attention": """attn_q.weight dim heads*head_dim * / attn_k.weight dim kv_heads*head_dim * / attn_v.weight dim kv_heads*head_dim *
        / attn_output.weight heads*head_dim dim *""",
    "biases": "attn_q.bias heads*head_dim / attn_k.bias kv_heads*head_dim / attn_v.bias kv_heads*head_dim",
    "output_bias": "attn_output.bias dim",
    "gated_attention": """attn_q.weight dim 2*heads*head_dim * / attn_k.weight dim kv_heads*head_dim *
        / attn_v.weight dim kv_heads*head_dim * / attn_output.weight heads*head_dim dim *""",
    "latent_attention": """attn_q.weight dim heads*(nope+rope) * / attn_kv_a_mqa.weight dim kv_rank+rope * / attn_kv_a_norm.weight kv_rank
        / attn_k_b.weight nope kv_rank heads * / attn_v_b.weight kv_rank value heads * / attn_output.weight heads*value dim *""",
    "ffn": "ffn_gate.weight dim ffn * / ffn_up.weight dim ffn * / ffn_down.weight ffn dim *",
    "ffn_biases": "ffn_gate.bias ffn / ffn_up.bias ffn / ffn_down.bias dim",
    "experts": """ffn_gate_inp.weight dim experts[0] / ffn_gate_exps.weight dim experts[2] experts[0] *
        / ffn_up_exps.weight dim experts[2] experts[0] * / ffn_down_exps.weight experts[2] dim experts[0] *""",
    "router_bias": "exp_probs_b.bias experts[0]",
    "shared_expert": "ffn_gate_shexp.weight dim shared * / ffn_up_shexp.weight dim shared * / ffn_down_shexp.weight shared dim *",
    "shared_gate": "ffn_gate_inp_shexp.weight dim",
    "short_conv": "shortconv.conv.weight conv dim / shortconv.in_proj.weight dim 3*dim * / shortconv.out_proj.weight dim dim *",
    "mamba1": """ssm_in.weight dim 2*inner * / ssm_conv1d.weight conv inner / ssm_conv1d.bias inner / ssm_x.weight inner rank+2*state *
        / ssm_dt.weight rank inner * / ssm_dt.bias inner / ssm_a state inner / ssm_d inner / ssm_out.weight inner dim *""",
    "mamba2": """ssm_in.weight dim 2*inner+2*state+ssm_heads * / ssm_conv1d.weight conv inner+2*state / ssm_conv1d.bias inner+2*state
        / ssm_dt.bias ssm_heads / ssm_a 1 ssm_heads / ssm_d 1 ssm_heads / ssm_out.weight inner dim *""",
    "mamba2_norm": "ssm_norm.weight inner 1",
    "time_mix": """time_mix_lerp_fused.weight dim 1 1 6 / time_mix_w0.weight dim / time_mix_w1.weight dim decay * / time_mix_w2.weight decay dim *
        / time_mix_a0.weight dim / time_mix_a1.weight dim rate * / time_mix_a2.weight rate dim *
        / time_mix_v0.weight dim / time_mix_v1.weight dim (value,rate)[i==0] * / time_mix_v2.weight (value,rate)[i==0] dim *
        / time_mix_g1.weight dim gate * / time_mix_g2.weight gate dim *
        / time_mix_k_k.weight dim / time_mix_k_a.weight dim / time_mix_r_k.weight dim / time_mix_ln.weight dim / time_mix_ln.bias dim
        / time_mix_receptance.weight dim dim * / time_mix_key.weight dim dim * / time_mix_value.weight dim dim *
        / time_mix_output.weight dim dim *""",
    "channel_mix": """attn_norm_2.weight dim / attn_norm_2.bias dim / channel_mix_lerp_k.weight dim
        / channel_mix_key.weight dim ffn * / channel_mix_value.weight ffn dim *""",
    "rg_lru": """rec_y.weight dim dim * / rec_y.bias dim / rec_x.weight dim dim * / rec_x.bias dim / rec_out.weight dim dim *
        / rec_out.bias dim / ssm_conv1d.weight conv dim / ssm_conv1d.bias dim / rec_decay dim
        / rec_input_gate.weight dim//heads dim//heads heads * / rec_input_gate.bias dim//heads heads
        / rec_decay_gate.weight dim//heads dim//heads heads * / rec_decay_gate.bias dim//heads heads""",
    "kda": """attn_q.weight dim heads*head_dim * / attn_k.weight dim heads*head_dim * / attn_v.weight dim heads*head_dim *
        / ssm_conv1d_q.weight conv 1 heads*head_dim / ssm_conv1d_k.weight conv 1 heads*head_dim / ssm_conv1d_v.weight conv 1 heads*head_dim
        / ssm_dt.bias heads*head_dim / ssm_a 1 heads / ssm_f_a.weight dim head_dim * / ssm_f_b.weight head_dim heads*head_dim *
        / ssm_beta.weight dim heads * / ssm_g_a.weight dim head_dim * / ssm_g_b.weight head_dim heads*head_dim *
        / ssm_norm.weight head_dim / attn_output.weight heads*head_dim dim *""",
    "delta_net": """attn_qkv.weight dim 2*key_heads*key+value_heads*value * / attn_gate.weight dim value_heads*value *
        / ssm_conv1d.weight conv 2*key_heads*key+value_heads*value / ssm_dt.bias value_heads / ssm_a value_heads / ssm_norm.weight value
        / ssm_out.weight value_heads*value dim *""",
    "delta_gates": "ssm_beta.weight dim value_heads * / ssm_alpha.weight dim value_heads *",
    "delta_gate_pairs": "ssm_ba.weight dim 2*value_heads *",
}

# The keys of a part, behind the architecture's name: a whole number, True, a number with a point, or a tuple with a number for each layer.
MODEL_KEYS = "block_count=layers context_length=32768 embedding_length=dim vocab_size=tokens feed_forward_length=ffn"
KEYS = {
    "attention": """attention.head_count=heads attention.head_count_kv=kv_heads_by_layer attention.key_length=head_dim
        attention.value_length=head_dim rope.dimension_count=rope rope.freq_base=theta""",
    "gated_attention": """attention.head_count=heads attention.head_count_kv=kv_heads attention.key_length=head_dim
        attention.value_length=head_dim rope.dimension_count=rope rope.freq_base=theta""",
    "latent_attention": """attention.head_count=heads attention.head_count_kv=kv_heads_by_layer attention.kv_lora_rank=kv_rank
        attention.key_length=kv_rank+rope attention.value_length=kv_rank attention.key_length_mla=nope+rope attention.value_length_mla=value
        rope.dimension_count=rope rope.freq_base=theta""",
    "experts": "expert_count=experts[0] expert_used_count=experts[1] expert_feed_forward_length=experts[2]",
    "router_bias": """expert_weights_scale=2.446 expert_weights_norm=True expert_gating_func=2 expert_group_count=1
        expert_group_used_count=1 leading_dense_block_count=dense""",
    "shared_expert": "expert_shared_count=1 expert_shared_feed_forward_length=shared",
    "short_conv": "shortconv.l_cache=conv",
    "mamba1": "ssm.conv_kernel=conv ssm.inner_size=inner ssm.state_size=state ssm.time_step_rank=rank attention.head_count=0",
    "mamba2": """ssm.conv_kernel=conv ssm.inner_size=inner ssm.state_size=state ssm.group_count=1 ssm.time_step_rank=ssm_heads
        attention.head_count=heads""",
    "time_mix": """attention.layer_norm_epsilon=1e-5 wkv.head_size=head_dim attention.decay_lora_rank=decay attention.iclr_lora_rank=rate
        attention.value_residual_mix_lora_rank=value attention.gate_lora_rank=gate attention.head_count=0""",
    "rg_lru": "ssm.conv_kernel=conv rec.head_count=heads rec.width=dim attention.sliding_window=window final_logit_softcapping=30.0",
    "kda": "ssm.conv_kernel=conv kda.head_dim=head_dim",
    "delta_net": """ssm.conv_kernel=conv ssm.state_size=key ssm.group_count=key_heads ssm.time_step_rank=value_heads
        ssm.inner_size=value_heads*value full_attention_interval=4""",
    "delta_gates": "rope.dimension_sections=(11,11,10,0)",
}

# Values of vectors that may not be 1: the decay is a logarithm's negative, and a step is softplus(its bias + ...).
VALUES = {"ssm_a": -1.0, "ssm_dt.bias": -2.0, "ssm_conv1d.weight": 0.25, "shortconv.conv.weight": 0.25, "ssm_conv1d_q.weight": 0.25,
          "ssm_conv1d_k.weight": 0.25, "ssm_conv1d_v.weight": 0.25}


def parts_of(shape, i):
    """The names of the parts of layer i."""
    with_attention, others, _ = FAMILIES[shape["arch"]]
    names = (with_attention if not others or i in shape["attention"] else others).split()
    return [DENSE.get(name, name) for name in names if DENSE.get(name, name)] if i < shape.get("dense", 0) else names


def sizes_of(shape, n_layers):
    """The sizes that the tables name."""
    sizes = {"heads": 0, "ffn": 0, "rope": shape.get("head_dim")} | shape | {"layers": n_layers}
    if "kv_heads" in shape:
        with_attention = shape["attention"] if FAMILIES[shape["arch"]][1] else range(n_layers)
        listed = tuple(shape["kv_heads"] if i in with_attention else 0 for i in range(n_layers))
        sizes["kv_heads_by_layer"] = listed if 0 in listed else shape["kv_heads"]
    return sizes


def keys_of(shape, n_layers):
    """The numbers of a file's metadata, by key."""
    sizes, found = sizes_of(shape, n_layers), {}
    parts = dict.fromkeys(part for i in range(n_layers) for part in parts_of(shape, i))
    for rows in [MODEL_KEYS, *(KEYS.get(part, "") for part in parts)]:
        for row in rows.split():
            key, value = row.split("=")
            found[key] = eval(value, {}, sizes)  # of the tables above
    return found


def tensors_of(shape, n_layers):
    """Yields (name, dims, whether it has the type of the file) of each tensor. The first of dims is the length of a row."""
    sizes = sizes_of(shape, n_layers)

    def rows(part, prefix):
        for row in TENSORS[part].split(" / "):
            name, *dims = row.split()
            yield prefix + name, [eval(dim, {}, sizes) for dim in dims if dim != "*"], dims[-1] == "*"

    for part in FAMILIES[shape["arch"]][2].split():
        yield from rows(part, "")
    for sizes["i"] in range(n_layers):
        for part in parts_of(shape, sizes["i"]):
            yield from rows(part, f"blk.{sizes['i']}.")
