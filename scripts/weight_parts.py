#!/usr/bin/env python3
"""Keeps the weights of the tests' models once. A Hugging Face folder next to a GGUF file of the same model holds the same
numbers, so its model.safetensors is stored as model.safetensors.parts: copies from the GGUF file, and the rest.

    weight_parts.py unpack tests/data   writes each model.safetensors that is missing or older than its parts (the build does)
    weight_parts.py pack tests/data     writes the parts of each model.safetensors that a GGUF file mostly contains

The parts are one line of JSON: {"from": path, "crc32": of the result, "parts": [[offset, bytes] or base64 of zlib, ...]}.
pack also lists the unpacked files in .gitignore. tools/goldens/makers.py calls it.
"""
import argparse
import base64
import json
import os
import sys
import zlib
from pathlib import Path

UNIT = 16  # shortest copy, in bytes
WORTH = 0.5  # parts are kept if they take at most this share of the file


def copies(source, target):
    """Yields (begin, end, offset) of each run of target that source contains at offset; None if it does not."""
    places = {}
    for at in range(0, len(source) - UNIT + 1, 2):  # elements have at least two bytes
        places.setdefault(source[at:at + UNIT], at)
    begin = at = 0
    while at < len(target):
        place = places.get(target[at:at + UNIT])
        if place is None:
            at += 1
            continue
        n = UNIT
        while target[at + n:at + n + 1] == source[place + n:place + n + 1] != b"":
            n += 1
        if begin < at:
            yield begin, at, None
        yield at, at + n, place
        begin = at = at + n
    if begin < at:
        yield begin, at, None


def pack(path, source):
    target, origin = path.read_bytes(), source.read_bytes()
    parts = [base64.b64encode(zlib.compress(target[begin:end], 9)).decode() if place is None else [place, end - begin]
             for begin, end, place in copies(origin, target)]
    packed = json.dumps({"from": os.path.relpath(source, path.parent), "crc32": zlib.crc32(target), "parts": parts},
                        separators=(",", ":")) + "\n"
    if len(packed) > WORTH * len(target):
        return False
    path.with_name(path.name + ".parts").write_text(packed)
    return True


def unpack(packed):
    recipe = json.loads(packed.read_text())
    source, path = packed.parent / recipe["from"], packed.with_suffix("")
    if path.exists() and path.stat().st_mtime >= max(packed.stat().st_mtime, source.stat().st_mtime):
        return
    origin = source.read_bytes()
    data = b"".join(zlib.decompress(base64.b64decode(part)) if isinstance(part, str) else origin[part[0]:part[0] + part[1]]
                    for part in recipe["parts"])
    if zlib.crc32(data) != recipe["crc32"]:
        sys.exit(f"weight_parts: {packed} does not fit {source}: make both again (tools/goldens), then pack")
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_bytes(data)
    os.replace(written, path)  # two builds may unpack at once


def gguf_of(path):
    """The GGUF file beside the folder of a model.safetensors, if there is one."""
    name, root = path.parent.name, path.parent.parent
    places = [root.parent / "models" / f"{name}.gguf" if root.name == "hf" else root / f"{name}.gguf"]
    return next((place for place in places if place.exists()), None)


def pack_all(root):
    packed = [path for path in sorted(root.rglob("model.safetensors")) if (source := gguf_of(path)) and pack(path, source)]
    names = "".join(f"/{path.relative_to(root).as_posix()}\n" for path in packed)
    (root / ".gitignore").write_text("# Written by scripts/weight_parts.py: each of these is unpacked from its parts.\n" + names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("pack", "unpack"))
    parser.add_argument("root", type=Path)
    args = parser.parse_args()
    if args.command == "pack":
        return pack_all(args.root)
    for packed in sorted(args.root.rglob("*.parts")):
        unpack(packed)


if __name__ == "__main__":
    main()
