"""/v1/rerank on tiny cross-encoders, compared with sentence-transformers' scores."""
import json
import threading

import pytest
from conftest import SOURCE, golden_of, running

RANKERS = SOURCE / "tests" / "data" / "rankers"


@pytest.fixture(scope="module", params=["bert", "modern_bert.gguf", "xlm_roberta", "qwen3_yes.gguf"])
def ranker(request):
    with running(RANKERS / request.param, "--alias", "ranks") as server:
        yield server, golden_of(RANKERS / request.param)


@pytest.fixture(scope="module")
def bert():
    with running(RANKERS / "bert.gguf") as server:
        yield server


def rank(server, query, documents, **fields):
    return server.post("/v1/rerank", {"query": query, "documents": documents} | fields)


def by_index(reply):
    got = reply.json()
    assert reply.status == 200 and got["object"] == "list", got
    scores = [r["relevance_score"] for r in got["results"]]
    assert scores == sorted(scores, reverse=True)
    return {r["index"]: r["relevance_score"] for r in got["results"]}


def test_scores_are_those_of_sentence_transformers(ranker):
    server, golden = ranker
    scores = by_index(rank(server, golden["query"], golden["documents"], truncate=True))
    assert sorted(scores) == list(range(len(golden["documents"])))
    for i, expected in enumerate(golden["scores"]):
        assert scores[i] == pytest.approx(expected, abs=2e-3), i
    for i, document in enumerate(golden["documents"]):  # other pairs do not change a pair's score
        assert by_index(rank(server, golden["query"], [document], truncate=True))[0] == pytest.approx(scores[i], abs=1e-5)


def test_top_n_and_documents(ranker):
    server, golden = ranker
    every = rank(server, golden["query"], golden["documents"], truncate=True).json()
    for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
        got = server.post(path, {"query": golden["query"], "documents": [{"text": d} for d in golden["documents"]], "top_n": 2, "return_documents": True, "truncate": True}).json()
        assert [r["index"] for r in got["results"]] == [r["index"] for r in every["results"][:2]] and got["model"] == "ranks"
        assert all(r["document"] == {"text": golden["documents"][r["index"]]} for r in got["results"])
        assert got["usage"] == every["usage"] and got["usage"]["total_tokens"] > len(golden["documents"])
    assert len(rank(server, golden["query"], golden["documents"], top_n=1000, truncate=True).json()["results"]) == len(golden["documents"])


def test_truncate_prompt_tokens(ranker):
    """vLLM's field: a pair keeps this many tokens, and a long document is cut at its end."""
    server, golden = ranker
    whole = rank(server, golden["query"], ["fox fox fox"]).json()["usage"]["prompt_tokens"]
    cut = rank(server, golden["query"], ["fox " * 200], truncate_prompt_tokens=whole)
    assert whole - 2 <= cut.json()["usage"]["prompt_tokens"] <= whole
    n = server.get("/v1/models").json()["data"][0]["max_model_len"]
    every = rank(server, golden["query"], ["word " * n], truncate=True).json()
    assert rank(server, golden["query"], ["word " * n], truncate_prompt_tokens=-1).json()["results"] == every["results"]
    for bad in (0, 1, n + 1):
        rank(server, golden["query"], ["x"], truncate_prompt_tokens=bad).error(400, "truncate_prompt_tokens")


def test_many_at_once(bert):
    texts = ["the quick brown fox", "numbers 123", "a", "other words", "it was not what they said"]
    expected = {q: by_index(rank(bert, q, texts)) for q in texts}
    wrong = []

    def ask(query):
        for _ in range(10):
            got = by_index(rank(bert, query, texts * 5))
            wrong.extend((query, i) for i, score in got.items() if abs(score - expected[query][i % 5]) > 1e-5)

    threads = [threading.Thread(target=ask, args=(q,)) for q in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    bert.wait_idle()


@pytest.mark.parametrize("fields, param", [
    ({"query": None}, "query"), ({"query": 5}, "query"), ({"documents": None}, "documents"), ({"documents": []}, "documents"), ({"documents": "a"}, "documents"),
    ({"documents": ["a", 5]}, "documents[1]"), ({"documents": [{"txt": "a"}]}, "documents[0].text"), ({"documents": ["a"] * 2049}, "documents"), ({"top_n": 0}, "top_n"),
    ({"top_n": "1"}, "top_n"), ({"return_documents": 1}, "return_documents"), ({"truncate": "x"}, "truncate"), ({"documents": ["a", "word " * 3000]}, "documents[1]"),
])
def test_a_bad_field_is_named(bert, fields, param):
    bert.post("/v1/rerank", {"query": "x", "documents": ["a"]} | fields).error(400, param)


def test_each_model_answers_what_it_can(bert, server):
    assert "/v1/rerank" in bert.post("/v1/embeddings", {"input": "x"}).error(400, "model")["message"]
    assert "/v1/rerank" in bert.chat().error(400, "model")["message"]
    assert "cross-encoder" in rank(server, "x", ["a"]).error(400, "model")["message"]
    (model,) = bert.get("/v1/models").json()["data"]
    assert model["architecture"]["output_modalities"] == ["scores"]


def test_an_embedding_model_refuses_to_rank(start):
    server = start(SOURCE / "tests" / "data" / "encoders" / "bert.gguf", "--access-log", "none")
    assert "/v1/embeddings" in rank(server, "x", ["a"]).error(400, "model")["message"]
