"""/v1/embeddings on tiny encoders, compared with sentence-transformers' vectors, and the routes of each kind of
model."""
import base64
import json
import shutil
import struct
import threading

import numpy as np
import pytest
from conftest import SOURCE, golden_of, running

ENCODERS = SOURCE / "tests" / "data" / "encoders"


@pytest.fixture(scope="module", params=["bert.gguf", "nomic_bert", "qwen3_embed", "xlm_roberta --tp 2"])
def encoder(request):
    name, *flags = request.param.split()
    with running(ENCODERS / name, "--alias", "vectors", *flags) as server:
        server.is_gguf = name.endswith(".gguf")
        yield server, golden_of(ENCODERS / name)


@pytest.fixture(scope="module")
def bert():
    with running(ENCODERS / "bert") as server:
        yield server


def test_pages_and_metrics_of_a_model_without_a_cache(bert):
    """An encoder has neither a KV cache nor a chat template, and every route of reading answers."""
    for path in ("/metrics", "/health", "/v1/models", "/props", "/slots", "/status", "/"):
        assert bert.get(path).status < 500, path
    metrics = bert.get("/metrics").body.decode()
    assert 'num_gpu_blocks="0"' in metrics
    for body in ({"messages": [{"role": "poet", "content": "x"}]}, {"messages": []}, {}):
        assert bert.post("/v1/chat/completions", body).status == 400


def embed(server, given, **fields):
    return server.post("/v1/embeddings", {"input": given} | fields)


def vectors(reply):
    got = reply.json()
    assert reply.status == 200 and got["object"] == "list", got
    assert [d["index"] for d in got["data"]] == list(range(len(got["data"]))) and {d["object"] for d in got["data"]} == {"embedding"}
    return np.array([d["embedding"] for d in got["data"]])


def cosines(a, b):
    return (np.asarray(a) * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_vectors_are_those_of_sentence_transformers(encoder):
    server, golden = encoder
    got = vectors(embed(server, golden["texts"]))
    assert got.shape == (6, 48) and cosines(got, golden["embeddings"]["plain"]).min() > 0.9999
    assert np.abs(np.linalg.norm(got, axis=1) - 1).max() < 1e-5
    for i, text in enumerate(golden["texts"]):  # other texts do not change a text's vector
        assert np.abs(vectors(embed(server, text))[0] - got[i]).max() < 2e-4
    ids = vectors(embed(server, golden["ids"]))
    assert np.abs(ids - got).max() < 2e-4 and np.abs(vectors(embed(server, golden["ids"][0])) - got[:1]).max() < 2e-4
    if not server.is_gguf:  # such a file has no prompts
        assert cosines(vectors(embed(server, golden["texts"], prompt_name="query")), golden["embeddings"]["query"]).min() > 0.9999


def test_a_prompt_may_be_left_out_of_the_vector(tmp_path):
    golden = json.loads((ENCODERS.parent / "variants" / "encoders.json").read_text())
    row = next(row for row in golden["rows"] if row["name"] == "without_prompt_mean")
    model = shutil.copytree(ENCODERS.parent / row["base"], tmp_path / "model")
    for name, value in row["files"].items():
        (model / name).write_text(json.dumps(value))
    with running(model) as server:
        assert cosines(vectors(embed(server, golden["texts"], truncate=True)), row["vectors"][""]).min() > 0.9999
        assert cosines(vectors(embed(server, golden["texts"], prompt_name="query", truncate=True)), row["vectors"]["query"]).min() > 0.9999


def test_base64_is_little_endian_floats(encoder):
    server, golden = encoder
    plain = vectors(embed(server, golden["texts"]))
    got = embed(server, golden["texts"], encoding_format="base64").json()
    for row, data in zip(plain, got["data"], strict=True):
        raw = base64.b64decode(data["embedding"], validate=True)
        assert np.allclose(struct.unpack(f"<{len(raw) // 4}f", raw), row, atol=1e-6)
    assert got["usage"] == {"prompt_tokens": sum(map(len, golden["ids"])), "total_tokens": sum(map(len, golden["ids"]))} and got["model"] == "vectors"


def test_a_large_request_and_many_small_ones(bert, draw):
    words = ["the", "quick", "brown", "fox", "and", "numbers", "123", "!"]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 10))) for _ in range(300)]
    results = {}
    large = threading.Thread(target=lambda: results.setdefault("large", vectors(embed(bert, texts))))
    large.start()
    small = [threading.Thread(target=lambda i=i: results.setdefault(i, vectors(embed(bert, texts[i]))[0])) for i in range(20)]
    for thread in small:
        thread.start()
    for thread in [large, *small]:
        thread.join()
    for i in range(20):
        assert np.abs(results[i] - results["large"][i]).max() < 1e-5
    bert.wait_idle()
    assert bert.metric("request_success_total", finished_reason="stop") >= 21 and bert.metric("prompt_tokens_total") > 600


def test_who_leaves_is_forgotten(bert):
    body = json.dumps({"input": ["the quick brown fox and other words, too"] * 2000}).encode()
    ended = lambda how: bert.metric("request_success_total", finished_reason=how)
    ends = lambda: {how: ended(how) for how in ("stop", "abort", "error")}
    for _ in range(10):  # it may end before the client leaves
        before = ends()
        with bert.connect() as sock:
            sock.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            while bert.metric("num_requests_running") + bert.metric("num_requests_waiting") == 0 and ends() == before:
                pass
        while (after := ends()) == before:  # the end is counted after the texts have left the queue
            pass
        if after["stop"] == before["stop"]:
            break
    assert after == before | {"abort": before["abort"] + 1}
    bert.wait_idle()
    assert embed(bert, "a").status == 200


