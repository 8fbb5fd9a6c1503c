#!/usr/bin/env python3
"""Makes the tiny models with vision towers of tests/data/vision, and the results of Hugging Face transformers.

Each row of SPECS becomes a directory NAME with random weights: the files of a Hugging Face checkpoint, mmproj.gguf (the
tower with the tensors and keys of llama.cpp's converter) and goldens.json: for each picture, the pixels that the
processor named in the checkpoint makes (some of them, as 8-bit values); for each prompt, its tokens, the places of the
tokens, some vectors of the tower and some logits.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_vision.py [-o tests/data/vision] [NAME ...]
"""
import json
import shutil
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Callable

import gguf
import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from makers import make_all
from pictures import image
from tiny_tokenizer import byte_tokens
from vision_dialects import write_mmproj

SIZES = [(1, 1), (1, 4000), (17, 31), (64, 48), (200, 90), (333, 601)]
N_SAMPLES = 150  # pixels of a picture
N_LOGIT_ROWS = 5
PROMPTS = [  # text, with <I> for a picture, and the pictures
    ("<I>the cat", [(20, 90)]),
    ("a hat<I> and\n<I>\non it", [(17, 31), (40, 40)]),
]


@dataclass
class Spec:
    name: str
    model: type
    config: Callable  # vocab -> config
    special: list  # control tokens after the bytes; the second is the end
    image_token: str
    mark: str  # of a picture in the prompt, before the processor expands it
    processor: Callable  # tokenizer -> processor
    prompts: list = field(default_factory=lambda: PROMPTS)
    sizes: list = field(default_factory=lambda: SIZES)
    splits: dict = field(default_factory=dict)  # settings of the processor that divide a picture, beside the default
    seed: int = 0


def tokenizer_of(spec):
    tokens = byte_tokens()
    model = tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(spec.special)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=spec.special[0],
                                                eos_token=spec.special[1], **named_tokens(spec))


def named_tokens(spec):
    if spec.name.startswith("gemma4"):
        return dict(pad_token="<bos>", extra_special_tokens=dict(image_token="<|image|>", boi_token="<|image>", eoi_token="<image|>",
                                              audio_token="<|audio|>", boa_token="<|audio>", eoa_token="<audio|>"))
    if spec.name.startswith("gemma"):
        return dict(extra_special_tokens=dict(image_token="<image_soft_token>", boi_token="<start_of_image>",
                                              eoi_token="<end_of_image>"))
    return {}


def text_config(vocab, **extra):
    return dict(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                vocab_size=vocab, max_position_embeddings=512, head_dim=16, bos_token_id=256, eos_token_id=257,
                pad_token_id=None, tie_word_embeddings=True, **extra)


def tower_config(**extra):
    return dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, **extra)


# ---- Idefics3 and SmolVLM

IDEFICS_TOKENS = ["<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"] + [
    f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]


def idefics3_config(cls, size, patch, scale, layers=2):
    def make(vocab):
        return cls(text_config=dict(model_type="llama", **text_config(vocab) | dict(num_hidden_layers=1)), image_token_id=259, pad_token_id=None,
                   vision_config=tower_config(image_size=size, patch_size=patch) | dict(num_hidden_layers=layers), scale_factor=scale,
                   tie_word_embeddings=True)
    return make


