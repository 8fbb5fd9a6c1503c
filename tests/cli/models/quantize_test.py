"""ingot quantize and ingot convert, as users run them. tests/quant and tests/model test the numbers."""
import json
import os
import resource
import signal
import subprocess
import time

import numpy as np
import pytest


@pytest.fixture
def hf(models):
    return models.parent / "hf"


def golden(models, name):
    return json.loads((models / f"{name}.json").read_text()), np.load(models / f"{name}.npy")


def logits(ingot, model, tokens, out):
    ingot("logits", model, "--tokens", ",".join(map(str, tokens)), "--all", "-o", out, "--device", "ref", "--cache-type", "f32")
    return np.load(out)


def test_quantize_the_demo_model(ingot, models, tmp_path):
    demo, out = models.parents[2] / "models" / "demo.gguf", tmp_path / "q4.gguf"
    done = ingot("quantize", demo, out, "q4_k_m", ok=False)
    assert done.returncode == 1 and "stored as Q8_0" in done.stderr and "allow-requantize" in done.stderr and not out.exists()
    done = ingot("quantize", demo, out, "q4_k_m", "--allow-requantize")
    assert done.stderr == "" and "4.96 bits a weight, F32 30, Q4_K 80, Q6_K 13" in done.stdout
    assert out.stat().st_size < 0.62 * demo.stat().st_size
    text = ingot("run", out, "-p", "Tell me a story about a fox.", "-n", "24", "--temp", "0").stdout
    assert "fox" in text


def test_summary_as_json(ingot, models, tmp_path):
    out = tmp_path / "out.gguf"
    facts = json.loads(ingot("quantize", models / "llama_f16.gguf", out, "Q5_K_M", "--output-type", "F16", "--json").stdout)
    assert facts["file"] == str(out) and facts["mix"]["F16"] == 1 and facts["fallbacks"]
    assert facts["bits_per_weight"] == pytest.approx(8 * facts["bytes_after"] / facts["weights"])
    tensors = json.loads(ingot("inspect", out, "--json", "--tensors").stdout)["tensors"]
    assert sum(t["bytes"] for t in tensors) == facts["bytes_after"] and len(tensors) == facts["tensors"]
    assert {t["type"] for t in tensors if t["name"] == "token_embd.weight"} == {"F16"}  # tied: it is the output


@pytest.mark.parametrize("name", ["llama_bf16", "llama_tied_llama3", "mistral_window", "qwen2", "qwen3_tied_yarn"])
def test_convert_gives_the_same_model(ingot, models, hf, tmp_path, name):
    facts, expected = golden(models, name)
    ingot("convert", hf / name, tmp_path / "out.gguf")
    assert np.abs(logits(ingot, tmp_path / "out.gguf", facts["tokens"], tmp_path / "a.npy") - expected).max() < 1e-4
    ingot("convert", hf / name, tmp_path / "q8.gguf", "--type", "Q8_0")
    off = logits(ingot, tmp_path / "q8.gguf", facts["tokens"], tmp_path / "b.npy") - expected
    assert 0 < off.std() < 0.05 * expected.std()
    text = "the cat <|eos|> and 12 hats\n\n"
    assert ingot("tokenize", hf / name, text, "--ids").stdout == ingot("tokenize", tmp_path / "out.gguf", text, "--ids").stdout
    assert ingot("inspect", hf / name, "--template").stdout == ingot("inspect", tmp_path / "out.gguf", "--template").stdout


def test_never_overwrites_without_force(ingot, models, tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("mine")
    done = ingot("quantize", models / "llama_f16.gguf", out, "Q8_0", ok=False)
    assert done.returncode == 1 and "already exists: give --force" in done.stderr and out.read_text() == "mine"
    ingot("quantize", models / "llama_f16.gguf", out, "Q8_0", "--force")
    assert out.read_bytes()[:4] == b"GGUF"
    ingot("quantize", out, out, "Q8_0", "--force")  # over the input file
    assert json.loads(ingot("inspect", out, "--json").stdout)["quant_mix"]["Q8_0"]["tensors"] == 15


@pytest.mark.parametrize("args, code, message", [
    (["IN", "OUT"], 2, "TYPE is required"),
    (["IN", "OUT", "Q4_K_XL"], 2, "unknown type 'Q4_K_XL': use one of F32, F16"),
    (["IN", "OUT", "Q8_0", "--output-type", "IQ2_S"], 2, "--output-type: ingot cannot write the type 'IQ2_S': use one of F32"),
    (["IN", "OUT", "Q8_0", "--imatrix", "IN"], 1, "is not an importance matrix"),
    (["IN", "OUT", "Q8_0", "--imatrx", "IN"], 2, "(nearest: --imatrix)"),
    (["IN.no", "OUT", "Q8_0"], 1, "No such file"),
    (["IN", "no/such/folder/OUT", "Q8_0"], 1, "cannot create a file next to"),
    (["IN", ".", "Q8_0"], 1, "is a directory"),
])
def test_what_is_wrong_is_named(ingot, models, tmp_path, args, code, message):
    names = {"IN": models / "llama_f16.gguf", "OUT": tmp_path / "out.gguf"}
    done = ingot("quantize", *[names.get(a, a) for a in args], ok=False)
    assert done.returncode == code and message in done.stderr and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_convert_wants_a_directory(ingot, models, tmp_path):
    done = ingot("convert", models / "llama.gguf", tmp_path / "out.gguf", ok=False)
    assert done.returncode == 1 and "is not a model directory" in done.stderr and "ingot quantize" in done.stderr


def write_large(path):
    """A model with one matrix that takes many seconds to quantize. Written as GGUF version 3 without a library."""
    rows, n = 50000, 4096
    name = b"blk.0.ffn_up.weight"
    key, arch = b"general.architecture", b"llama"
    u32, u64 = (lambda v: np.uint32(v).tobytes()), (lambda v: np.uint64(v).tobytes())
    header = b"GGUF" + u32(3) + u64(1) + u64(1) + u64(len(key)) + key + u32(8) + u64(len(arch)) + arch
    header += u64(len(name)) + name + u32(2) + u64(n) + u64(rows) + u32(0) + u64(0)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32))
        file.truncate(file.tell() + 4 * rows * n)  # zeros, which take no disk space


def test_interrupted_it_leaves_nothing(tmp_path):
    write_large(tmp_path / "in.gguf")
    process = subprocess.Popen([os.environ["INGOT"], "quantize", tmp_path / "in.gguf", tmp_path / "out.gguf", "Q6_K", "-t", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)  # until the temporary file exists
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted; nothing was written" in err and out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["in.gguf"]


def test_a_full_disk_leaves_nothing(models, tmp_path):
    """A limit on the size of files makes the write fail as on a full disk."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    done = subprocess.run([os.environ["INGOT"], "quantize", models / "llama_f16.gguf", tmp_path / "out.gguf", "Q8_0"],
                          preexec_fn=limit, restore_signals=False, capture_output=True, text=True)  # SIGXFSZ stays ignored
    assert done.returncode == 1 and "cannot write" in done.stderr and "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
