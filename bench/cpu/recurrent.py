#!/usr/bin/env python3
"""Measures ingot and llama.cpp in turns on layers with states, and a model of Llama's kind of that size beside them.

    bench/cpu/recurrent.py [-w FOLDER] [-i INGOT] [-l LLAMA_BENCH] [-n ROUNDS] [-t THREADS] [SHAPE TYPE]... > docs/data/recurrent.csv

Without shapes: all rows below. Files of random weights are written to FOLDER (build/peers), and stay there. All numbers are medians of the
rounds: prompts of 512 tokens and 64 decoded tokens in tokens a second, the decoded tokens also after 4,096 others. The last two columns
are the bytes that a decoded token needs, by the time that it takes, divided by the same of the model of Llama's kind: the weights alone,
and with the states, which are read and written.
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys

ROWS = {  # a shape: the model of Llama's kind beside it, the layers that are measured if not all, types, whether llama.cpp runs it
    "mamba-130m": ("smollm-135m", 0, "Q4_0 F16", True),
    "mamba2-130m": ("smollm-135m", 0, "Q4_0 F16", True),
    "lfm2-350m": ("qwen3-0.6b", 0, "Q4_0 F16", True),
    "rwkv7-0.4b": ("qwen3-0.6b", 0, "Q4_0 F16", True),
    "qwen3.5-0.8b": ("qwen3-0.6b", 0, "Q4_0 F16", True),
    "lfm2-1.2b": ("llama-3.2-1b", 0, "Q4_0", True),
    "mamba-1.4b": ("llama-3.2-1b", 0, "Q4_0", True),
    "mamba2-1.3b": ("llama-3.2-1b", 0, "Q4_0", True),
    "rwkv7-1.5b": ("llama-3.2-1b", 0, "Q4_0", True),
    "granite-4.0-h-1b": ("llama-3.2-1b", 0, "Q4_0", True),
    "falcon-h1-1.5b": ("llama-3.2-1b", 0, "Q4_0", True),
    "recurrentgemma-2b": ("llama-3.2-1b", 0, "Q4_0", False),
    "kimi-linear-48b-a3b": ("llama-3.2-1b", 4, "Q4_0", False),
    "qwen3-next-80b-a3b": ("llama-3.2-1b", 4, "Q4_0", True),
}
COLUMNS = ["shape", "type", "layers", "MB of states", "prefill llama.cpp", "prefill ingot", "decode llama.cpp", "decode ingot",
           "decode ingot after 4096", "of Llama's by weights", "of Llama's with states"]
HERE = pathlib.Path(__file__).parent


def model_file(args, shape, kind, layers=0):
    path = args.folder / f"{shape}-{kind}.gguf"
    if path.exists():
        return path
    write = [sys.executable, HERE / "random_model.py", shape]
    less = ["--layers", str(layers)] if layers else []
    if subprocess.run([*write, path, "--type", kind, *less], stderr=subprocess.DEVNULL).returncode != 0:  # rows of no whole blocks
        whole = path.with_name(f"{shape}-F16.gguf")
        subprocess.run([*write, whole, *less], check=True)
        subprocess.run([args.ingot, "quantize", whole, path, kind], check=True, stdout=sys.stderr)
    return path


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"recurrent.py: {command[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def ours(args, path, tests):
    """Rates by test, and GB/s of decoding by weights and keys."""
    rows = list(csv.DictReader(run([args.ingot, "bench", path, "-t", args.threads, "-r", 1, "-o", "csv", *tests]).splitlines()))
    return {row["test"]: (float(row["avg_ts"]), float(row["achieved"])) for row in rows}


def theirs(args, path):
    rows = csv.DictReader(run([args.llama, "-m", path, "-t", args.threads, "-r", 1, "-o", "csv", "-p", 512, "-n", 64]).splitlines())
    return {"pp512" if int(row["n_prompt"]) else "tg64": float(row["avg_ts"]) for row in rows}


def measure(args, shape, kind):
    like, layers, _, has_peer = ROWS[shape]
    path, beside = model_file(args, shape, kind, layers), model_file(args, like, kind)
    inspected = json.loads(run([args.ingot, "inspect", "--json", path]))
    found = {}
    for _ in range(args.rounds):
        for name, (rate, gb_s) in ours(args, path, ["-p", 512, "-n", 64]).items():
            found.setdefault(name, []).append(rate)
            found.setdefault(name + " GB/s", []).append(gb_s)
        found.setdefault("beside GB/s", []).append(ours(args, beside, ["-p", 0, "-n", 64])["tg64"][1])
        found.setdefault("deep", []).append(ours(args, path, ["-p", 0, "-n", 64, "-d", 4096])["tg64 @ d4096"][0])
        if args.llama and has_peer:
            for name, rate in theirs(args, path).items():
                found.setdefault("llama.cpp " + name, []).append(rate)
    median = {name: statistics.median(values) for name, values in found.items()}
    states_gb_s = 2e-9 * inspected["memory"]["state_bytes"] * median["tg64"]
    weights, beside = median["tg64 GB/s"], median["beside GB/s"]
    rates = [f"{median[name]:.4g}" if name in median else "" for name in ("llama.cpp pp512", "pp512", "llama.cpp tg64", "tg64", "deep")]
    return [shape, kind, inspected["model"]["layers"], f"{inspected['memory']['state_bytes'] / 1e6:.1f}", *rates,
            f"{weights / beside:.2f}", f"{(weights + states_gb_s) / beside:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="SHAPE TYPE", help="rows to measure; default: all")
    parser.add_argument("-w", dest="folder", type=pathlib.Path, default=pathlib.Path("build/peers"), help="folder of the files")
    parser.add_argument("-i", dest="ingot", default="build/ingot", help="the program ingot")
    parser.add_argument("-l", dest="llama", help="llama.cpp's llama-bench; without it, ingot alone is measured")
    parser.add_argument("-n", dest="rounds", type=int, default=3, help="rounds")
    parser.add_argument("-t", dest="threads", type=int, default=2, help="threads")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    pairs = list(zip(args.rows[::2], args.rows[1::2])) or [(shape, kind) for shape, row in ROWS.items() for kind in row[2].split()]
    if len(args.rows) % 2 or any(shape not in ROWS for shape, _ in pairs):
        parser.error(f"give pairs of a shape and a type; shapes: {', '.join(ROWS)}")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for pair in pairs:
        writer.writerow(measure(args, *pair))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
