#!/usr/bin/env python3
"""Checks the includes and forbidden names of src/: the layers and the "must never" table of docs/design.md, and the
rooms (sub-folders) of a layer, whose includes must not run in a circle.

    scripts/layers.py [ROOT]

Prints `file:line: rule` for each breach and exits 1 if there was one. Comments do not count.
"""
import pathlib
import re
import sys

# A folder includes only folders with a lower number, and itself.
LAYER = {"base": 0, "quant": 1, "text": 1, "io": 2, "backend": 3, "model": 4, "engine": 5, "server": 6, "capi": 6, "cli": 7}

# The includes between the folders in these folders have one direction.
ROOMS = ("model", "cli", "server", "text/grammar")

# (files, forbidden pattern, exempt files, the rule)
CUDA_HEADER = r'#include [<"](cuda|cublas|cudnn|cub/|cutlass|nccl|nvrtc|thrust)'
RULES = [
    ("backend/", r'#include "(model|engine|io|text|server|cli)/', None, "backend must not include {0}/"),
    ("backend/cpu/", r'#include "backend/(cuda)/', None, "cpu and cuda must not include each other"),
    ("backend/cuda/", r'#include "backend/(cpu)/', None, "cpu and cuda must not include each other"),
    ("model/", r'#include "backend/(cpu|cuda)/', None, "model must not include backend/{0}"),
    ("", CUDA_HEADER, "backend/cuda/", "CUDA headers belong to backend/cuda"),
    ("engine/", r'#include "(quant/|backend/(?:tensor|kv|ref/|cpu/|cuda/)|server/)', None, "engine must not include {0}"),
    ("engine/", r'#include ("base/json|<(nlohmann|boost/beast|boost/asio))', None, "engine must not know JSON or HTTP"),
    ("", r"#include <nlohmann/json\.hpp>", "base/json.h", "include base/json.h, whose destructor does not allocate"),
    ("engine/", r"\b(DType|Format::\w+)", None, "engine must not know dtypes"),
    ("text/", r"\b(Tensor|Weight|TensorInfo)\b", None, "text must not know tensors"),
    ("", r"\bINGOT_CUDA\b", None, "no INGOT_CUDA: the CUDA backend is a library, opened at run time"),
    ("", r"\bcase (?:ingot::)?Format::|using enum (?:ingot::)?Format\b", "quant/format.", "switch over Format only in quant/format.*"),
]


def code_lines(path):
    """(number, text) of each line, without comments."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0][0] == "/" else m[0]
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', blank, path.read_text(), flags=re.S)
    return list(enumerate(text.split("\n"), 1))


def breaches(src):
    """Yields (file, line, rule)."""
    rows = src / "model" / "config" / "arch.cc"
    names = re.findall(r'(?:gguf_name|hf_name) = "([^"]+)"', rows.read_text()) if rows.exists() else []
    rules = list(RULES)
    if names:
        rules.append(("io/", r'"(%s)"' % "|".join(map(re.escape, names)), None, 'io must not know architectures: "{0}"'))
    for path in sorted(p for p in src.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh", ".def", ".inc"}):
        name = path.relative_to(src).as_posix()
        folder = name.split("/")[0]
        for number, line in code_lines(path):
            for where, pattern, except_in, rule in rules:
                match = name.startswith(where) and not (except_in and name.startswith(except_in)) and re.search(pattern, line)
                if match:
                    yield name, number, rule.format(*match.groups())
            include = re.match(r'\s*#include "(\w+)/', line)
            if include and include[1] != folder and include[1] in LAYER:
                if folder not in LAYER:
                    yield name, number, f"folder {folder}/ has no layer: add it to LAYER"
                elif LAYER[include[1]] >= LAYER[folder] and (where := (folder, include[1])):
                    yield name, number, "includes only go down: %s must not include %s/" % where


def room_includes(src, base):
    """{room: {room that it includes: (file, line)}}, for the rooms in src/`base`."""
    graph = {}
    for path in sorted(p for p in (src / base).rglob("*") if p.suffix in {".h", ".cc"}):
        name = path.relative_to(src).as_posix()
        room = name.rpartition("/")[0]
        for number, line in code_lines(path):
            include = re.match(r'\s*#include "([^"]+)/', line)
            if include and include[1] != room and f"{include[1]}/".startswith(f"{base}/"):
                graph.setdefault(room, {}).setdefault(include[1], (name, number))
    return graph


def circles(src):
    """Yields (file, line, rule) for each include between rooms that is part of a circle."""
    for base in ROOMS:
        graph = room_includes(src, base)
        for room, others in graph.items():
            for other, (name, number) in others.items():
                reached, new = set(), {other}
                while new:
                    reached |= new
                    new = {after for at in new for after in graph.get(at, {})} - reached
                if room in reached:
                    yield name, number, f"rooms must not include each other: {other}/ includes {room}/, maybe through others"


def main(root):
    found = [*breaches(root / "src"), *circles(root / "src")]
    for name, number, rule in found:
        print(f"src/{name}:{number}: {rule}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
