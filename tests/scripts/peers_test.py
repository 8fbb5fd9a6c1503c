"""bench/cpu: the rows and tables of peers.py, and the files of random_model.py."""
import csv
import io
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(ROOT / "bench" / "cpu"))
import peers
import random_model
import recurrent

OURS = """model,test,avg_ts,achieved,unit,peak,peak_kind
"m",pp512,200.000,50.000,GFLOP/s,100.000,bf16
"m",tg32,30.000,20.000,GB/s,80.000,read
"""
THEIRS = """n_prompt,n_gen,avg_ts
512,0,100.0
0,32,20.0
"""


def add(monkeypatch, path, threads, program, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    peers.add(path, "s", "Q4_0", threads, program)


def test_rows_by_number_of_threads(monkeypatch, tmp_path, capsys):
    path = tmp_path / "peers.csv"
    for threads in "1", "2":
        add(monkeypatch, path, threads, "ingot", OURS)
        add(monkeypatch, path, threads, "llama.cpp", THEIRS)
    rows = list(csv.DictReader(path.open()))
    assert [(r["threads"], r["program"], r["test"], r["tok_s"], r["share"]) for r in rows[:4]] == [
        ("1", "ingot", "pp512", "200.000", "0.500"), ("1", "ingot", "tg32", "30.000", "0.250"),
        ("1", "llama.cpp", "pp512", "100.0", ""), ("1", "llama.cpp", "tg32", "20.0", "")]
    peers.table(path)
    table = capsys.readouterr().out
    assert "| s | Q4_0 | 1 | pp512 | 200.0 | 100.0 | 2.00 |" in table
    assert "| s | Q4_0 | 2 | tg32 | 30.0 | 20.0 | 1.50 |" in table
    peers.wide(path)
    assert capsys.readouterr().out.splitlines()[2] == "s,Q4_0,2,100,200,20,30,0.5,0.25"


def test_no_rows_are_a_fault(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="other printed no rows"):
        add(monkeypatch, tmp_path / "peers.csv", "1", "other", "n_prompt,n_gen,avg_ts\n")


def test_served(monkeypatch, tmp_path):
    path = tmp_path / "serving.csv"
    times = {"seconds": 2, "ttft_ms": {"p50": 5}, "itl_ms": {"p50": 1}}
    for run, name in (({"output_tok_s": 64, "failed": 0}, "engine"), ({"output_tokens_per_s": 32, "failed": 0, "refused": 0}, "server")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(run | times)))
        peers.served(path, "load", "2", name)
    assert [(r["program"], r["output_tok_s"]) for r in csv.DictReader(path.open())] == [("engine", "64"), ("server", "32")]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"output_tok_s": 64, "failed": 1} | times)))
    with pytest.raises(SystemExit, match="1 requests failed"):
        peers.served(path, "load", "2", "engine")


def test_blocks_have_their_scales_and_files_their_sizes(tmp_path):
    for kind, (_, size, scales) in random_model.TYPES.items():
        blocks = random_model.random_blocks(size, scales)
        for at, value in scales:
            for block in 0, 4095:
                assert struct.unpack_from("<e", blocks, block * size + at)[0] == pytest.approx(value, rel=0.05), kind
    path = tmp_path / "file.gguf"
    random_model.write("smollm-135m", path, "Q4_0")
    n_elements = sum(math.prod(dims) for _, dims, has_type in random_model.tensors("smollm-135m") if has_type)
    assert 0 <= path.stat().st_size - n_elements * 18 // 32 < 4 << 20  # vocabulary, vectors and padding


def test_more_threads_that_are_slower_are_named(monkeypatch, tmp_path, capsys):
    rows = [{"test": "tg8", "n_threads": n, "samples_ts": [rate, 1000, 1]} for n, rate in ((4, 38), (1, 20), (2, 40))]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(rows)))
    peers.threads(tmp_path / "threads.csv", "s", "Q4_0")
    assert capsys.readouterr().out == "s Q4_0 tg8, tok/s by threads: 1: 20, 2: 40, 4: 38 (SLOWER, 0.95 of the best below)\n"
    assert (tmp_path / "threads.csv").read_text().splitlines()[-1] == "s,Q4_0,tg8,4,38,0.950"


