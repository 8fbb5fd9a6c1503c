#!/usr/bin/env python3
"""Compares the quality of ingot's and ggml's quantizers. Prints the two tables of docs/formats.md as Markdown.

    pip install gguf numpy tokenizers && python tools/quantizer/measure.py build/ingot libggml-base.so

The first table has the error of each type on weights of known kinds, plain and weighted by importance, relative to the
weights (root mean square over root mean square). The second table has the demo model (its weights as float32) in each
mix, on text that it was not trained on: the distance of its logits and of its predictions (KL divergence) from those of
the unquantized model, and its perplexity. Differences are ingot's minus ggml's, paired by token, with their standard
errors. The tensors of llama.cpp's columns have the same types, and ggml encodes them.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from ggml import Ggml, squared, squared_error
from importance import importance_of, write_dat

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIXES = {"Q8_0": "Q8_0", "Q6_K": "Q6_K", "Q5_K": "Q5_K_S", "Q5_1": "Q5_1", "Q5_0": "Q5_0", "Q4_K": "Q4_K_S", "Q4_1": "Q4_1", "Q4_0": "Q4_0",
         "IQ4_NL": "IQ4_NL", "IQ4_XS": "IQ4_XS", "MXFP4": "MXFP4", "Q3_K": "Q3_K_S", "Q2_K": "Q2_K_S"}  # type: mix
ALL_MIXES = ["Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K_L",
             "Q3_K_M", "Q3_K_S", "Q2_K", "Q2_K_S"]
PIECE = 6000  # characters, well under the model's context
N_WINDOWS = 20  # of 512 tokens
NAME = "blk.7.ffn_up.weight"  # a matrix for which no mix makes an exception


class Ingot:
    def __init__(self, program):
        self.program = program

    def __call__(self, *args, stdin=""):
        done = subprocess.run([self.program, *map(str, args)], input=stdin, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout

    def quantize(self, source, out, mix, imatrix=None):
        return json.loads(self("quantize", source, out, mix, "--force", "--json", "--allow-requantize", *(["--imatrix", imatrix] if imatrix else [])))


def kinds(rng):
    """Weights by name, [rows, 1024]."""
    shape = (128, 1024)
    return {"Gaussian": rng.standard_normal(shape) * 0.02, "heavy-tailed (Student's t, 4)": rng.standard_t(4, shape) * 0.02,
            "outlier columns": rng.standard_normal(shape) * 0.02 * np.where(rng.random(1024) < 0.01, 12, 1)}


def write_one_tensor(path, weights):
    writer = gguf.GGUFWriter(path, "none")
    writer.add_block_count(16)
    writer.add_tensor(NAME, weights.astype(np.float32))
    writer.add_tensor("output.weight", np.zeros((1, 256), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor(path, name):
    return next(t for t in gguf.GGUFReader(path).tensors if t.name == name)


def ratio_row(ingot, ggml, folder, weights, importance, kind):
    """Error of ingot and ggml, plain and weighted, relative to the weights."""
    write_one_tensor(folder / "one.gguf", weights)
    write_dat(folder / "one.dat", {NAME: importance})
    cells = []
    for w in (None, importance):
        ingot.quantize(folder / "one.gguf", folder / "out.gguf", MIXES[kind], None if w is None else folder / "one.dat")
        made = tensor(folder / "out.gguf", NAME)
        assert made.tensor_type == Type[kind], made.tensor_type
        errors = (squared_error(weights, made.data, Type[kind], w),
                  squared_error(weights, ggml.quantize(weights, Type[kind], w), Type[kind], w))
        cells.append([float(np.sqrt(e / squared(weights, w))) for e in errors])
    return cells


def print_errors(ingot, ggml, folder, demo):
    rng = np.random.default_rng(20261121)
    sets = {name: w.astype(np.float32) for name, w in kinds(rng).items()} | {"demo model, ffn_up": demo}
    tables = {"plain": [], "by importance": []}
    for kind in MIXES:
        cells = []
        for weights in sets.values():
            importance = np.exp(1.5 * rng.standard_normal(weights.shape[1])).astype(np.float32)
            cells.append(ratio_row(ingot, ggml, folder, weights, importance, kind))
        for which, table in enumerate(tables.values()):
            table.append(f"| {kind} | " + " | ".join(f"{pair[which][0]:.4f} / {pair[which][1]:.4f}" for pair in cells) + " |")
            assert all(pair[which][0] <= pair[which][1] for pair in cells), table[-1]
    for name, table in tables.items():
        print(f"\n{name}: ingot / ggml\n\n| type | {' | '.join(sets)} |\n|---{'|---' * len(sets)}|", *table, sep="\n", flush=True)


def by_ggml(made, source, out, ggml, means):
    """A copy of a quantized file with blocks encoded by ggml."""
    shutil.copy(made, out)
    plain = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in gguf.GGUFReader(source).tensors}
    with open(out, "r+b") as file:
        for t in gguf.GGUFReader(made).tensors:
            if t.tensor_type in (Type.F32, Type.F16, Type.BF16):
                continue
            file.seek(t.data_offset)
            file.write(ggml.quantize(plain[t.name], t.tensor_type, means.get(t.name) if means else None).tobytes())


def centred_logits(ingot, model, pieces, folder):
    """The logits of every token of each piece, [n_tokens, n_vocab], less their mean, which changes no prediction."""
    for piece in pieces:
        ingot("logits", model, "-f", piece, "--all", "-b", "2048", "-o", folder / "logits.npy")
        logits = np.load(folder / "logits.npy")
        yield logits - logits.mean(-1, keepdims=True)


def perplexity_of(ingot, model, text):
    return json.loads(ingot("perplexity", model, "-f", text, "--chunks", N_WINDOWS, "--json"))["perplexity"]


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True, dtype=np.float64)).astype(np.float32)


def judge(ingot, model, pieces, ids, reference, folder):
    """Judges the weights only (as float32, so that no kernel rounds activations for a type): the error of the logits
    relative to their size, the KL divergence of each prediction from the unquantized model's, and each token's negative
    log-likelihood."""
    plain = folder / "plain.gguf"
    ingot.quantize(model, plain, "F32")
    off = size = 0.0
    divergence, loss = [], []
    for expected, logits, tokens in zip(reference, centred_logits(ingot, plain, pieces, folder), ids):
        off += float(np.square(logits - expected).sum(dtype=np.float64))
        size += float(np.square(expected).sum(dtype=np.float64))
        p, q = log_softmax(expected), log_softmax(logits)
        divergence.append((np.exp(p) * (p - q)).sum(-1, dtype=np.float64))
        loss.append(-q[np.arange(len(tokens) - 1), tokens[1:]].astype(np.float64))
    return (off / size) ** 0.5, np.concatenate(divergence), np.concatenate(loss)


def paired(a, b):
    """Mean of a - b and its standard error, token by token."""
    d = a - b
    return f"{1000 * d.mean():+.2f} \u00b1 {1000 * d.std(ddof=1) / len(d) ** 0.5:.2f}"


def print_mixes(ingot, ggml, folder, source, means, text, pieces):
    reference = list(centred_logits(ingot, source, pieces, folder))
    ids = [np.array(ingot("tokenize", source, "--ids", stdin=piece.read_text()).strip().strip("[]").split(","), int) for piece in pieces]
    assert [len(i) for i in ids] == [len(r) for r in reference]
    print(f"{sum(map(len, ids))} tokens; perplexity of {N_WINDOWS} windows unquantized: {perplexity_of(ingot, source, text):.4f}")
    for imatrix in (None, folder / "demo.dat"):
        print(f"\n{'By importance' if imatrix else 'Plain'}:\n\n| mix | bits a weight | error of the logits | KL x 1000 | its difference "
              "| perplexity | difference of the loss x 1000 |\n" + "|---" * 7 + "|")
        for mix in ALL_MIXES:
            report = ingot.quantize(source, folder / "a.gguf", mix, imatrix)
            by_ggml(folder / "a.gguf", source, folder / "b.gguf", ggml, means if imatrix else None)
            perplexities, judged = [], []
            for name in ("a.gguf", "b.gguf"):
                judged.append(judge(ingot, folder / name, pieces, ids, reference, folder))
                perplexities.append(perplexity_of(ingot, folder / "plain.gguf", text))
            (ea, ka, la), (eb, kb, lb) = judged
            print(f"| {mix} | {report['bits_per_weight']:.2f} | {ea:.4f} / {eb:.4f} | {1000 * ka.mean():.2f} / {1000 * kb.mean():.2f} | "
                  f"{paired(ka, kb)} | {perplexities[0]:.4f} / {perplexities[1]:.4f} | {paired(la, lb)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("ggml", help="libggml-base.so")
    parser.add_argument("--only", choices=["errors", "mixes"])
    args = parser.parse_args()
    ingot, ggml = Ingot(args.ingot), Ggml(str(pathlib.Path(args.ggml).resolve()))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / "demo.gguf"
        ingot("quantize", ROOT / "models/demo.gguf", source, "F32", "--allow-requantize")
        demo = gguf.dequantize(tensor(source, NAME).data, Type.F32).astype(np.float32)
        noise = np.random.default_rng(7).normal(0, 2e-5, demo.shape).astype(np.float32)  # off the grid of Q8_0
        if args.only != "mixes":
            print_errors(ingot, ggml, folder, demo + noise)
        if args.only == "errors":
            return
        words = (ROOT / "tests/data/demo/heldout.txt").read_text()
        cut = len(words) // 5
        means = importance_of(source, words[:cut])
        write_dat(folder / "demo.dat", means)
        (folder / "text.txt").write_text(words[cut:])
        pieces = []
        for start in range(cut, len(words) - PIECE, 2 * PIECE):
            pieces.append(folder / f"piece{start}.txt")
            pieces[-1].write_text(words[start:start + PIECE])
        print_mixes(ingot, ggml, folder, source, means, folder / "text.txt", pieces)


if __name__ == "__main__":
    main()