@pytest.mark.parametrize("fields, param", [
    ({"input": None}, "input"), ({"input": ""}, None), ({"input": []}, "input"), ({"input": [[]]}, "input[0]"), ({"input": ["a", 1]}, "input"), ({"input": {}}, "input"),
    ({"input": [1.5]}, "input"), ({"input": [-1]}, "input"), ({"input": [10**6]}, "input"), ({"input": [[5], [10**6]]}, "input[1]"), ({"input": [1 << 40]}, "input"),
    ({"input": ["a"] * 2049}, "input"), ({"encoding_format": "int8"}, "encoding_format"), ({"encoding_format": 1}, "encoding_format"), ({"dimensions": 0}, "dimensions"),
    ({"dimensions": 47}, "dimensions"), ({"dimensions": 49}, "dimensions"), ({"dimensions": "48"}, "dimensions"), ({"user": 3}, "user"), ({"truncate": "yes"}, "truncate"),
    ({"prompt_name": "nosuch"}, "prompt_name"), ({"prompt_name": 3}, "prompt_name"), ({"input": "fox " * 5000}, "input"),
])
def test_a_bad_field_is_named(bert, fields, param):
    reply = bert.post("/v1/embeddings", {"input": "x"} | fields)
    if param is None:  # a text without words still has the model's own tokens
        assert reply.status == 200
    else:
        assert reply.error(400, param)["type"] == "invalid_request_error"


def test_long_texts_are_refused_or_cut(bert):
    n = bert.get("/v1/models").json()["data"][0]["max_model_len"]
    error = embed(bert, ["a", "fox " * n]).error(400, "input[1]")
    assert error["code"] == "context_length_exceeded" and str(n) in error["message"]
    got = embed(bert, "fox " * n, truncate=True)
    assert got.json()["usage"]["prompt_tokens"] == n and vectors(got).shape == (1, 48)


def test_truncate_prompt_tokens(bert):
    """vLLM's field: keeps the first tokens, and the token that the model needs at the end."""
    text = "the quick brown fox jumps over"
    ids = bert.post("/tokenize", {"prompt": text}).json()["tokens"]
    n = bert.get("/v1/models").json()["data"][0]["max_model_len"]
    got = embed(bert, [text, "fox"], truncate_prompt_tokens=5)
    expected = vectors(embed(bert, [ids[:4] + ids[-1:], bert.post("/tokenize", {"prompt": "fox"}).json()["tokens"]]))
    assert len(ids) > 5 and got.json()["usage"]["prompt_tokens"] == 5 + len(bert.post("/tokenize", {"prompt": "fox"}).json()["tokens"])
    assert cosines(vectors(got), expected).min() > 0.99999
    assert embed(bert, "fox " * n, truncate_prompt_tokens=-1).json()["usage"]["prompt_tokens"] == n
    for bad in (0, -2, n + 1, "x"):
        embed(bert, text, truncate_prompt_tokens=bad).error(400, "truncate_prompt_tokens")


def test_dimensions_where_the_model_says_so(start, tmp_path):
    assert embed(start(ENCODERS / "bert", "--access-log", "none"), "a", dimensions=48).status == 200
    folder = tmp_path / "cuttable"
    folder.mkdir()
    for file in (ENCODERS / "bert").rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(ENCODERS / "bert")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [8, 16]}))
    server = start(folder, "--access-log", "none")
    whole, cut = (vectors(embed(server, "the quick brown fox", **fields))[0] for fields in ({}, {"dimensions": 16}))
    assert cut.shape == (16,) and np.abs(cut - whole[:16] / np.linalg.norm(whole[:16])).max() < 1e-6
    error = embed(server, "a", dimensions=12).error(400, "dimensions")
    assert "48" in error["message"] and "8, 16" in error["message"]


def test_each_model_answers_what_it_can(bert, server):
    for path, body in [("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}), ("/v1/completions", {"prompt": "x"}), ("/v1/responses", {"input": "x"}),
                       ("/apply-template", {"messages": [{"role": "user", "content": "x"}]})]:
        assert "/v1/embeddings" in bert.post(path, body).error(400, "model")["message"]
    assert bert.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).status == 400
    bert.post("/tokenize", {"messages": [{"role": "user", "content": "x"}]}).error(400, "messages")
    assert "writes text" in embed(server, "x").error(400, "model")["message"]
    assert bert.post("/tokenize", {"prompt": "the fox"}).json()["count"] > 2
    (model,) = bert.get("/v1/models").json()["data"]
    assert model["architecture"]["output_modalities"] == ["embeddings"] and model["meta"]["n_embd"] == 48
    assert bert.get("/props").json()["chat_template"] is None


def test_a_model_that_writes_embeds_when_a_pooling_is_asked_for(start):
    server = start("--pooling", "last", "--access-log", "none")
    got = vectors(embed(server, ["a fox", "a fox", "the sea"]))
    assert np.abs(got[0] - got[1]).max() < 1e-5 < np.abs(got[0] - got[2]).max()
    server.chat().error(400, "model")


def test_several_models_and_shutdown(start):
    demo = SOURCE / "models" / "demo.gguf"
    server = start(demo, ENCODERS / "bert.gguf", "--access-log", "none")
    assert server.chat(model="demo", temperature=0).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."
    assert vectors(embed(server, "a fox", model="bert")).shape == (1, 48)
    embed(server, "a fox", model="demo").error(400, "model")
    assert server.stop() == 0
