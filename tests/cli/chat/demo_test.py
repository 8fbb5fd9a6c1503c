"""ingot run and chat with the built-in model, as for a new user."""
import json
import os
import random
import re
import signal
import subprocess

import pytest
from conftest import DATA, SOURCE
from terminal_rig import Terminal

EXPECTED = json.loads((DATA / "demo" / "expected.json").read_text())
SPEED = r"prefill \d+ tokens, [\d.]+ tok/s; decode \d+ tokens, [\d.]+ tok/s(; [\d.]+ tokens a step, \d+ of \d+ drafts accepted(, ([1-9][\d.]* times as fast|as fast as without drafts|\d+ % slower))?)?"


def test_seven_and_five(ingot):
    done = ingot("run", "-p", "What is 7 + 5?", "--temp", 0)
    assert "12" in done.stdout
    assert re.fullmatch(SPEED + "\n", done.stderr), "piped: the speed at the end and nothing else"


def test_sums(ingot):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(8):
        a, b, op = draw.randint(0, 20), draw.randint(0, 20), draw.choice("+-")
        said = ingot("run", "-p", f"What is {a} {op} {b}?", "--temp", 0).stdout
        assert said.strip() == f"{a} {op} {b} = {a + b if op == '+' else a - b}."


def test_perplexity_of_heldout_text(ingot):
    golden = EXPECTED["perplexity"]
    got = json.loads(ingot("perplexity", "-f", DATA / "demo" / "heldout.txt", "-c", golden["n_ctx"], "--json").stdout)
    assert got["n_tokens"] == golden["n_tokens"] and got["n_scored"] == golden["chunks"] * 255
    assert got["perplexity"] == pytest.approx(golden["value"], rel=2e-3) and got["perplexity"] < 1.37


def test_perplexity_on_ref_is_that_of_float64(ingot):
    args = ["perplexity", "-f", DATA / "demo" / "heldout.txt", "--chunks", 1, "--device", "ref", "--cache-type", "f32", "--json"]
    assert json.loads(ingot(*args).stdout)["perplexity"] == pytest.approx(EXPECTED["perplexity"]["first_chunk"], rel=2e-5)


def test_builtin_is_the_file(ingot):
    facts = [json.loads(ingot("inspect", *path, "--json", "--tensors").stdout) for path in ([], [SOURCE / "models" / "demo.gguf"])]
    for one in facts:
        assert one.pop("file")
        one["memory"].pop("available_bytes")
    assert facts[0] == facts[1]
    assert facts[0]["file_bytes"] <= 12_500_000  # including the layer for speculation
    assert 5_000_000 <= facts[0]["parameters"] <= 15_000_000


INSTRUCTION_SETS = {"portable", "avx2", "avx512", "avx512bf16", "amx", "neon_dot", "neon_i8mm"}


def test_inspect_kernels(ingot):
    for args in ([], ["--shape", "smollm-135m", "--type", "Q8_0"]):
        told = json.loads(ingot("inspect", "--kernels", "--rows", "1,3", "--json", *args).stdout)
        assert told["backend"].startswith("cpu")
        for matrix in told["matrices"]:
            assert matrix["n_out"] > 0 and matrix["n_in"] > 0 and matrix["matrices"] > 0
            assert [row["rows"] for row in matrix["rows"]] == [1, 3]
            kernels = [k for row in matrix["rows"] for k in row["kernels"]]
            assert kernels and all(k["us"] > 0 and k["kernel"] in INSTRUCTION_SETS for k in kernels)
        if args:
            assert {m["type"] for m in told["matrices"]} == {"Q8_0"}
    assert "Q8_0 [1536 x 576]" in ingot("inspect", "--kernels", "--rows", "2", "--shape", "smollm-135m", "--type", "Q8_0").stdout


def test_json_extraction(ingot):
    ask = "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."
    said = json.loads(ingot("run", "-p", ask, "--temp", 0).stdout)
    assert said == {"name": "Clara Reed", "age": 34, "city": "Oslo", "job": "baker"}


def test_json_output(ingot):
    answer = json.loads(ingot("run", "-p", "What is 7 + 5?", "--temp", 0, "--json", "--logprobs", 2).stdout)
    golden = next(c for c in EXPECTED["chat"] if c["name"] == "sum")
    assert answer["text"] == golden["text"] and answer["finish_reason"] == "stop"
    assert answer["token_ids"] == golden["ids"][:-1]
    assert answer["prompt_tokens"] == len(golden["prompt_ids"])
    assert len(answer["logprobs"]) == len(answer["token_ids"])
    for token in answer["logprobs"]:
        assert token["logprob"] <= 0 and [top["id"] for top in token["top"]][0] == token["id"]
        assert token["top"][0]["logprob"] >= token["top"][1]["logprob"]


def test_system_prompt(ingot):
    said = ingot("run", "--system", "Answer with one word or number.", "-p", "What is the capital of France?", "--temp", 0).stdout
    assert said == "Paris\n"


def test_seed_draws_the_same_story(ingot):
    stories = [ingot("run", "-p", "Tell me a story.", "-n", 60, "-s", seed).stdout for seed in (1, 1, 2)]
    assert stories[0] == stories[1] != stories[2]