# A shape of each family but Llama's, and what is made smaller in it.
OTHER_KINDS = {
    "qwen3-30b-a3b": {"experts": (8, 2, 256)},
    "lfm2-350m": {},
    "mamba-130m": {"rank": 256},
    "mamba2-130m": {},
    "rwkv7-0.4b": {"decay": 256, "rate": 256, "value": 256, "gate": 256},
    "recurrentgemma-2b": {},
    "kimi-linear-48b-a3b": {"experts": (8, 2, 256), "nope": 256, "head_dim": 256, "layers": 4},
    "qwen3.5-0.8b": {"layers": 4},
    "qwen3-next-80b-a3b": {"experts": (8, 2, 256), "layers": 4},
    "granite-4.0-h-1b": {"attention": (1,)},
    "falcon-h1-1.5b": {},
}


@pytest.mark.parametrize("shape", OTHER_KINDS)
def test_other_kinds_of_layers_run(shape, monkeypatch, tmp_path):
    small = {"layers": 3, "tokens": 512} | OTHER_KINDS[shape]
    monkeypatch.setitem(random_model.SHAPES, shape, random_model.SHAPES[shape] | small)
    path = tmp_path / "file.gguf"
    random_model.write(shape, path, "Q4_K_M")
    run = subprocess.run([os.environ["INGOT"], "bench", path, "-p", "8", "-n", "2", "-r", "1", "-t", "1", "-o", "csv"], capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    assert [row["test"] for row in csv.DictReader(io.StringIO(run.stdout))] == ["pp8", "tg2"]


def test_the_mix_of_q4_k_m():
    kinds = {name: random_model.type_of(name, 16, "Q4_K_M") for name, _, has_type in random_model.tensors("llama-3.2-1b") if has_type}
    assert kinds["token_embd.weight"] == "Q6_K" and kinds["blk.5.ffn_up.weight"] == "Q4_K"
    down = [i for i in range(16) if kinds[f"blk.{i}.ffn_down.weight"] == "Q6_K"]
    assert down == [0, 1, 4, 7, 10, 13, 14, 15]


def test_layers_with_states_beside_a_model_of_llamas_kind(monkeypatch, tmp_path):
    """Medians of three rounds; 100 tokens a second with 10 MB of states read and write 2 GB/s beside the weights' 8."""
    rounds = iter([1, 3, 2])
    factor = {}

    def run(command):
        words = [str(word) for word in command]
        if words[1] == "inspect":
            return json.dumps({"memory": {"state_bytes": 10_000_000}, "model": {"layers": 24}})
        if words[0] == "llama":
            return f"n_prompt,n_gen,avg_ts\n512,0,{100 * factor['now']}\n0,64,{20 * factor['now']}\n"
        if pathlib.Path(words[2]).name.startswith("beside"):
            return "test,avg_ts,achieved\ntg64,70,10\n"
        if "-d" in words:
            return "test,avg_ts,achieved\ntg64 @ d4096,90,7\n"
        factor["now"] = next(rounds)
        return f"test,avg_ts,achieved\npp512,{1000 * factor['now']},1\ntg64,{50 * factor['now']},{4 * factor['now']}\n"

    monkeypatch.setattr(recurrent, "run", run)
    monkeypatch.setitem(recurrent.ROWS, "s", ("beside", 0, "Q4_0", True))
    for name in "s", "beside":
        (tmp_path / f"{name}-Q4_0.gguf").touch()
    args = types.SimpleNamespace(folder=tmp_path, ingot="ingot", llama="llama", rounds=3, threads=2)
    row = dict(zip(recurrent.COLUMNS, recurrent.measure(args, "s", "Q4_0")))
    assert (row["layers"], row["MB of states"], row["prefill llama.cpp"], row["prefill ingot"]) == (24, "10.0", "200", "2000")
    assert (row["decode llama.cpp"], row["decode ingot"], row["decode ingot after 4096"]) == ("40", "100", "90")
    assert (row["of Llama's by weights"], row["of Llama's with states"]) == ("0.80", "1.00")
