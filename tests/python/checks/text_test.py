"""generate, chat and tokens: against the program, transformers' logits, and each other."""
import contextlib
import gc
import json
import pathlib
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pydantic
import pytest

import ingot
from conftest import DATA
from ingot import IngotError, InvalidError, Model, QueueFullError

STORY = "Tell me a story about a fox."


def test_the_package_is_the_program(program):
    assert program("--version").stdout == f"ingot {ingot.__version__}\n"
    script = pathlib.Path(sys.executable).parent / "ingot"
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == f"ingot {ingot.__version__}\n"
    done = program("run", "nothing.gguf", "-p", "x", ok=False)
    assert done.returncode == 1 and done.stderr.startswith("ingot: ")


def test_the_program_finds_the_certificates(monkeypatch):
    """Those of this machine, unless the caller names some."""
    monkeypatch.setattr("ssl.get_default_verify_paths", lambda: types.SimpleNamespace(cafile="/there.pem"))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert ingot.model.environment()["SSL_CERT_FILE"] == "/there.pem"
    monkeypatch.setenv("SSL_CERT_FILE", "/mine.pem")
    assert ingot.model.environment()["SSL_CERT_FILE"] == "/mine.pem"


def test_chat_is_that_of_the_program(model, program):
    for options, flags in [(dict(temperature=0), ("--temp", 0)), (dict(seed=5, temperature=1.0, top_k=0, typical_p=0.9, penalty_window=8,
                            repetition_penalty=1.2), ("--temp", 1, "-s", 5, "--top-k", 0, "--typical", 0.9, "--repeat-last-n", 8, "--repeat-penalty", 1.2))]:
        answer = model.chat(STORY, max_tokens=40, **options)
        said = json.loads(program("run", "-p", STORY, "-n", 40, "--json", "-c", 512, *flags).stdout)
        assert answer.tokens == said["token_ids"] and answer.text == said["text"] and str(answer) == answer.text


def test_generate_is_that_of_the_program(model, program):
    answer = model.generate("Once upon a time", temperature=0, max_tokens=20)
    said = json.loads(program("run", "--raw", "-p", "Once upon a time", "-n", 20, "--temp", 0, "--json", "-c", 512).stdout)
    assert (answer.tokens, answer.text, answer.finish) == (said["token_ids"], said["text"], "length")
    assert answer.prompt_tokens == len(model.tokenize("Once upon a time")) and answer.output_tokens == 20


def test_tokens_come_back_as_text(model, program):
    for text in ["Hello, world", "", "äöü 🦊\n\n", "a\0b"]:
        assert model.detokenize(model.tokenize(text, add_special=False)) == text
    ids = program("tokenize", "-m", DATA.parents[1] / "models" / "demo.gguf", "--ids", "Hello, world").stdout
    assert ",".join(map(str, model.tokenize("Hello, world"))) == ids.strip().replace(" ", "")
    assert model.detokenize(model.tokenize_chat("Hi")).endswith("assistant\n")
    assert len(model.tokenize("<|im_end|>", add_special=False)) > len(model.tokenize("<|im_end|>", add_special=False, parse_special=True))


def test_logits_are_those_of_transformers(golden):
    facts, expected = golden
    with Model.load(DATA / "models" / "llama.gguf", device="ref", kv_type="f32") as model:
        got = model.logits(facts["tokens"], all=True)
        assert got.dtype == np.float32 and got.shape == expected.shape and got.flags.owndata
        assert np.abs(got - expected).max() < 1e-4
        assert np.abs(model.logits(facts["tokens"]) - expected[-1]).max() < 1e-4
        assert np.abs(model.logits(facts["tokens"], all=True) - got).max() == 0  # with the prompt in the cache
        answer = model.generate(facts["tokens"], max_tokens=len(facts["greedy"]), temperature=0, ignore_eos=True, logprobs=True)
        assert answer.tokens == facts["greedy"]
        row = expected[-1].astype(np.float64)
        assert answer.logprobs[0] == pytest.approx(row.max() - np.log(np.exp(row).sum()), abs=1e-4)