def test_prompts_from_pipe_file_and_argument(ingot, tmp_path):
    (tmp_path / "prompt.txt").write_text("What is 7 + 5?")
    said = {ingot("run", "--temp", 0, "-p", "What is 7 + 5?").stdout, ingot("run", "--temp", 0, input="What is 7 + 5?").stdout,
            ingot("run", "--temp", 0, "-f", tmp_path / "prompt.txt").stdout}
    assert said == {"7 + 5 = 12.\n"}


def test_raw_continues_the_text(ingot):
    golden = next(c for c in EXPECTED["raw"] if "capital" in c["prompt"] and "\n" not in c["prompt"])
    said = ingot("run", "--raw", "-p", golden["prompt"], "-n", len(golden["ids"]), "--temp", 0).stdout
    assert said.rstrip("\n") == golden["text"].rstrip("\n")


@pytest.mark.parametrize("stop", ["6, 7", ", 7", "6,"])
def test_stop_strings_are_cut_off(ingot, stop):
    answer = json.loads(ingot("run", "-p", "Count to 20.", "--temp", 0, "--stop", stop, "--json").stdout)
    assert answer["text"] == "1, 2, 3, 4, 5, 6, 7, 8".split(stop)[0] and answer["finish_reason"] == "stop"


def test_length_and_ignore_eos(ingot):
    answer = json.loads(ingot("run", "-p", "What is 7 + 5?", "--temp", 0, "-n", 3, "--json").stdout)
    assert answer["output_tokens"] == 3 and answer["finish_reason"] == "length"
    answer = json.loads(ingot("run", "-p", "What is 7 + 5?", "--temp", 0, "-n", 40, "--ignore-eos", "--json").stdout)
    assert answer["output_tokens"] == 40 and answer["finish_reason"] == "length"


def test_context_that_is_full_ends_the_answer(ingot):
    answer = json.loads(ingot("run", "-p", "Tell me a story.", "--ignore-eos", "-c", 64, "--json").stdout)
    assert answer["prompt_tokens"] + answer["output_tokens"] == 64 and answer["finish_reason"] == "length"


def test_chunk_and_threads_leave_the_answer_alone(ingot):
    ask = ["run", "-p", "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker.", "--temp", 0]
    assert len({ingot(*ask, *more).stdout for more in ([], ["--chunk", 5], ["-t", 1], ["--block-size", 7], ["--device", "ref"])}) == 1


def test_trace_is_chrome_json(ingot, tmp_path):
    ingot("run", "-p", "Hello", "-n", 4, "--temp", 0, "--trace", tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    names = {e["name"] for e in events}
    assert {"plan", "forward", "sample", "attention"} <= names
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")


def test_interrupt_stops_cleanly():
    run = subprocess.Popen([os.environ["INGOT"], "run", "-p", "Tell me a story.", "--ignore-eos", "-s", "1", "--device", "ref"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert os.read(run.stdout.fileno(), 1), "the first text"
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert out.endswith(b"\n")
    assert re.fullmatch(SPEED + r" \(interrupted\)\n", err.decode())


def test_closed_pipe_is_no_crash():
    done = subprocess.run(f"{os.environ['INGOT']} run -p 'Tell me a story.' --ignore-eos | head -c 20", shell=True, capture_output=True, timeout=60)
    assert b"terminate" not in done.stderr and b"Aborted" not in done.stderr


def test_chat_remembers_and_follows_commands(ingot, tmp_path):
    saved = tmp_path / "talk.json"
    lines = ["My name is Bramwell.", "What is my name?", "/stats", f"/save {saved}", "/reset", "/stats", "/bogus",
             "/system Answer with one word or number.", "What is the capital of France?", "/save /nowhere/x.json", "/quit", "never read"]
    done = ingot("chat", "--temp", 0, input="\n".join(lines) + "\n")
    out = done.stdout
    assert "Your name is Bramwell." in out and "2 turns; context" in out and "no command /bogus" in out
    assert "\nParis\n" in out and "never" not in out
    assert "/nowhere/x.json" in done.stderr
    roles = [m["role"] for m in json.loads(saved.read_text())]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_chat_survives_a_turn_that_is_too_long(ingot):
    done = ingot("chat", "--temp", 0, "-c", 64, input="word " * 200 + "\nWhat is 7 + 5?\n")
    assert "64" in done.stderr and "7 + 5 = 12." in done.stdout


def test_chat_on_a_terminal():
    """A prompt and line editing. Ctrl-C in an answer returns to the prompt, and the conversation continues."""
    chat = Terminal("chat", "--temp", "0", "--ignore-eos", "--device", "ref")
    chat.wait_for(b"/help")
    chat.wait_for(b"> ")
    chat.type(b"What is 7 + 6?\x7f\x7f5?\r")  # backspace twice: 7 + 5?
    chat.wait_for(b"= 12")
    chat.type(b"\x03")
    chat.wait_for(b"[interrupted]")
    chat.wait_for(b"> ")
    chat.leave()
