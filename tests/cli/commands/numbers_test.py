"""ingot logits, perplexity, inspect, tokenize and bench: the numbers in their output."""
import csv
import io
import json
import pathlib
import re

import numpy as np
import pytest


def golden(models, name):
    return json.loads((models / f"{name}.json").read_text()), np.load(models / f"{name}.npy")


def tokens_of(facts):
    return ",".join(map(str, facts["tokens"]))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_logits_equal_transformers(ingot, models, tmp_path, name):
    facts, expected = golden(models, name)
    out = tmp_path / "out.npy"
    ingot("logits", models / f"{name}.gguf", "--tokens", tokens_of(facts), "--all", "-o", out, "--device", "ref", "--cache-type", "f32")
    got = np.load(out)
    assert got.dtype == np.float32 and got.shape == expected.shape
    assert np.abs(got - expected).max() < 1e-4


def test_logits_of_the_last_token_only(ingot, models, tmp_path):
    facts, expected = golden(models, "llama")
    out = tmp_path / "out.npy"
    ingot("logits", models / "llama.gguf", "--tokens", tokens_of(facts), "-o", out, "--device", "ref", "--cache-type", "f32", "--chunk", 7)
    assert np.abs(np.load(out) - expected[-1:]).max() < 1e-4


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "llama_f16", "qwen3_tied_yarn"])
def test_cpu_logits_are_close(ingot, models, tmp_path, name):
    """Dense weights: only the order of the sums and the f16 cache differ."""
    facts, expected = golden(models, name)
    out = tmp_path / "out.npy"
    ingot("logits", models / f"{name}.gguf", "--tokens", tokens_of(facts), "--all", "-o", out)
    assert np.abs(np.load(out) - expected).max() < 0.02


@pytest.mark.parametrize("name", ["llama_q8_0", "llama_q4_0", "llama_k", "qwen2_mixed"])
def test_cpu_quantized_logits_are_near(ingot, models, tmp_path, name):
    """int8 activations reduce accuracy, as in every engine that uses them. The logits' standard deviation is about
    2."""
    facts, expected = golden(models, name)
    out = tmp_path / "out.npy"
    ingot("logits", models / f"{name}.gguf", "--tokens", tokens_of(facts), "--all", "-o", out)
    got = np.load(out)
    assert np.sqrt(np.mean((got - expected) ** 2)) < 0.03 * expected.std()


def test_token_outside_the_vocabulary(ingot, models, tmp_path):
    done = ingot("logits", models / "llama.gguf", "--tokens", "1,99999", "-o", tmp_path / "x.npy", ok=False)
    assert done.returncode == 1
    assert "99999" in done.stderr and "index 1" in done.stderr
    assert not (tmp_path / "x.npy").exists()