def test_logits_beside_answers(model):
    """Logits come from the same engine as answers that are being written."""
    alone = model.logits("The fox", all=True)
    streams = [model.generate("One day", max_tokens=60, seed=i, stream=True) for i in range(3)]
    assert np.abs(model.logits("The fox", all=True) - alone).max() < 1e-3
    assert [len(s.answer.tokens) for s in streams] == [len(model.generate("One day", max_tokens=60, seed=i).tokens) for i in range(3)]


def test_logits_refuse_what_has_none(model):
    with pytest.raises(InvalidError, match="empty"):
        model.logits([])
    with pytest.raises(InvalidError, match="the context holds 512"):
        model.logits([1] * 512)
    with pytest.raises(InvalidError, match="99999999"):
        model.logits([1, 99999999])


def test_streams_are_the_answer_in_pieces(model):
    whole = model.generate("Once", max_tokens=30, seed=2)
    stream = model.generate("Once", max_tokens=30, seed=2, stream=True)
    pieces = list(stream)
    assert len(pieces) > 10 and "".join(pieces) == whole.text == stream.answer.text and stream.answer.tokens == whole.tokens
    stream = model.chat(STORY, max_tokens=30, seed=2, stream=True)
    assert "".join(delta.content for delta in stream) == model.chat(STORY, max_tokens=30, seed=2).text == stream.answer.message["content"]


def test_a_batch_is_its_answers(model):
    prompts = ["Once upon a time", "The fox", [5, 6, 7], "One day a child"] * 4
    answers = model.generate(prompts, max_tokens=12, temperature=0)
    assert [a.text for a in answers] == [model.generate(p, max_tokens=12, temperature=0).text for p in prompts]


def test_stop_strings_end_answers(model):
    free = model.generate("Once upon a time", max_tokens=60, temperature=0).text
    for stop in [free[10:14], [free[20:21], free[12:17]], [free[15:40]]]:
        strings = [stop] if isinstance(stop, str) else stop
        expected = free[: min(free.find(s) + len(s) - len(s) for s in strings)]
        stream = model.generate("Once upon a time", max_tokens=60, temperature=0, stop=stop, stream=True)
        assert "".join(stream) == expected == stream.answer.text and stream.answer.finish == "stop"
        assert model.chat(STORY, max_tokens=60, temperature=0, stop=["never written"]).text == model.chat(STORY, max_tokens=60, temperature=0).text


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    legs: int = pydantic.Field(ge=0, le=99)


def test_schemas(model):
    answer = model.chat("Tell me about an animal.", schema=Animal, seed=1, max_tokens=120)
    assert isinstance(answer.parsed, Animal) and answer.finish == "stop" and Animal.model_validate_json(answer.text) == answer.parsed
    as_dict = model.chat("Tell me about an animal.", schema=Animal.model_json_schema(), seed=1, max_tokens=120)
    assert as_dict.parsed == answer.parsed.model_dump()
    assert model.generate("Name:", regex="(Ann|Bob)", max_tokens=20).text in ("Ann", "Bob")
    assert model.chat("Tell me about an animal.", schema=Animal, max_tokens=2).parsed is None
    with pytest.raises(InvalidError, match="no value"):
        model.chat("x", schema="false")


