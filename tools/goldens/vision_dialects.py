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


def gemma3(writer, model, images):
    c = model.config
    common_keys(writer, c.vision_config, c.text_config.hidden_size, "gemma3", images)
    siglip_keys(writer, c.vision_config)
    factor = int(c.vision_config.image_size // c.vision_config.patch_size // c.mm_tokens_per_image ** 0.5)
    if factor != 4:
        writer.add_vision_projector_scale_factor(factor)
    for name, tensor in model.state_dict().items():
        if ".vision_tower." in name:
            yield siglip_name(name.split(".vision_tower.")[1].removeprefix("vision_model.")), tensor
        elif name.endswith("mm_input_projection_weight"):
            yield "mm.input_projection.weight", tensor
        elif name.endswith("mm_soft_emb_norm.weight"):
            yield "mm.soft_emb_norm.weight", tensor.float() + 1


QWEN = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down",
        "mlp.up_proj": "ffn_up", "mlp.gate_proj": "ffn_gate", "mlp.down_proj": "ffn_down"}


def qwen_tensors(model, deepstack_layers, splits_qkv):
    whole = {"merger.norm": "v.post_ln", "merger.ln_q": "v.post_ln", "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2",
             "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2", "pos_embed": "v.position_embd", "patch_embed.proj": "v.patch_embd"}
    for name, tensor in model.state_dict().items():
        if not name.startswith("model.visual."):
            continue
        stem, kind = name.removeprefix("model.visual.").rsplit(".", 1)
        if stem == "patch_embed.proj" and kind == "weight":  # a tensor for each frame
            yield "v.patch_embd.weight", tensor[:, :, 0]
            yield "v.patch_embd.weight.1", tensor[:, :, 1]
        elif stem in whole:
            yield f"{whole[stem]}.{kind}", tensor
        elif stem.startswith("deepstack_merger_list."):
            _, i, part = stem.split(".")
            yield f"v.deepstack.{deepstack_layers[int(i)]}.{part.removeprefix('linear_')}.{kind}", tensor
        else:
            _, layer, rest = stem.split(".", 2)
            if rest != "attn.qkv":
                yield f"v.blk.{layer}.{QWEN[rest]}.{kind}", tensor
            elif splits_qkv:
                for part, rows in zip("qkv", tensor.chunk(3)):
                    yield f"v.blk.{layer}.attn_{part}.{kind}", rows
            else:
                yield f"v.blk.{layer}.attn_qkv.{kind}", tensor


def qwen_keys(writer, model, images, projector):
    vision = model.config.vision_config
    common_keys(writer, vision, model.config.text_config.hidden_size, projector, images)
    writer.add_vision_block_count(vision.depth)
    writer.add_vision_head_count(vision.num_heads)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_min_pixels(images.size["shortest_edge"])
    writer.add_vision_max_pixels(images.size["longest_edge"])
    return vision


def qwen3_vl(writer, model, images):
    vision = qwen_keys(writer, model, images, "qwen3vl_merger")
    writer.add_vision_image_size(int(vision.num_position_embeddings ** 0.5 * vision.patch_size))
    writer.add_vision_use_gelu(True)
    writer.add_vision_spatial_merge_size(vision.spatial_merge_size)
    deepstack = list(getattr(vision, "deepstack_visual_indexes", None) or [])
    if deepstack:
        writer.add_vision_is_deepstack_layers([layer in deepstack for layer in range(vision.depth)])
    yield from qwen_tensors(model, deepstack, False)


def qwen2_5_vl(writer, model, images):
    vision = qwen_keys(writer, model, images, "qwen2.5vl_merger")
    writer.add_vision_image_size(560)  # not of use, but the converter writes the key
    writer.add_vision_use_silu(True)
    writer.add_vision_n_wa_pattern(vision.fullatt_block_indexes[0] + 1)
    writer.add_vision_window_size(vision.window_size)
    yield from qwen_tensors(model, [], True)


GEMMA4 = {"input_layernorm": "ln1", "pre_feedforward_layernorm": "ln2", "post_attention_layernorm": "attn_post_norm",
          "post_feedforward_layernorm": "ffn_post_norm", "self_attn.q_proj.linear": "attn_q", "self_attn.k_proj.linear": "attn_k",
          "self_attn.v_proj.linear": "attn_v", "self_attn.o_proj.linear": "attn_out", "self_attn.q_norm": "attn_q_norm",
          "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj.linear": "ffn_gate", "mlp.up_proj.linear": "ffn_up",
          "mlp.down_proj.linear": "ffn_down"}


def gemma4(writer, model, images):
    vision = model.config.vision_config
    common_keys(writer, vision, model.config.text_config.hidden_size, "gemma4v", images)
    writer.add_vision_block_count(vision.num_hidden_layers)
    writer.add_vision_head_count(vision.num_attention_heads)
    writer.add_vision_attention_layernorm_eps(vision.rms_norm_eps)
    writer.add_vision_projector_scale_factor(vision.pooling_kernel_size)
    for name, tensor in model.state_dict().items():
        if name == "model.embed_vision.embedding_projection.weight":
            yield "mm.input_projection.weight", tensor
        if not name.startswith("model.vision_tower."):
            continue
        name = name.removeprefix("model.vision_tower.")
        if name == "patch_embedder.input_proj.weight":  # as a convolution
            patch = vision.patch_size
            yield "v.patch_embd.weight", tensor.reshape(-1, patch, patch, 3).permute(0, 3, 1, 2).contiguous()
        elif name == "patch_embedder.position_embedding_table":
            yield "v.position_embd.weight", tensor
        elif name.endswith(("put_min", "put_max")):
            _, _, layer, rest = name.split(".", 3)
            module, limit = rest.rsplit(".", 1)
            yield f"v.blk.{layer}.{GEMMA4[module + '.linear']}.{limit}", tensor.reshape(1)
        elif name in ("std_bias", "std_scale"):
            yield f"v.{name}", tensor
        else:
            _, _, layer, rest = name.removesuffix(".weight").split(".", 3)
            yield f"v.blk.{layer}.{GEMMA4[rest]}.weight", tensor


WRITERS = {"gemma4": gemma4, "qwen3_5": qwen3_vl, "qwen3_vl": qwen3_vl, "qwen2_5_vl": qwen2_5_vl, "gemma3": gemma3, "idefics3": idefics3, "smolvlm": idefics3}


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
