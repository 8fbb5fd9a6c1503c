"""Writes a trained vision model as a pair of GGUF files, with the keys and names of llama.cpp's converter for SmolVLM.

  export.py --run DIR --out ../../models/demo-vision/demo-vision.gguf [--directory DIR]
The tower goes to a file beside it, mmproj.gguf. Matrices become Q4_1, which answers as well as Q8_0; the convolution is F16; vectors and
positions stay F32. --directory writes the checkpoint as transformers saves it. Needs torch, transformers and gguf, no GPU.
"""

import argparse
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

from network import PATCH, SCALE, SIDE, TEXT, TOWER
from tokenizer import SPECIAL

TOOLS = pathlib.Path(__file__).parent.parent
sys.path += [str(TOOLS / "demo_model"), str(TOOLS / "goldens")]
import vision_dialects  # noqa: E402
import weights  # noqa: E402
from gguf_llama import add_keys, add_tensors, add_tokenizer  # noqa: E402

MAX_BYTES = 8_000_000
MATRICES = gguf.GGMLQuantizationType.Q4_1


def processor_of(run):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(run / "tokenizer.json"), bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|pad|>")
    images = transformers.Idefics3ImageProcessorPil(size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE})
    template = (pathlib.Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=(SIDE // PATCH // SCALE) ** 2, chat_template=template)


def transformers_model(run, tokenizer):
    vision = dict(hidden_size=TOWER["dim"], intermediate_size=TOWER["ffn_dim"], num_hidden_layers=TOWER["n_layers"],
                  num_attention_heads=TOWER["n_heads"], layer_norm_eps=TOWER["norm_eps"], image_size=SIDE, patch_size=PATCH)
    text = dict(model_type="llama", hidden_size=TEXT.dim, intermediate_size=TEXT.ffn_dim, num_hidden_layers=TEXT.n_layers,
                num_attention_heads=TEXT.n_heads, num_key_value_heads=TEXT.n_kv_heads, head_dim=TEXT.head_dim,
                vocab_size=TEXT.vocab_size, max_position_embeddings=TEXT.context, rms_norm_eps=TEXT.norm_eps,
                rope_parameters=dict(rope_type="default", rope_theta=TEXT.rope_theta), pad_token_id=tokenizer.pad_token_id,
                bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True)
    config = transformers.Idefics3Config(
        text_config=text, vision_config=vision, scale_factor=SCALE, image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=True)
    model = transformers.Idefics3ForConditionalGeneration(config).eval()
    state = {k: torch.from_numpy(v) for k, v in weights.load(run).items()}
    missing, unknown = model.load_state_dict(state, strict=False)
    if unknown or missing != ["lm_head.weight"]:
        raise SystemExit(f"missing {missing}, unknown {unknown}")
    return model


def write_tower(path, model, processor):
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_name("Ingot Demo Vision")
    for name, tensor in vision_dialects.idefics3(writer, model, processor.image_processor):
        values = tensor.float().numpy()
        if values.ndim == 4:
            writer.add_tensor(name, values.astype(np.float16))
        elif values.ndim == 2 and "embd" not in name:
            writer.add_tensor(name, gguf.quants.quantize(values, MATRICES), raw_dtype=MATRICES)
        else:
            writer.add_tensor(name, values)
    finish(writer)


def write_text(path, run, processor):
    writer = gguf.GGUFWriter(path, "llama")
    add_keys(writer, vars(TEXT) | {"head_dim": TEXT.head_dim}, "Ingot Demo Vision", "4M",
             "The vision demo of ingot, trained on pictures that the project draws: shapes, colours, counts, words and numbers.",
             MATRICES)
    tokenizer = json.loads((run / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {"bos": "<|im_start|>", "eos": "<end_of_utterance>", "pad": "<|pad|>"}
    add_tokenizer(writer, tokenizer, processor.chat_template, dict.fromkeys(SPECIAL, gguf.TokenType.CONTROL), ids)
    prefix = "model.text_model."
    state = {"model." + k.removeprefix(prefix): v for k, v in weights.load(run).items() if k.startswith(prefix)}
    add_tensors(writer, state, TEXT.n_heads, TEXT.n_kv_heads, MATRICES)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--directory", type=pathlib.Path)
    args = parser.parse_args()
    processor = processor_of(args.run)
    model = transformers_model(args.run, processor.tokenizer)
    if args.directory:
        model.save_pretrained(args.directory)
        processor.save_pretrained(args.directory)
    tower = args.out.with_name("mmproj.gguf")
    write_text(args.out, args.run, processor)
    write_tower(tower, model, processor)
    size = args.out.stat().st_size + tower.stat().st_size
    print(f"{args.out} and {tower.name}: {size} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"both are over {MAX_BYTES} bytes")


if __name__ == "__main__":
    main()
