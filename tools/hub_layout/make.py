#!/usr/bin/env python3
"""Writes tests/data/hub/layout.json: the layout of a cache that huggingface_hub filled from the server of
tests/cli/fake_hub.py.

    pip install huggingface_hub==2.4.0 && tools/hub_layout/make.py

tests/cli/models/hub_test.py compares ingot's cache of the same repositories with this layout, and has ingot read such a
cache."""
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import fake_hub  # noqa: E402

REPOS = {
    "org/model-1.5_x": {
        "pull": [["main", None], ["refs/pr/1", None]],
        "files": ["modules.json", "config.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json"],
    },
    "org/gguf": {
        "pull": [["main", "Q8_0"]],
        "files": ["Q8_0/a-Q8_0-00001-of-00002.gguf", "Q8_0/a-Q8_0-00002-of-00002.gguf"],
    },
}


def content(path):
    if path.endswith("index.json"):
        return json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()
    if path == "modules.json":
        return json.dumps([{"type": "sentence_transformers.models.Transformer", "path": ""},
                           {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]).encode()
    return f"what is in {path}\n".encode() * 7


def repo(name):
    facts = REPOS[name]
    return fake_hub.Repo({path: content(path) for path in facts["files"]}, revisions=[revision for revision, _ in facts["pull"]])


def layout(cache):
    """{path: the text of a ref, the target of a link, or None}, without files that only huggingface_hub uses."""
    tree = {}
    for path in sorted(pathlib.Path(cache).rglob("*")):
        name = path.relative_to(cache).as_posix()
        if path.is_symlink():
            tree[name] = os.readlink(path)
        elif path.is_file() and "/trees/" not in name:
            tree[name] = path.read_text() if "/refs/" in name else None
    return tree


def main():
    hub = fake_hub.FakeHub()
    hub.repos = {name: repo(name) for name in REPOS}
    os.environ |= {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    import huggingface_hub

    with tempfile.TemporaryDirectory() as cache:
        for name, facts in REPOS.items():
            for revision, _ in facts["pull"]:
                huggingface_hub.snapshot_download(name, revision=revision, cache_dir=cache)
        golden = {"huggingface_hub": huggingface_hub.__version__, "layout": layout(cache)}
    (ROOT / "tests/data/hub/layout.json").write_text(json.dumps(golden, indent=1) + "\n")
    hub.close()


if __name__ == "__main__":
    main()
