"""Writes a trained demo model as GGUF, with the keys, names and rope layout that llama.cpp's converter gives a Llama.

  export.py --run DIR --out ../../models/demo.gguf
Needs numpy and gguf, no GPU.
"""

import argparse
import json
import pathlib

import gguf

import weights
from gguf_llama import add_keys, add_tensors, add_tokenizer
from tokenizer import MARKS, SPECIAL

MAX_BYTES = 12_000_000
Q8_0 = gguf.GGMLQuantizationType.Q8_0
DESCRIPTION = "The demo model of ingot, trained from text that the project generates: stories, questions, sums, JSON, tool calls."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    config = json.loads((args.run / "config.json").read_text())
    tokenizer = json.loads((args.run / "tokenizer.json").read_text(encoding="utf-8"))
    template = (pathlib.Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")
    writer = gguf.GGUFWriter(args.out, "llama")
    add_keys(writer, config, "Ingot Demo", "10M", DESCRIPTION, Q8_0)
    kinds = dict.fromkeys(SPECIAL, gguf.TokenType.CONTROL) | dict.fromkeys(MARKS, gguf.TokenType.USER_DEFINED)
    ids = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "eot": "<|im_end|>", "pad": "<|pad|>"}
    add_tokenizer(writer, tokenizer, template, kinds, ids)
    add_tensors(writer, weights.load(args.run), config["n_heads"], config["n_kv_heads"], Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    size = args.out.stat().st_size
    print(f"{args.out}: {size} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"{args.out} is over {MAX_BYTES} bytes")


if __name__ == "__main__":
    main()
