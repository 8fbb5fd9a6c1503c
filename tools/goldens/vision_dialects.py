"""How llama.cpp's converter writes the towers of each family as an mmproj file."""
import gguf
import numpy as np

SIGLIP = {"layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
          "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def siglip_name(name):
    """The name of a tensor of a SigLIP tower, after its prefix, in a GGUF file."""
    whole = {"embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd",
             "post_layernorm": "v.post_ln"}
    stem, kind = name.rsplit(".", 1)
    if stem in whole:
        return f"{whole[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"v.blk.{layer}.{SIGLIP[rest]}.{kind}"


def common_keys(writer, vision, text_dim, projector, images):
    writer.add_string("general.type", "mmproj")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(projector)
    writer.add_vision_projection_dim(text_dim)
    writer.add_vision_embedding_length(vision.hidden_size)
    writer.add_vision_feed_forward_length(vision.intermediate_size)
    writer.add_vision_patch_size(vision.patch_size)
    writer.add_vision_image_mean(list(map(float, images.image_mean)))
    writer.add_vision_image_std(list(map(float, images.image_std)))


def siglip_keys(writer, vision):
    writer.add_vision_image_size(vision.image_size)
    writer.add_vision_block_count(vision.num_hidden_layers)
    writer.add_vision_head_count(vision.num_attention_heads)
    writer.add_vision_attention_layernorm_eps(vision.layer_norm_eps)
    writer.add_vision_use_gelu(True)


def idefics3(writer, model, images):
    c = model.config
    common_keys(writer, c.vision_config, c.text_config.hidden_size, "idefics3", images)
    siglip_keys(writer, c.vision_config)
    writer.add_vision_projector_scale_factor(c.scale_factor)
    writer.add_vision_preproc_image_size(images.size["longest_edge"])
    for name, tensor in model.state_dict().items():
        if name.startswith("model.vision_model."):
            yield siglip_name(name.removeprefix("model.vision_model.")), tensor
        elif name == "model.connector.modality_projection.proj.weight":
            yield "mm.model.fc.weight", tensor


WRITERS = {"idefics3": idefics3, "smolvlm": idefics3}


def write_mmproj(folder, model, processor):
    writer = gguf.GGUFWriter(folder / "mmproj.gguf", "clip")
    tensors = list(WRITERS[model.config.model_type](writer, model, processor.image_processor))
    for name, tensor in tensors:
        values = tensor.float().numpy()
        # Embeddings and vectors are F32 in such files; other matrices keep their type.
        is_matrix = values.ndim > 1 and "embd" not in name
        writer.add_tensor(name, values.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
