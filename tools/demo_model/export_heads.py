"""Writes the results of train_heads.py: the MTP head into the demo model's file, and the draft model into a separate
file.

  export_heads.py --run DIR --model ../../models/demo.gguf --draft ../../models/demo-draft.gguf
All other tensors and keys of the demo model stay as they are. Needs numpy and gguf.
"""

import argparse
import pathlib

import gguf
import numpy as np

from train_heads import DRAFT

MAX_BYTES = 4_000_000  # head and draft model together
Q8_0 = gguf.GGMLQuantizationType.Q8_0
OF_MODEL = {"embedding_length": "dim", "block_count": "n_layers", "feed_forward_length": "ffn_dim",
            "attention.head_count": "n_heads", "attention.head_count_kv": "n_kv_heads"}


def copy_keys(reader, writer, changes):
    """Copies all keys of a file, with other values for some."""
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key in changes:
            continue
        kind = field.types[0]
        writer.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for key, value in changes.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)


def add(writer, name, weight):
    """Adds a matrix as Q8_0 or a vector as F32. Returns the size in bytes."""
    data = weight.astype(np.float32) if weight.ndim == 1 else gguf.quants.quantize(weight.astype(np.float32), Q8_0)
    writer.add_tensor(name, data, **({} if weight.ndim == 1 else {"raw_dtype": Q8_0}))
    return data.nbytes


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--draft", type=pathlib.Path, required=True)
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    value = lambda key, other=None: reader.fields[key].contents() if key in reader.fields else other
    n_layers = value("llama.block_count") - value("llama.nextn_predict_layers", 0)

    draft = gguf.GGUFWriter(args.draft, "llama")
    head_dim = DRAFT["dim"] // DRAFT["n_heads"]
    sizes = {f"llama.{key}": DRAFT[name] for key, name in OF_MODEL.items()} | {"llama.rope.dimension_count": head_dim}
    names = {"general.name": "Ingot Demo Draft", "general.size_label": "1M",
             "general.description": "Guesses what the demo model of ingot writes."}
    reader.fields.pop("llama.nextn_predict_layers", None)
    copy_keys(reader, draft, sizes | names)
    n_bytes = sum(add(draft, name, w) for name, w in np.load(args.run / "draft.npz").items())
    write(draft)

    out = args.model.with_suffix(".new")
    writer = gguf.GGUFWriter(out, "llama")
    copy_keys(reader, writer, {"llama.block_count": n_layers + 1, "llama.nextn_predict_layers": 1})
    for t in reader.tensors:
        if not t.name.startswith(f"blk.{n_layers}."):
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    n_bytes += sum(add(writer, f"blk.{n_layers}.{name}", w) for name, w in np.load(args.run / "head.npz").items())
    write(writer)
    out.replace(args.model)
    print(f"{args.model}: {args.model.stat().st_size} bytes; {args.draft}: {args.draft.stat().st_size} bytes")
    if n_bytes > MAX_BYTES:
        raise SystemExit(f"head and draft model take {n_bytes} bytes, over {MAX_BYTES}")


if __name__ == "__main__":
    main()
