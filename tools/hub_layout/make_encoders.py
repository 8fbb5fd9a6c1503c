#!/usr/bin/env python3
"""Writes tests/data/hub/encoders.json: the files that sentence-transformers reads from the repositories below, and the
vectors that it computes. The repositories are on the server of tests/cli/fake_hub.py. They are models of
tests/data/encoders in other folders.

    pip install sentence-transformers==6.2.0 && tools/hub_layout/make_encoders.py

tests/cli/models/hub_encoders_test.py compares the files that ingot fetches and the vectors that it computes with this file."""
import json
import os
import pathlib
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import fake_hub  # noqa: E402

ENCODERS = ROOT / "tests" / "data" / "encoders"
TEXTS = ["the quick brown fox", "The other words, and numbers 123!"]
NO_MODEL = (
    "README.md",
    "onnx/model.onnx",
    "pytorch_model.bin",
    "modeling_own.py",
    "0_Transformer/pytorch_model.bin",
    "unused/config.json",
)


def shards(weights, prefix):
    """Splits the tensors of a safetensors file into two files, and adds their index."""
    n_header = struct.unpack("<Q", weights[:8])[0]
    header, data = json.loads(weights[8 : 8 + n_header]), weights[8 + n_header :]
    header.pop("__metadata__", None)
    names = sorted(header)
    files, weight_map = {}, {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        own, body = {}, b""
        for name in part:
            begin, end = header[name]["data_offsets"]
            own[name] = header[name] | {"data_offsets": [len(body), len(body) + end - begin]}
            body += data[begin:end]
            weight_map[name] = f"model-0000{number}-of-00002.safetensors"
        text = json.dumps({"__metadata__": {"format": "pt"}} | own).encode()
        files[f"{prefix}model-0000{number}-of-00002.safetensors"] = struct.pack("<Q", len(text)) + text + body
    return files | {
        f"{prefix}model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    }


def moved(name, folders, more):
    """The files of an encoder with its modules in other folders: {folder: new folder}. "" is the folder of the model
    itself."""
    files = {}
    for path in sorted((ENCODERS / name).rglob("*")):
        if not path.is_file():
            continue
        old, _, rest = path.relative_to(ENCODERS / name).as_posix().rpartition("/")
        whole = old == "" and rest in ("modules.json", "config_sentence_transformers.json")
        folder = old if whole else folders.get(old, old)
        files[f"{folder}/{rest}" if folder else rest] = path.read_bytes()
    modules = json.loads(files["modules.json"])
    for module in modules:
        module["path"] = folders.get(module["path"], module["path"])
    junk = {path: f"{path} is not read".encode() for path in NO_MODEL}
    return junk | files | {"modules.json": json.dumps(modules).encode()} | more


def repos():
    options = {"0_Transformer/sentence_roberta_config.json": b'{"max_seq_length": 24, "do_lower_case": false}'}
    made = {
        "org/inner": moved("bert", {"": "0_Transformer", "1_Pooling": "pool"}, options),
        "org/dense": moved("gemma_embed", {"1_Pooling": "1_Mean", "2_Dense": "widen", "3_Dense": "3_Narrow"}, {}),
        "org/shards": moved(
            "xlm_roberta", {"": "encoder"}, {"sentence_xlnet_config.json": b"this is another folder's"}
        ),
    }
    made["org/shards"] |= shards(made["org/shards"].pop("encoder/model.safetensors"), "encoder/")
    return {name: fake_hub.Repo(files) for name, files in made.items()}


def main():
    hub = fake_hub.FakeHub()
    hub.repos = repos()
    cache = tempfile.TemporaryDirectory()
    os.environ |= {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": cache.name,
    }
    import sentence_transformers

    golden = {"sentence_transformers": sentence_transformers.__version__, "texts": TEXTS, "repos": {}}
    for name in hub.repos:
        hub.sent.clear()
        model = sentence_transformers.SentenceTransformer(name, device="cpu")
        vectors = model.encode(TEXTS, normalize_embeddings=True)
        golden["repos"][name] = {
            "files": sorted(hub.sent),
            "vectors": [[round(float(x), 7) for x in row] for row in vectors],
        }
    (ROOT / "tests/data/hub/encoders.json").write_text(json.dumps(golden, indent=1) + "\n")
    hub.close()


if __name__ == "__main__":
    main()