def idefics3_processor(processor, pixels, size, patch, scale, video=None):
    def make(tokenizer):
        images = pixels(size={"longest_edge": 4 * size}, max_image_size={"longest_edge": size})
        extra = (video(),) if video else ()
        return processor(images, tokenizer, *extra, image_seq_len=(size // patch // scale) ** 2)
    return make


# ---- Gemma 3

GEMMA_TOKENS = ["<bos>", "<end_of_turn>", "<start_of_image>", "<image_soft_token>", "<end_of_image>"]


# The processor of the whole prompt has values of its own, in place of those of the processor of images.
PAN_AND_SCAN = dict(do_pan_and_scan=True, pan_and_scan_min_crop_size=24, pan_and_scan_max_num_crops=3,
                    pan_and_scan_min_ratio_to_activate=1.3)


def gemma3_config(vocab):
    text = dict(model_type="gemma3_text", **text_config(vocab)) | dict(
        sliding_window=6, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=16, num_hidden_layers=2)
    vision = dict(model_type="siglip_vision_model", image_size=36, patch_size=4, vision_use_head=False, **tower_config())
    return transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=9, image_token_index=259,
                                     boi_token_index=258, eoi_token_index=260, tie_word_embeddings=True)


def gemma3_processor(tokenizer):
    images = transformers.Gemma3ImageProcessorPil(size=dict(height=36, width=36), pan_and_scan_min_crop_size=24,
                                                  pan_and_scan_max_num_crops=3, pan_and_scan_min_ratio_to_activate=1.3)
    return transformers.Gemma3Processor(images, tokenizer, image_seq_length=9)


# ---- Qwen-VL

QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_MARK = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_SIZES = [(1, 1), (2, 300), (17, 31), (64, 48), (200, 90), (333, 601), (20, 36)]
QWEN_PROMPTS = [("<I>the cat", [(20, 90)]), ("a hat<I> and\n<I>\non it", [(17, 31), (60, 30)])]


def qwen_config(cls, text, vision, sections, layers):
    def make(vocab):
        rope = dict(rope_type="default", rope_theta=1e6, mrope_section=sections)
        return cls(text_config=dict(model_type=text, rope_parameters=rope, **text_config(vocab)) | dict(num_hidden_layers=layers),
                   vision_config=dict(hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, out_hidden_size=32, **vision),
                   image_token_id=260, video_token_id=261, vision_start_token_id=258, vision_end_token_id=259,
                   tie_word_embeddings=True)
    return make


def qwen_processor(processor, video):
    def make(tokenizer):
        images = transformers.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size=dict(shortest_edge=256, longest_edge=24 * 64))
        return processor(images, tokenizer, video())
    return make


def qwen_spec(name, model, *args, **more):
    return Spec(name, model, *args, prompts=QWEN_PROMPTS, sizes=QWEN_SIZES, **more)


# ---- Gemma 4

GEMMA4_SIZES = [(1, 1), (1, 4000), (17, 31), (200, 90), (333, 601)]
GEMMA4_PROMPTS = [("<I>the cat", [(20, 90)]), ("a hat<I> and\n<I>\non it", [(17, 31), (60, 8)])]
GEMMA4_TOKENS = ["<bos>", "<turn|>", "<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>"]


def gemma4_config(bidirectional, standardize, own_inputs=0, clips=False):
    def make(vocab):
        text = dict(model_type="gemma4_text", **text_config(vocab)) | dict(
            sliding_window=9, layer_types=["sliding_attention", "full_attention"], num_hidden_layers=2, global_head_dim=16,
            hidden_size_per_layer_input=own_inputs, vocab_size_per_layer_input=vocab, use_bidirectional_attention=bidirectional, num_kv_shared_layers=0, pad_token_id=256)
        vision = dict(model_type="gemma4_vision", head_dim=8, num_key_value_heads=2, patch_size=4, pooling_kernel_size=2,
                      position_embedding_size=140, standardize=standardize, use_clipped_linears=clips, **tower_config())
        return transformers.Gemma4Config(text_config=text, vision_config=vision, audio_config=None, image_token_id=259,
                                         boi_token_id=258, eoi_token_id=260, tie_word_embeddings=True)
    return make


def gemma4_processor(tokenizer):
    images = transformers.Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70, pooling_kernel_size=2)
    return transformers.Gemma4Processor(transformers.Gemma4AudioFeatureExtractor(), images, tokenizer,
                                        transformers.Gemma4VideoProcessor(), image_seq_length=70)


# ---- Qwen3.5

def qwen35_config(vocab):
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[1, 2, 1], partial_rotary_factor=0.5)
    text = dict(model_type="qwen3_5_text", rope_parameters=rope, **text_config(vocab)) | dict(
        num_hidden_layers=2, full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=2,
        linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4)
    return transformers.Qwen3_5Config(
        text_config=text, vision_config=dict(hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, out_hidden_size=32,
                                             depth=1, num_position_embeddings=16),
        image_token_id=260, video_token_id=261, vision_start_token_id=258, vision_end_token_id=259, tie_word_embeddings=True)


