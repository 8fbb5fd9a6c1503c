"""What the makers of goldens have in common: their command line, and the file beside each golden that says what was expected."""
import argparse
import json
import pathlib
import warnings

import torch


def write_sidecar(path, values):
    """A JSON object with a line for each key."""
    path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items()) + "\n}\n")


def make_all(description, specs, make_golden, first_seed, folder):
    """Calls make_golden(spec, seed, folder) for all specs, or those that are named. A spec keeps its seed whoever else is made."""
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
            make_golden(spec, first_seed + i, args.out)
