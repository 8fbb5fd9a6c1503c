"""The render routes, as llm-d's router calls them: the payload of the request to come, and the token ids of its prompt.
The ids are those of Hugging Face's template and tokenizer."""
import json

import pytest
from conftest import SOURCE

CASES = json.loads((SOURCE / "tests/data/demo/expected.json").read_text())["chat"]
OF_ANSWER = {"model": "demo", "stream": True, "temperature": 0.5, "max_tokens": 7, "stop": ["x"], "cache_salt": "s"}  # has no effect on the prompt


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_conversation(server, case):
    body = {"messages": case["messages"]} | ({"tools": case["tools"]} if case["tools"] else {})
    got = server.post("/v1/chat/completions/render", body | OF_ANSWER).json()
    assert got["token_ids"] == case["prompt_ids"] and got["features"] is None and got["request_id"].startswith("chatcmpl-") and "demo" in got["model"]


def test_prompts(server):
    texts = ["What is 7 + 5?", "Once upon a time"]
    ids = [server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in texts]
    one = server.post("/v1/completions/render", {"prompt": texts[0]} | OF_ANSWER).json()
    assert [r["token_ids"] for r in one] == [ids[0]]
    both = server.post("/v1/completions/render", {"prompt": texts}).json()
    assert [r["token_ids"] for r in both] == ids and len({r["request_id"] for r in both}) == 2
    assert [r["token_ids"] for r in server.post("/v1/completions/render", {"prompt": ids}).json()] == ids
    assert [r["token_ids"] for r in server.post("/v1/completions/render", {"prompt": texts[0], "truncate_prompt_tokens": 3}).json()] == [ids[0][-3:]]


def test_nothing_is_generated_and_the_count_is_that_of_the_answer(server):
    server.wait_idle()
    before = server.metric("generation_tokens_total")
    rendered = server.post("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "Tell me a story."}]}).json()
    assert server.metric("generation_tokens_total") == before
    assert server.chat("Tell me a story.", max_tokens=1).json()["usage"]["prompt_tokens"] == len(rendered["token_ids"])


@pytest.mark.parametrize("route, body, param", [
    ("chat/completions", {}, "messages"), ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}, "temperature"),
    ("completions", {}, "prompt"), ("completions", {"prompt": []}, "prompt"), ("completions", {"prompt": [99999999]}, "prompt"), ("completions", {"prompt": "x", "n": "y"}, "n"),
])
def test_refusals(server, route, body, param):
    server.post(f"/v1/{route}/render", body).error(400, param)


def test_a_prompt_that_does_not_fit(server):
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    error = server.post("/v1/completions/render", {"prompt": [5] * n_ctx}).error(400, "prompt")
    assert error["code"] == "context_length_exceeded"
