"""Shared by the scripts that make goldens: the command line, and the file with the expected values of each golden."""
import argparse
import json
import pathlib
import sys
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from weight_parts import pack_all  # noqa: E402


def write_sidecar(path, values):
    """Writes a JSON object with one line for each key."""
    path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items()) + "\n}\n")


def compact(folder):
    """Writes the tokenizer.json of all models again, without the spaces that are half of such a file."""
    for path in sorted(folder.rglob("tokenizer.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def make_all(description, specs, make_golden, first_seed, folder):
    """Calls make_golden(spec, seed, folder) for all specs, or for those named. A spec's seed does not depend on which
    other specs are made."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path(folder))
    parser.add_argument("names", nargs="*", help="only these models")
    args = parser.parse_args()
    unknown = set(args.names) - {s.name for s in specs}
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for i, spec in enumerate(specs):
        if not args.names or spec.name in args.names:
            make_golden(spec, getattr(spec, "seed", 0) or first_seed + i, args.out)
    compact(args.out)
    data = ROOT / "tests" / "data"
    if args.out.resolve().is_relative_to(data):
        pack_all(data)