SPECS = [
    Spec("gemma4", transformers.Gemma4ForConditionalGeneration, gemma4_config("vision", True), GEMMA4_TOKENS,
         "<|image|>", "<|image|>", gemma4_processor, prompts=GEMMA4_PROMPTS, sizes=GEMMA4_SIZES, seed=2106),
    Spec("gemma4_e", transformers.Gemma4ForConditionalGeneration, gemma4_config(None, False, 8, True), GEMMA4_TOKENS,
         "<|image|>", "<|image|>", gemma4_processor, prompts=GEMMA4_PROMPTS, sizes=GEMMA4_SIZES, seed=2108),
    qwen_spec("qwen3_5", transformers.Qwen3_5ForConditionalGeneration, qwen35_config, QWEN_TOKENS, "<|image_pad|>", QWEN_MARK,
              qwen_processor(transformers.Qwen3VLProcessor, transformers.Qwen3VLVideoProcessor), seed=2107),
    qwen_spec("qwen3_vl", transformers.Qwen3VLForConditionalGeneration,
              qwen_config(transformers.Qwen3VLConfig, "qwen3_vl_text",
                          dict(depth=2, num_position_embeddings=25, deepstack_visual_indexes=[0, 1]), [4, 2, 2], 2),
              QWEN_TOKENS, "<|image_pad|>", QWEN_MARK,
              qwen_processor(transformers.Qwen3VLProcessor, transformers.Qwen3VLVideoProcessor), seed=2104),
    qwen_spec("qwen2_5_vl", transformers.Qwen2_5_VLForConditionalGeneration,
              qwen_config(transformers.Qwen2_5_VLConfig, "qwen2_5_vl_text",
                          dict(depth=3, window_size=16, fullatt_block_indexes=[1]), [2, 3, 3], 1),
              QWEN_TOKENS, "<|image_pad|>", QWEN_MARK,
              qwen_processor(transformers.Qwen2_5_VLProcessor, transformers.Qwen2VLVideoProcessor), seed=2105),
    Spec("gemma3", transformers.Gemma3ForConditionalGeneration, gemma3_config, GEMMA_TOKENS, "<image_soft_token>", "<start_of_image>",
         gemma3_processor, splits=dict(do_pan_and_scan=True),
         prompts=[*PROMPTS, ("say\n<I>\n: <I>", [(150, 40), (30, 30)], PAN_AND_SCAN)], seed=2103),
    Spec("smolvlm", transformers.SmolVLMForConditionalGeneration,
         idefics3_config(transformers.SmolVLMConfig, 24, 4, 3, layers=1), IDEFICS_TOKENS, "<image>", "<image>",
         idefics3_processor(transformers.SmolVLMProcessor, transformers.SmolVLMImageProcessorPil, 24, 4, 3,
                            transformers.SmolVLMVideoProcessor), seed=2101),
    Spec("idefics3", transformers.Idefics3ForConditionalGeneration,
         idefics3_config(transformers.Idefics3Config, 24, 4, 2), IDEFICS_TOKENS, "<image>", "<image>",
         idefics3_processor(transformers.Idefics3Processor, transformers.Idefics3ImageProcessorPil, 24, 4, 2), seed=2102),
]


def randomize(model, seed):
    """Norms near 1, attention far from uniform, logits with a deviation of about 1, all rounded to float16."""
    rng = np.random.default_rng(seed)
    for name, buffer in model.named_buffers():
        if name.endswith(("std_bias", "std_scale")):  # Gemma 4's, not initialised
            values = rng.normal(0.0 if name.endswith("bias") else 1.0, 0.3, tuple(buffer.shape)).astype(np.float16)
            buffer.data = torch.from_numpy(values.astype(np.float32))
        if name.endswith(("put_min", "put_max")):  # Gemma 4's limits of products
            buffer.data = torch.tensor(np.float16(rng.uniform(0.8, 1.6) * (1 if name.endswith("max") else -1)).astype(np.float32))
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        if name.endswith("norm.weight") or "norm" in name.split(".")[-2] or name.endswith(("ln_q.weight",)):
            is_less_one = "gemma3" in model.config.model_type and "vision_tower" not in name
            mean, std = (0.0 if name.endswith("bias") else 0.0 if is_less_one else 1.0), 0.2
        elif name.endswith("bias"):
            mean, std = 0.0, 0.2
        elif "embed_tokens" in name or "position" in name or "pos_embed" in name:
            mean, std = 0.0, 0.5
        else:
            mean, std = 0.0, 1.3 / np.sqrt(np.prod(shape[1:]) if "mm_input_projection" not in name else shape[0])
        values = rng.normal(mean, std, shape).astype(np.float16).astype(np.float32)
        parameter.data = torch.from_numpy(values)