def weather(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"{city}: 7 degrees for {days}"


def test_tools(model):
    """The call is forced by a regex; its result goes back as a message."""
    call = r"""<tool_call>\n\{"name": "weather", "arguments": \{"city": "[A-Z][a-z]{2,5}"\}\}\n</tool_call>"""
    asked = [{"role": "user", "content": "Is it cold in Oslo?"}]
    stream = model.chat(asked, tools=[weather], regex=call, seed=3, max_tokens=90, stream=True)
    deltas = list(stream)
    [one] = stream.answer.tool_calls
    assert one.name == "weather" and set(one.arguments) == {"city"} and stream.answer.text == ""
    assert "".join(c["function"]["arguments"] for d in deltas for c in d.tool_calls) == one.raw_arguments
    assert [c["function"]["name"] for d in deltas for c in d.tool_calls if "id" in c] == ["weather"]
    again = asked + [stream.answer.message, {"role": "tool", "tool_call_id": one.id, "content": weather(**one.arguments)}]
    assert "7 degrees" in model.detokenize(model.tokenize_chat(again, tools=[weather]))
    shown = model.detokenize(model.tokenize_chat(asked, tools=[weather]))
    assert '"days"' in shown and "The weather of a city." in shown and '"integer"' in shown


def test_errors_are_exceptions_with_one_line(model, tmp_path):
    cases = [(lambda: Model.load(tmp_path / "none.gguf"), "none.gguf"), (lambda: Model.load(device="abacus"), "abacus"),
             (lambda: model.generate("x", top_p=7), "top_p"), (lambda: model.generate("x", max_tokens=9999), "512"),
             (lambda: model.generate([]), "empty"), (lambda: model.generate("x", stop=""), "stop"),
             (lambda: model.generate("x", temprature=1), "temprature"), (lambda: model.generate("x", temperature="hot"), "hot"),
             (lambda: model.generate(["a", "b"], stream=True), "one prompt"), (lambda: model.generate([1, 1 << 40]), str(1 << 40)),
             (lambda: model.generate([["a"]]), "list of integers"), (lambda: model.detokenize([1.5]), "list of integers"),
             (lambda: model.generate("x", max_tokens=(1 << 32) + 5), "out of range"), (lambda: model.generate("x", seed=-1), "seed is -1"),
             (lambda: model.generate("x", regex="a\0b"), "zero"), (lambda: Model.load("a\0b"), "zero"),
             (lambda: model.chat([{"role": "user"}], tools=[5]), "5"), (lambda: model.embed("x"), "writes text"),
             (lambda: model.rerank("x", ["y"]), "writes text"), (lambda: model.chat("x", regex="("), "')' is missing")]
    for call, words in cases:
        with pytest.raises(IngotError) as caught:
            call()
        assert isinstance(caught.value, ValueError) and words in str(caught.value) and "\n" not in str(caught.value), caught.value


def test_the_queue_is_bounded():
    with Model.load(n_ctx=256, n_threads=1, max_queue=2, max_seqs=1) as model:
        streams = []
        with pytest.raises(QueueFullError):
            for _ in range(50):
                streams.append(model.generate("x", max_tokens=100, ignore_eos=True, stream=True))
        for stream in streams:
            stream.close()
        for _ in range(500):  # the engine takes note before its next step
            with contextlib.suppress(QueueFullError):
                answer = model.generate("x", max_tokens=2, ignore_eos=True)
                break
            time.sleep(0.01)
        assert answer.output_tokens == 2


def test_closing_ends_requests():
    model = Model.load(n_ctx=256, n_threads=1)
    stream = model.generate("x", ignore_eos=True, stream=True)
    next(stream)
    model.close()
    assert stream.answer.finish == "cancelled"
    with pytest.raises(InvalidError, match="closed"):
        model.generate("x")
    other = Model.load(n_ctx=256, n_threads=1)
    dropped = other.generate("x", ignore_eos=True, stream=True)
    next(dropped)
    del dropped
    gc.collect()
    assert other.generate("y", max_tokens=1).output_tokens == 1
    other.close()


def test_python_runs_while_the_library_works(model):
    """The GIL is released: this thread counts while another one waits for an answer."""
    counted, done = 0, threading.Event()
    thread = threading.Thread(target=lambda: (model.generate("Once", max_tokens=200, ignore_eos=True), done.set()))
    thread.start()
    while not done.is_set():
        counted += 1
        time.sleep(0)
    thread.join()
    assert counted > 100


def test_names_of_the_hub_are_pulled(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InvalidError, match="org/model.*ingot pull"):
        Model.load("org/model:Q4_K_M")
    commit, folder = "1" * 40, tmp_path / "models--org--model"
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit / "model-Q4_K_M.gguf").write_bytes((DATA / "models" / "llama.gguf").read_bytes())
    with Model.load("org/model:Q4_K_M") as model:
        assert commit in model.path and model.generate([1, 2], max_tokens=1).output_tokens == 1
