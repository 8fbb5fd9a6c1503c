"""The parts of the C API that ctypes_test.py does not test, through the bindings of the Python package: logits,
streamed answers, kinds of models, prompts of embedders, ranking. tests/python tests the package itself."""
import ctypes as c
import json
import os
import pathlib
import sys

import numpy as np
import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
DATA = SOURCE / "tests" / "data"
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
from ingot import IngotError, Model  # noqa: E402
from ingot import _library as lib  # noqa: E402


@pytest.fixture(scope="module")
def model():
    with Model.load(SOURCE / "models" / "demo.gguf", n_ctx=256, n_threads=2) as made:
        yield made


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3"])
def test_logits_are_those_of_transformers(name):
    facts, expected = json.loads((DATA / "models" / f"{name}.json").read_text()), np.load(DATA / "models" / f"{name}.npy")
    with Model.load(DATA / "models" / f"{name}.gguf", device="ref", kv_type="f32") as model:
        ids, n, n_vocab = lib.array(facts["tokens"]), len(facts["tokens"]), model.n_vocab
        for first in (0, n // 2, n - 1):
            rows = np.full((n - first, n_vocab), np.nan, np.float32)
            lib.call("logits", model._handle, ids, n, first, rows.ctypes.data, rows.size)
            assert np.abs(rows - expected[first:]).max() < 1e-4
        for first, capacity, words in [(n, n_vocab, f"first is {n}"), (0, n * n_vocab - 1, f"{n} rows of logits need {n_vocab}")]:
            with pytest.raises(IngotError, match=words):
                lib.call("logits", model._handle, ids, n, first, rows.ctypes.data, capacity)
        with pytest.raises(IngotError, match="logits is NULL"):
            lib.call("logits", model._handle, ids, n, 0, None, n * n_vocab)


def test_kinds(tmp_path):
    for path, kind in [("models/llama.gguf", 0), ("encoders/bert", 1), ("encoders/qwen3_embed.gguf", 1), ("rankers/qwen3_yes", 2)]:
        found = c.c_int(-1)
        lib.call("kind_of", str(DATA / path).encode(), c.byref(found))
        assert found.value == kind, path
    with pytest.raises(IngotError, match="nothing.gguf"):
        lib.call("kind_of", b"nothing.gguf", c.byref(found))


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOLS = json.dumps([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])


def changes(model, text, tools, step):
    prompt, ids = lib.array(model.tokenize_chat("Is it cold?")), model.tokenize(text, add_special=False, parse_special=True)
    answer, json_text, n = c.c_void_p(), c.c_void_p(), c.c_size_t()
    lib.call("answer_begin", model._handle, prompt, len(prompt), tools, c.byref(answer))
    for i in [*range(0, len(ids), step), len(ids)]:
        piece = lib.array(ids[i : i + step])
        lib.call("answer_feed", answer, piece, len(piece), c.byref(json_text), c.byref(n))
        yield json.loads(c.string_at(json_text, n.value))
    with pytest.raises(IngotError, match="has ended"):
        lib.call("answer_feed", answer, piece, len(piece), c.byref(json_text), c.byref(n))
    lib.call("answer_free", answer)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_an_answer_while_it_comes(model, step):
    joined = {"content": "", "name": "", "arguments": "", "id": ""}
    for change in changes(model, "I will look.\n" + CALL, TOOLS.encode(), step):
        assert set(change) <= {"content", "tool_calls"}
        joined["content"] += change.get("content", "")
        for call in change.get("tool_calls", []):
            assert call["index"] == 0
            joined["name"] += call["function"].get("name", "")
            joined["id"] += call.get("id", "")
            joined["arguments"] += call["function"]["arguments"]
    assert joined["content"] == "I will look." and joined["name"] == "weather" and json.loads(joined["arguments"]) == {"city": "Oslo"} and joined["id"]
    assert "".join(change.get("content", "") for change in changes(model, CALL, None, step)) == CALL


def test_prompts_of_embedders_and_scores():
    facts = json.loads((DATA / "encoders" / "gemma_embed.json").read_text())
    with Model.load(DATA / "encoders" / "gemma_embed", n_threads=2) as model:
        for prompt, name in [("plain", None), ("query", "query")]:
            got = model.embed(facts["texts"], prompt_name=name)
            assert (got * np.array(facts["embeddings"][prompt])).sum(axis=1).min() > 0.9999
        with pytest.raises(IngotError, match="no prompt 'poem'; it has"):
            model.embed("x", prompt_name="poem")
    facts = json.loads((DATA / "rankers" / "bert.json").read_text())
    with Model.load(DATA / "rankers" / "bert", device="ref") as model:
        ranked = model.rerank(facts["query"], facts["documents"], truncate=True)
        assert all(abs(r.score - facts["scores"][r.index]) < 1e-4 for r in ranked) and ranked == sorted(ranked, key=lambda r: -r.score)
        with pytest.raises(IngotError, match="at most"):
            model.rerank(facts["query"], ["snow " * 9999])
