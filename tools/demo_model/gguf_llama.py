"""Writes a Llama of these tools as GGUF, with the keys, names and rope layout that llama.cpp's converter gives a Llama.

Matrices get the type that the caller names, norms stay F32. Rows of Q and K are permuted from halves (i, i + n/2) to the neighbouring pairs (2i, 2i + 1)
that rope takes in a GGUF llama.
"""

import gguf
import numpy as np

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def permute(rows, n_heads):  # [n_heads * head_dim, dim]
    return rows.reshape(n_heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def add_keys(writer, c, name, size, description, kind):
    """c: the fields of model.Config; kind: the type of matrices"""
    writer.add_type("model")
    writer.add_name(name)
    writer.add_description(description)
    writer.add_license("apache-2.0")
    writer.add_size_label(size)
    writer.add_languages(["en"])
    writer.add_block_count(c["n_layers"])
    writer.add_context_length(c["context"])
    writer.add_embedding_length(c["dim"])
    writer.add_feed_forward_length(c["ffn_dim"])
    writer.add_head_count(c["n_heads"])
    writer.add_head_count_kv(c["n_kv_heads"])
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_layer_norm_rms_eps(c["norm_eps"])
    writer.add_vocab_size(c["vocab_size"])
    writer.add_rope_dimension_count(c["dim"] // c["n_heads"])
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind.name}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_tokenizer(writer, tokenizer, template, kinds, special):
    """kinds: of tokens that are not ordinary text; special: the tokens of the roles bos, eos, eot and pad"""
    vocab = {i: t for t, i in tokenizer["model"]["vocab"].items()}
    vocab.update({t["id"]: t["content"] for t in tokenizer["added_tokens"]})
    tokens = [vocab[i] for i in range(len(vocab))]
    ids = {t: i for i, t in vocab.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(t, gguf.TokenType.NORMAL) for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    for role, token in special.items():
        getattr(writer, f"add_{role}_token_id")(ids[token])
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(template)


def add_tensors(writer, state, n_heads, n_kv_heads, kind):
    for name, value in state.items():
        if name.endswith("q_proj.weight"):
            value = permute(value, n_heads)
        elif name.endswith("k_proj.weight"):
            value = permute(value, n_kv_heads)
        if value.ndim == 1:
            writer.add_tensor(gguf_name(name), value.astype(np.float32))
        else:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(value.astype(np.float32), kind), raw_dtype=kind)
