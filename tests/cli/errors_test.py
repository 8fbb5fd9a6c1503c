"""Bad command lines and bad files: one line on standard error, nothing on standard output, exit code 2 or 1."""
import os
import pathlib
import re
import subprocess
import time

import pytest


def refused(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.strip().split("\n")
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize(
    "args, words",
    [
        (["frobnicate"], ["frobnicate"]),
        (["rnu"], ["unknown command 'rnu' (nearest: run)"]),
        (["serv", "--help"], ["nearest: serve"]),
        (["help", "frobnicate"], ["frobnicate"]),
        (["run", "-p", "x", "--logprobs", "2"], ["--logprobs needs --json"]),
        (["run", "What is it?"], ["'What is it?' is not a model", "-p"]),
        (["run", "m.gguf", "What?", "-p", "x"], ["QUESTION", "--prompt"]),
        (["run", "-p", "x", "--chat-template", "llama3"], ["llama3", "--chat-template-file"]),
        (["run", "-p", "x", "-ngl"], ["-ngl needs a number"]),
        (["ls", "--mlock"], ["--mlock"]),
        (["run", "--nonsense"], ["--nonsense"]),
        (["run", "--tempp", "1"], ["--tempp", "nearest: --temp"]),
        (["run", "one.gguf", "a question", "two.gguf"], ["two.gguf"]),
        (["run", "-p", "x", "--temp", "warm"], ["--temp"]),
        (["run", "-p", "x", "--temp", "-1"], ["ingot: --temp is -1"]),
        (["run", "-p", "x", "--temperature=-1"], ["ingot: --temperature is -1"]),
        (["chat", "--top-p", "1.5"], ["ingot: --top-p is 1.5"]),
        (["run", "-p", "x", "--repetition-penalty", "0"], ["ingot: --repetition-penalty is 0"]),
        (["run", "-p", "x", "-n", "0"], ["-n", "0 is no number of tokens"]),
        (["run", "-p", "x", "--predict=00"], ["--predict", "0 is no number of tokens"]),
        (["run", "-p", "x", "--lora", "a.gguf"], ["--lora is a flag of llama.cpp that `ingot run` does not have"]),
        (["run", "-p", "x", "--device", "tpu"], ["tpu"]),
        (["run", "-p", "x", "--log-level", "loud"], ["loud"]),
        (["run", "-p", "x", "--cache-type", "q1"], ["q1"]),
        (["run", "-p", "x", "--gpu-memory", "0.5"], ["--gpu-memory", "--device cuda"]),
        (["run", "-p", "x", "--device", "cuda", "--gpu-memory", "1.5"], ["1.5", "40GiB"]),
        (["run", "-p", "x", "--device", "cuda", "--gpu-memory", "lots"], ["lots", "0.9"]),
        (["run", "-p", "x", "--device", "cuda", "--kernels", "slow"], ["--kernels", "tuned", "fixed"]),
        (["bench", "--kernels", ""], ["--kernels", "tuned"]),
        (["run", "-p", "x", "--isa", "mmx"], ["'mmx'", "portable"]),
        (["bench", "--device", "ref", "--isa", "portable"], ["--isa", "--device cpu, not ref"]),
        (["run", "-p", "x", "--numa", "numactl"], ["--numa", "distribute", "isolate", "off"]),
        (["bench", "--device", "ref", "--numa", "isolate"], ["--numa", "--device cpu, not ref"]),
        (["inspect", "--shape", "llama-3.2-1b"], ["--kernels"]),
        (["inspect", "--kernels", "--rows", "0"], ["--rows"]),
        (["run", "-p", ""], ["prompt"]),
        (["bench", "-o", "xml"], ["xml"]),
    ],
)
def test_bad_command_lines(ingot, args, words):
    refused(ingot(*args, ok=False), 2, *words)


BAD = {
    "INT": ["", "x", "1e3", "5x", "1.5", "-99", "2147483648", "9223372036854775808", "18446744073709551616", "nan", "inf"],
    "FLOAT": ["", "x", "5x", "nan", "inf", "-inf", "1e999"],
    None: ["x"],
}


@pytest.mark.parametrize("command", ["run -p x", "chat", "inspect", "bench", "tokenize m.gguf t", "logits -p x -o y.npy", "perplexity -f z.txt",
                                  "quantize m.gguf o.gguf Q8_0", "convert m o.gguf",
                                  "pull a/b"])
def test_every_flag_refuses_bad_values(ingot, command):
    """The flags and their kinds of values are read from the help page. The value -99 is valid only for text."""
    page = ingot(command.split()[0], "--help-all").stdout
    flags = re.findall(r"^  (?:-\w,)?(--[\w-]+)[\w,-]*(?: (INT|FLOAT|TEXT)\S*)?", page, re.M)
    assert len(flags) > 4
    for flag, kind in flags[2:]:  # all but --help and --help-all
        for value in BAD.get(kind or None, []):
            refused(ingot(*command.split(), f"{flag}={value}", ok=False), 2)


def test_flags_that_llama_cpp_alone_has():
    """None of them is a flag of ingot, and none is listed twice."""
    source = pathlib.Path(os.environ["INGOT_SOURCE"])
    rows = re.findall(r'LACKING\(((?:\s*"[^"]*")+),\s*"', (source / "src" / "cli" / "llama_flags.def").read_text())
    names = [name for row in rows for name in " ".join(re.findall(r'"([^"]*)"', row)).split()]
    ours = set(re.findall(r"`(--?[\w-]+)`", (source / "docs" / "cli.md").read_text()))
    assert len(names) > 60 and len(set(names)) == len(names)
    assert not {name for name in names if name.startswith("--")} & ours


def test_a_cross_encoder_ranks(ingot):
    ranker = pathlib.Path(os.environ["INGOT_SOURCE"]) / "tests" / "data" / "rankers" / "bert"
    for command in (["chat"], ["run", "-p", "x"]):
        refused(ingot(command[0], ranker, *command[1:], ok=False), 1, "ranks documents", "use `ingot rerank`")
    encoder = ranker.parents[1] / "encoders" / "bert"
    refused(ingot("chat", encoder, ok=False), 1, "makes vectors of texts", "use `ingot embed`")


@pytest.mark.parametrize("command", [["run", "-p", "x"], ["chat"], ["inspect"], ["bench"], ["tokenize"], ["logits", "-o", "x.npy", "--tokens", "1"],
                                  ["quantize", "o.gguf", "Q8_0"]])
def test_missing_file(ingot, command):
    refused(ingot(command[0], "/no/such/model.gguf", *command[1:], ok=False), 1, "/no/such/model.gguf", "No such file")


def test_things_that_are_no_models(ingot, tmp_path, models):
    good = (models / "llama.gguf").read_bytes()
    cases = {
        "lfs.gguf": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "LFS"),
        "page.gguf": (b"<!DOCTYPE html><html></html>", "HTML"),
        "empty.gguf": (b"", "truncated"),
        "cut.gguf": (good[: len(good) // 2], "cut.gguf"),
        "short.gguf": (good[:-1], "short.gguf"),
    }
    for name, (content, word) in cases.items():
        (tmp_path / name).write_bytes(content)
        refused(ingot("inspect", tmp_path / name, ok=False), 1, word)
        refused(ingot("run", tmp_path / name, "-p", "x", ok=False), 1, word)


def test_directories_fifos_and_devices(ingot, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in [tmp_path, tmp_path / "pipe", "/dev/zero"]:
        start = time.monotonic()
        refused(ingot("inspect", path, ok=False), 1)
        assert time.monotonic() - start < 20


def test_hostile_name_is_escaped(ingot, tmp_path):
    done = ingot("inspect", tmp_path / "a\x1b[31m\nb.gguf", ok=False)
    refused(done, 1)
    assert "\x1b" not in done.stderr


def test_full_disk_is_reported(ingot):
    with open("/dev/full", "w") as full:
        done = subprocess.run([os.environ["INGOT"], "inspect"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr


@pytest.mark.parametrize("command", ["run", "chat", "inspect", "bench", "tokenize", "logits", "perplexity", "pull", "ls", "rm", "quantize", "convert"])
def test_help_has_examples(ingot, command):
    out = ingot(command, "--help-all").stdout
    assert "Example" in out and f"ingot {command}" in out


def test_broken_json_says_where(ingot, tmp_path):
    (tmp_path / "chat.json").write_text('[{"role":\n')
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}")
    done = ingot("template", "--template-file", tmp_path / "chat.jinja", "--messages", tmp_path / "chat.json", ok=False)
    refused(done, 1, "chat.json", "line 2")
    assert "exception" not in done.stderr


def test_version(ingot):
    assert ingot("--version").stdout.startswith("ingot ")


@pytest.mark.parametrize("device", ["ref", "cpu"])
def test_a_model_file_that_loses_its_end_while_it_is_used(device, tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes((pathlib.Path(os.environ["INGOT_SOURCE"]) / "models" / "demo.gguf").read_bytes())
    args = ["run", model, "--device", device, "-n", "1000", "--ignore-eos", "--raw", "-p", "Once"]
    with subprocess.Popen([os.environ["INGOT"], *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(4)
        os.truncate(model, 4096)
        _, said = process.communicate()
        if device == "cpu":  # all weights are in panels: the file is not read any more
            assert process.returncode == 0, said
        else:
            assert process.returncode == 74 and b"became shorter" in said, said
