"""embed and rerank: against sentence-transformers."""
import asyncio
import json

import numpy as np
import pytest

from conftest import DATA
from ingot import InvalidError, Model


def golden(kind, name):
    return json.loads((DATA / kind / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ["bert", "gemma_embed", "qwen3_embed"])
def test_vectors(name):
    facts = golden("encoders", name)
    with Model.load(DATA / "encoders" / name, n_threads=2) as model:
        plain = model.embed(facts["texts"])
        assert plain.dtype == np.float32 and plain.shape == np.shape(facts["embeddings"]["plain"])
        assert np.abs(np.linalg.norm(plain, axis=1) - 1).max() < 1e-5
        assert (plain * np.array(facts["embeddings"]["plain"])).sum(axis=1).min() > 0.9999
        assert np.array_equal(model.embed(facts["texts"][0]), model.embed(facts["texts"][:1])[0])
        if "query" in facts["embeddings"]:
            query = model.embed(facts["texts"], prompt_name="query")
            assert (query * np.array(facts["embeddings"]["query"])).sum(axis=1).min() > 0.9999
        assert np.array_equal(asyncio.run(model.aembed(facts["texts"])), plain)
        assert model.embed([]).shape == (0, plain.shape[1])


def test_vectors_refuse():
    with Model.load(DATA / "encoders" / "bert.gguf", n_ctx=16, n_threads=1) as model:
        with pytest.raises(InvalidError, match="no prompt 'nonsense'"):
            model.embed("x", prompt_name="nonsense")
        with pytest.raises(InvalidError, match="16"):
            model.embed("snow " * 99)
        assert np.isfinite(model.embed("snow " * 99, truncate=True)).all()
        for call in [lambda: model.generate("x"), lambda: model.chat("x"), lambda: model.tokenize("x"), lambda: model.rerank("x", ["y"])]:
            with pytest.raises(InvalidError, match="makes vectors"):
                call()


def test_any_model_makes_vectors_with_a_pooling():
    with Model.load(pooling="mean", n_threads=1) as model:
        a, b = model.embed(["a red fox", "a blue fox"])
        assert np.linalg.norm(a) == pytest.approx(1, abs=1e-5) and not np.array_equal(a, b)


@pytest.mark.parametrize("name", ["bert", "xlm_roberta", "qwen3_yes"])
def test_scores(name):
    facts = golden("rankers", name)
    with Model.load(DATA / "rankers" / name, device="ref") as model:
        ranked = model.rerank(facts["query"], facts["documents"], truncate=True)
        assert [r.index for r in ranked] == sorted(range(len(facts["scores"])), key=lambda i: -facts["scores"][i])
        for r in ranked:
            assert r.score == pytest.approx(facts["scores"][r.index], abs=2e-4) and r.document == facts["documents"][r.index]
        assert model.rerank(facts["query"], facts["documents"], truncate=True, top=2) == ranked[:2]
        assert asyncio.run(model.arerank(facts["query"], facts["documents"], truncate=True)) == ranked
        with pytest.raises(InvalidError, match="ranks documents"):
            model.embed("x")