def pixel_goldens(spec, processor):
    goldens = []
    for seed, (width, height) in enumerate(spec.sizes):
        for settings in ({}, spec.splits) if spec.splits else ({},):
            out = processor.image_processor(image(width, height, seed), return_tensors="np", **settings)
            pixels = np.asarray(out["pixel_values"], dtype=np.float64)
            if "image_position_ids" in out:
                pixels = gemma4_picture(pixels[0], out["image_position_ids"][0], processor.image_processor.patch_size)
            if "image_grid_thw" in out:
                pixels = whole_picture(pixels, out["image_grid_thw"][0], processor.image_processor)
            flat = np.round(denormalised(processor.image_processor, pixels)).astype(int).ravel()
            step = max(1, len(flat) // N_SAMPLES)
            goldens.append({"size": [width, height], "seed": seed, "splits": bool(settings), "n": len(flat),
                            "step": step, "values": flat[::step].tolist()})
    return goldens


def gemma4_picture(patches, places, size):
    """Gemma 4's patches [n, patch * patch * 3] with their columns and rows, -1 for padding -> [3, height, width]."""
    columns, rows = (int(n) + 1 for n in places.max(axis=0))
    patches = patches[:rows * columns].reshape(rows, columns, size, size, 3)
    return patches.transpose(4, 0, 2, 1, 3).reshape(3, rows * size, columns * size)


def whole_picture(patches, grid, processor):
    """Qwen's patches [n, 3 * frames * patch * patch], in groups -> [3, height, width] of the first frame."""
    _, rows, columns = map(int, grid)
    merge, size = processor.merge_size, processor.patch_size
    patches = patches.reshape(rows // merge, columns // merge, merge, merge, 3, -1, size, size)
    assert (patches[:, :, :, :, :, 0] == patches[:, :, :, :, :, 1]).all()
    return patches[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * size, columns * size)


def denormalised(processor, pixels):
    """The 8-bit values behind normalised pixels [..., 3, height, width]."""
    if not processor.do_normalize:
        return pixels * 255
    mean, std = (np.array(v).reshape(3, 1, 1) for v in (processor.image_mean, processor.image_std))
    return (pixels * std + mean) * 255


def prompt_goldens(spec, processor, model):
    goldens = []
    for text, sizes, *settings in spec.prompts:
        images = [image(w, h, i) for i, (w, h) in enumerate(sizes)]
        inputs = processor(text=[text.replace("<I>", spec.mark)], images=[images], return_tensors="pt",
                           add_special_tokens=False, **(settings[0] if settings else {}))
        ids = inputs["input_ids"][0]
        with torch.no_grad():
            out = model(**inputs)
            features = features_of(model, inputs)
        logits = out.logits[0].numpy()
        rows = np.linspace(0, len(ids) - 1, N_LOGIT_ROWS).astype(int).tolist()
        step = max(1, len(features) // 6)
        goldens.append({"text": text.replace("<I>", spec.mark), "sizes": sizes, "splits": bool(settings), "tokens": ids.tolist(),
                        "n_vectors": len(features), "vector_rows": list(range(0, len(features), step)),
                        "vectors": rounded(features[::step]),
                        "logit_rows": rows, "logits": rounded(logits[rows])})
    return goldens


def features_of(model, inputs):
    """The vectors of all pictures, one after another."""
    names = ("pixel_values", "pixel_attention_mask", "image_grid_thw", "image_position_ids")
    out = model.get_image_features(**{n: inputs[n] for n in names if n in inputs}, return_dict=True)
    parts = [out.pooler_output, *(getattr(out, "deepstack_features", None) or [])]
    parts = [torch.cat(list(rows)) if isinstance(rows, (list, tuple)) else rows for rows in parts]
    return torch.cat([rows.reshape(-1, rows.shape[-1]) for rows in parts], dim=1).numpy()


def rounded(values):
    return [[float(np.format_float_positional(v, precision=6, fractional=False)) for v in row] for row in values]


def make_golden(spec, seed, folder):
    out = folder / spec.name
    shutil.rmtree(out, ignore_errors=True)
    tokenizer = tokenizer_of(spec)
    config = spec.config(len(tokenizer))
    config._attn_implementation = "eager"
    model = spec.model._from_config(config, dtype=torch.float32).eval()
    randomize(model, seed)
    processor = spec.processor(tokenizer)
    goldens = {"seed": seed, "versions": {p: version(p) for p in ("transformers", "torch", "pillow")},
               "pixels": pixel_goldens(spec, processor), "prompts": prompt_goldens(spec, processor, model)}
    model.half().save_pretrained(out)
    processor.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for extra in ("generation_config.json", "chat_template.jinja", "video_preprocessor_config.json"):
        (out / extra).unlink(missing_ok=True)
    write_mmproj(out, model, processor)
    (out / "goldens.json").write_text(json.dumps(goldens, separators=(",", ":")) + "\n")
    print(spec.name, sum(f.stat().st_size for f in out.iterdir()) // 1024, "KiB",
          [(p.name, p.stat().st_size) for p in out.iterdir()],
          "logit deviation", np.std([v for p in goldens["prompts"] for row in p["logits"] for v in row]).round(2))


if __name__ == "__main__":
    make_all(__doc__, SPECS, make_golden, 2100, "tests/data/vision")
