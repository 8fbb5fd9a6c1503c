"""How llama.cpp's converter writes ears, an encoder of Whisper's type and a projector, as an mmproj file."""
import gguf
import numpy as np

WHOLE = {"conv1": "a.conv1d.1", "conv2": "a.conv1d.2", "embed_positions": "a.position_embd", "layer_norm": "a.post_ln"}
LAYER = {"self_attn_layer_norm": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out", "final_layer_norm": "ln2", "fc1": "ffn_up",
         "fc2": "ffn_down"}
PROJECTOR = {"ln_pre": "mm.a.norm_pre", "linear_1": "mm.a.mlp.1", "ln_mid": "mm.a.norm_mid", "linear_2": "mm.a.mlp.2",
             "linear": "mm.a.fc"}


def encoder_name(stem):
    """The name of a tensor of the encoder in a GGUF file."""
    if stem in WHOLE:
        return WHOLE[stem]
    _, layer, rest = stem.split(".", 2)
    return f"a.blk.{layer}.{LAYER[rest]}"


def ear_tensors(model):
    """The names in a GGUF file, and the values in its types, of a model's audio_tower and multi_modal_projector."""
    for part, rename in ((model.audio_tower, encoder_name), (model.multi_modal_projector, PROJECTOR.get)):
        for name, tensor in part.state_dict().items():
            stem, kind = name.rsplit(".", 1)
            values = tensor.float().numpy()
            # The table of positions and vectors are F32 in such files; matrices and kernels keep their type.
            is_matrix = values.ndim > 1 and stem != "embed_positions"
            if stem.startswith("conv") and kind == "bias":
                values = values[:, None]
            yield f"{rename(stem)}.{kind}", values.astype(np.float16 if is_matrix else np.float32)


def write_mmproj(path, projector, model, text_dim, stack):
    """stack: rows of the encoder that the projector puts side by side; 0 if the family has no such key."""
    c = model.audio_tower.config
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("general.type", "mmproj")
    writer.add_clip_has_audio_encoder(True)
    writer.add_clip_projector_type(projector)
    writer.add_audio_projection_dim(text_dim)
    writer.add_audio_embedding_length(c.d_model)
    writer.add_audio_feed_forward_length(c.encoder_ffn_dim)
    writer.add_audio_block_count(c.encoder_layers)
    writer.add_audio_head_count(c.encoder_attention_heads)
    writer.add_audio_num_mel_bins(c.num_mel_bins)
    writer.add_audio_attention_layernorm_eps(model.audio_tower.layer_norm.eps)
    if stack:
        writer.add_audio_stack_factor(stack)
    for name, values in ear_tensors(model):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