def test_perplexity_equals_float64(ingot, models, tmp_path):
    """Compared with the definition, computed here from the logits of each window."""
    text = tmp_path / "text.txt"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. " * 4)
    path = models / "qwen3.gguf"
    ids = json.loads(ingot("tokenize", path, "-f", text, "--json").stdout)["ids"]
    window, losses = 32, []
    for start in range(0, len(ids) - window + 1, window):
        part = ids[start : start + window]
        ingot("logits", path, "--tokens", ",".join(map(str, part)), "--all", "-o", tmp_path / "w.npy", "--device", "ref")
        logits = np.load(tmp_path / "w.npy").astype(np.float64)
        logp = logits - logits.max(1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(1, keepdims=True))
        losses += [-logp[i, part[i + 1]] for i in range(window // 2, window - 1)]
    got = json.loads(ingot("perplexity", path, "-f", text, "-c", window, "--json", "--device", "ref").stdout)
    assert got["n_scored"] == len(losses)
    assert got["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)


def test_perplexity_needs_two_windows(ingot, models, tmp_path):
    (tmp_path / "short.txt").write_text("short")
    done = ingot("perplexity", models / "llama.gguf", "-f", tmp_path / "short.txt", ok=False)
    assert done.returncode == 1 and "512" in done.stderr


def test_inspect_json(ingot, models):
    facts = json.loads(ingot("inspect", models / "qwen2_mixed.gguf", "--json", "--tensors", "-c", 64).stdout)
    assert facts["model"]["architecture"] == "qwen2"
    assert facts["quant_mix"]["Q5_1"]["tensors"] >= 1
    assert facts["memory"]["context"] == 64
    assert facts["memory"]["total_bytes"] > facts["memory"]["weights_bytes"] > 0
    assert facts["metadata"]["general.architecture"]
    assert facts["memory"]["weights_bytes"] >= sum(t["bytes"] for t in facts["tensors"])
    copied = json.loads(ingot("inspect", models / "qwen2_mixed.gguf", "--json", "--device", "ref", "-c", 64).stdout)
    assert copied["memory"]["weights_bytes"] == sum(t["bytes"] for t in facts["tensors"])  # ref reads the file itself


def test_inspect_text(ingot, models):
    out = ingot("inspect", models / "llama.gguf").stdout
    assert "architecture: llama" in out and "general.architecture" in out


def test_tokenize_forms_agree(ingot, models):
    path = models / "llama.gguf"
    ids = ingot("tokenize", path, "Hello world", "--ids", "--no-special").stdout.strip().split(",")
    facts = json.loads(ingot("tokenize", path, "Hello world", "--json", "--no-special").stdout)
    assert list(map(str, facts["ids"])) == ids
    assert "".join(facts["tokens"]) == "Hello world"
    piped = ingot("tokenize", path, "--ids", "--no-special", input="Hello world").stdout.strip()
    assert piped == ",".join(ids)


def test_bench_formats(ingot, models):
    args = ["bench", models / "llama.gguf", "-p", "16,8", "-n", "4", "-r", "2", "-t", "1"]
    table = ingot(*args).stdout
    assert "| pp16 |" in table and "| pp8 |" in table and "| tg4 |" in table
    rows = json.loads(ingot(*args, "-o", "json").stdout)
    assert [r["test"] for r in rows] == ["pp16", "pp8", "tg4"]
    for row in rows:
        assert row["avg_ts"] > 0 and len(row["samples_ts"]) == 2
        assert row["avg_ts"] == pytest.approx(np.mean(row["samples_ts"]))
        assert row["stddev_ts"] == pytest.approx(np.std(row["samples_ts"], ddof=1))
        assert row["peak"] is None or row["peak"] > 0
    parsed = list(csv.DictReader(io.StringIO(ingot(*args, "-o", "csv").stdout)))
    assert [r["test"] for r in parsed] == ["pp16", "pp8", "tg4"]


def test_bench_unknown_shape_and_type(ingot):
    done = ingot("bench", "--shape", "gpt-17", ok=False)
    assert done.returncode == 2 and "smollm-135m" in done.stderr
    done = ingot("bench", "--shape", "smollm-135m", "--type", "Q17", ok=False)
    assert done.returncode == 2 and "Q4_0" in done.stderr


def test_keys_and_values_of_two_types(ingot, models):
    """Only a GPU keeps keys of q8_0 with values of q4_0, and ref rounds as it does. A head of 16 takes 16 + 2 bytes and
    8 + 2; a GPU's cache has one block more."""
    mixed = ["--kv-type", "q8_0/q4_0"]
    out = json.loads(ingot("inspect", models / "llama.gguf", "--fit", "--gpu-memory", "1GiB", "--json", *mixed).stdout)
    for row in out["fit"]:
        assert row["kv_bytes"] == (row["sequences"] * -(-row["context"] // 16) + 1) * 16 * 2 * (18 + 10)
    need = json.loads(ingot("inspect", models / "llama.gguf", "--device", "ref", "--json", *mixed).stdout)
    assert need["memory"]["kv_bytes_per_token"] == 2 * (18 + 10), need
    story = ["run", models / "llama.gguf", "--raw", "-p", "a fox", "-n", "8", "--temp", "0"]
    assert ingot(*story, "--device", "ref", *mixed).stdout
    for args in [story, ["inspect", models / "llama.gguf", "--fit"]]:
        refused = ingot(*args, "--device", "cpu", *mixed, ok=False)
        assert refused.returncode != 0 and "a KV cache of q8_0/q4_0 needs a GPU" in refused.stderr, refused
    unknown = ingot(*story, "--kv-type", "q4_0/q8_0", ok=False)
    assert unknown.returncode != 0 and "unknown KV cache type 'q4_0/q8_0'" in unknown.stderr


def test_inspect_says_what_fits(ingot, models):
    """This llama has 2 layers with one head of 16, so a token takes 2 * (16 + 32) * 2 bytes in f16: the CPU pads values
    to 32."""
    out = json.loads(ingot("inspect", models / "llama.gguf", "--fit", "--memory", "8MiB", "--json").stdout)
    assert out["available_bytes"] == 8 << 20 and out["fit"], out
    for i, row in enumerate(out["fit"]):
        assert row["sequences"] == 2**i
        assert row["kv_bytes"] == row["sequences"] * -(-row["context"] // 16) * 16 * 2 * (16 + 32) * 2
        assert row["total_bytes"] == out["weights_bytes"] + row["kv_bytes"] + row["activation_bytes"] <= out["available_bytes"] * 0.95
    assert out["fit"][0]["context"] == out["model_context"]
    text = ingot("inspect", models / "llama.gguf", "--fit", "--memory", "8MiB").stdout
    assert "sequences  context each" in text and "the model's own context" in text
    assert "nothing fits" in ingot("inspect", models / "llama.gguf", "--fit", "--memory", "10KiB").stdout
    hybrid = json.loads(ingot("inspect", models / "qwen35.gguf", "--fit", "--json").stdout)["fit"]
    slot = hybrid[0]["state_bytes"] // 5  # one for the sequence and four for snapshots
    assert slot > 0
    for row in hybrid:
        assert row["snapshots"] == 2 * row["sequences"] + 2 and row["state_bytes"] == (row["sequences"] + row["snapshots"]) * slot
    few = json.loads(ingot("inspect", models / "qwen35.gguf", "--fit", "--snapshots", "1", "--json").stdout)["fit"]
    assert few[1]["state_bytes"] == 3 * slot
    assert "sequences  snapshots  context each" in ingot("inspect", models / "qwen35.gguf", "--fit").stdout
    assert ingot("inspect", models / "llama.gguf", "--memory", "8MiB", ok=False).returncode != 0


def test_numa_binds_threads_where_there_are_nodes(ingot):
    folder = pathlib.Path("/sys/devices/system/node")
    n_nodes = sum((node / "cpulist").read_text().strip() != "" for node in folder.glob("node[0-9]*"))
    bench = ["bench", "-p", 8, "-n", 0, "-r", 1, "--numa"]
    assert "threads, " in ingot(*bench, "off").stdout
    for how in ["distribute", "isolate"]:
        done = ingot(*bench, how, ok=False)
        if n_nodes > 1 and done.returncode == 0:
            assert re.search(" on (2|3|4|8) memory nodes| on memory node ", done.stdout)
        else:
            assert done.returncode == 2 and re.fullmatch(f"ingot: memory nodes, {how}: .*; use off\n", done.stderr)


def test_isa_chooses_the_kernels(ingot):
    assert " threads, portable" in ingot("bench", "-p", 8, "-n", 0, "-r", 1, "--isa", "portable").stdout
