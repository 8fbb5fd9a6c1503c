"""Ollama's API without its client: lines of JSON, the names of models, options, and refused requests. ollama_check.py
tests the client."""
import http.client
import json
import re
import socket
import time

import pytest
from conftest import SLOW, SOURCE, caller

USER = [{"role": "user", "content": "What is 7 + 5?"}]
ANSWER = "7 + 5 = 12."
GREEDY = {"temperature": 0}


def lines(reply):
    assert reply.status == 200 and reply.headers["Content-Type"] == "application/x-ndjson", (reply.status, reply.body)
    assert reply.body.endswith(b"\n")
    return [json.loads(line) for line in reply.body.splitlines()]


def ask(server, path="/api/chat", **fields):
    given = {"messages": USER} if path == "/api/chat" else {"prompt": USER[0]["content"]}
    return server.post(path, {"model": "demo"} | given | fields)


def refused(reply, word, status=400):
    assert reply.status == status, (reply.status, reply.body)
    assert set(reply.json()) == {"error"} and word in reply.json()["error"], reply.body


def test_curl_as_ollama_documents_it(server):
    """curl -d sends the type of a form, which is accepted. A browser also sends an Origin header, and must send
    JSON."""
    body = json.dumps({"model": "demo", "messages": USER, "stream": False, "options": GREEDY})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.request("POST", "/api/chat", body, form).json()["message"]["content"] == ANSWER
    assert server.request("POST", "/api/chat", body, form | {"Origin": server.url}).status == 415
    assert server.request("POST", "/api/chat", body, {"Content-Type": "text/plain"}).status == 415
    assert server.request("POST", "/v1/chat/completions", body, form).status == 415


def test_a_stream_of_lines_and_a_whole(server):
    streamed = lines(ask(server, options=GREEDY))
    *pieces, last = streamed
    assert len(pieces) > 2 and all(not one["done"] and one["message"]["role"] == "assistant" and one["model"] == "demo" for one in pieces)
    assert "".join(one["message"]["content"] for one in streamed) == ANSWER
    assert last["done"] and last["done_reason"] == "stop" and last["eval_count"] > len(pieces)  # with the end token
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", one["created_at"]) for one in streamed)
    whole = ask(server, options=GREEDY, stream=False).json()
    assert whole["message"] == {"role": "assistant", "content": ANSWER} and whole["done"]
    for name in ("prompt_eval_count", "eval_count"):
        assert whole[name] == last[name] > 0
    assert whole["total_duration"] > 0 and whole["eval_duration"] > 0


def test_generate_puts_the_prompt_into_the_template(server):
    whole = ask(server, "/api/generate", options=GREEDY, stream=False).json()
    assert whole["response"] == ANSWER and whole["prompt_eval_count"] == ask(server, options=GREEDY, stream=False).json()["prompt_eval_count"]
    assert "".join(one["response"] for one in lines(ask(server, "/api/generate", options=GREEDY))) == ANSWER
    raw = ask(server, "/api/generate", prompt="Once upon a time", raw=True, stream=False, options=GREEDY | {"num_predict": 5}).json()
    assert raw["eval_count"] == 5 and raw["done_reason"] == "length"
    same = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0}).json()
    assert raw["prompt_eval_count"] == same["usage"]["prompt_tokens"]
    assert raw["response"] == same["choices"][0]["text"]
    system = ask(server, "/api/generate", system="You are a poet.", stream=False, options={"num_predict": 1}).json()
    assert system["prompt_eval_count"] > whole["prompt_eval_count"]


def test_options(server):
    said = lambda **options: ask(server, options=options, stream=False).json()
    assert said(temperature=1.5, seed=7, num_predict=20) ["message"] == said(temperature=1.5, seed=7, num_predict=20)["message"]
    assert len({said(temperature=1.5, seed=seed, top_k=0, top_p=1.0, min_p=0.0, num_predict=20)["message"]["content"] for seed in range(8)}) > 1
    assert said(temperature=0, stop=["="])["message"]["content"] == "7 + 5 "
    assert said(temperature=0, stop="+")["message"]["content"] == "7 "
    assert said(temperature=0, num_predict=2)["eval_count"] == 2
    for n in (-1, -2, 0):
        assert said(temperature=0, num_predict=n)["message"]["content"] == ANSWER
    assert said(temperature=0, num_ctx=8192, num_gpu=99, num_thread=4, use_mmap=True)["message"]["content"] == ANSWER, "what the operator decides"
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    cut = said(temperature=0, num_predict=n_ctx)
    assert cut["max_tokens_clamped_to"] == n_ctx - cut["prompt_eval_count"]
    assert said(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2, seed=1, num_predict=9)["eval_count"] > 0


@pytest.mark.parametrize("fields, word", [
    ({"options": {"temperature": "hot"}}, "options.temperature must be"), ({"options": {"temperature": 500}}, "options.temperature is 500"),
    ({"options": {"num_predict": 1.5}}, "options.num_predict"), ({"options": {"stop": [5]}}, "options.stop"), ({"options": {"stop": [""]}}, "options.stop"),
    ({"options": {"tfs_z": 0.5}}, "options.tfs_z"), ({"options": {"mirostat": 1}}, "options.mirostat"), ({"options": []}, "options"),
    ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"), ({"messages": [{"role": "poet", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"), ({"messages": [5]}, "messages[0]"), ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"format": "xml"}, "format must be"), ({"format": {"$ref": "http://far"}}, "format"), ({"think": "much"}, "think must be"), ({"keep_alive": "soon"}, "keep_alive"),
    ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]}, "arguments must be an object"),
    ({"messages": USER * 5000}, "maximum context length"), ({"tools": [{"type": "function"}]}, "tools[0].function")])
def test_what_is_refused_has_ollamas_form(server, fields, word):
    refused(ask(server, **fields), word)


@pytest.mark.parametrize("fields, word", [({"images": ["aGk="]}, "images"), ({"context": [1, 2]}, "context"), ({"template": "{{ .Prompt }}"}, "template"),
                                          ({"suffix": "x"}, "suffix"), ({"width": 512}, "width")])
def test_what_generate_refuses(server, fields, word):
    refused(ask(server, "/api/generate", **fields), word)
    nothing = {name: type(value)() for name, value in fields.items()}
    assert ask(server, "/api/generate", stream=False, options={"num_predict": 1}, **nothing).status == 200


def test_errors_outside_of_the_handlers(server, start):
    refused(server.request("POST", "/api/chat", b"{", {"Content-Type": "application/json"}), "request body")
    refused(server.post("/api/unknown", {}), "/api/unknown", 404)
    refused(server.get("/api/chat"), "POST", 405)
    refused(server.post("/api/embed", {"model": "demo", "input": "x"}), "writes text")
    small = start("--max-body-bytes", 2000, "--access-log", "none")
    refused(ask(small, messages=[{"role": "user", "content": "x" * 3000}]), "at most 2000", 413)
    assert small.post("/v1/messages", {"messages": "x" * 3000}).json()["error"]["type"] == "request_too_large", "Anthropic's form, too"
    keyed = start("--api-key", "sesame", "--access-log", "none")
    refused(keyed.get("/api/tags"), "key", 401)
    assert keyed.get("/api/tags", headers={"Authorization": "Bearer sesame"}).status == 200


def test_formats(server):
    ask_for = [{"role": "user", "content": "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."}]
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": False}
    for stream in (True, False):
        reply = ask(server, messages=ask_for, format=schema, options=GREEDY | {"num_predict": 200}, stream=stream)
        text = "".join(one["message"]["content"] for one in (lines(reply) if stream else [reply.json()]))
        assert json.loads(text) == {"name": "Clara Reed", "age": 34}
    assert isinstance(json.loads(ask(server, messages=ask_for, format="json", stream=False, options=GREEDY | {"num_predict": 300}).json()["message"]["content"]), dict)
    assert ask(server, format="", stream=False, options=GREEDY).json()["message"]["content"] == ANSWER
    raw = ask(server, "/api/generate", prompt=ask_for[0]["content"], raw=True, format=schema, stream=False, options=GREEDY | {"num_predict": 200}).json()
    assert set(json.loads(raw["response"])) == {"name", "age"}


def test_log_probabilities(server):
    whole = ask(server, options=GREEDY, stream=False, logprobs=True, top_logprobs=2).json()
    streamed = [one for line in lines(ask(server, options=GREEDY, logprobs=True, top_logprobs=2)) for one in line.get("logprobs", [])]
    for found in (whole["logprobs"], streamed):
        assert "".join(one["token"] for one in found) == ANSWER
        assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == 2 and one["top_logprobs"][0]["token"] == one["token"] for one in found)
    refused(ask(server, top_logprobs=2), "logprobs")


def test_thinking_and_calls():
    """A model that thinks, speaks and calls twice: each call is one object, in one line."""
    tools = [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}]
    with caller() as url:
        host, port = url.split("://")[1].split(":")

        def post(**fields):
            c = http.client.HTTPConnection(host, int(port), timeout=60 * SLOW)
            c.request("POST", "/api/chat", json.dumps({"messages": USER, "tools": tools, "options": {"num_predict": 400, "stop": "abab"}} | fields), {"Content-Type": "application/json"})
            return c.getresponse().read().decode()

        parts = [json.loads(line)["message"] for line in post().splitlines()]
        whole = json.loads(post(stream=False))["message"]
        for messages in (parts, [whole]):
            assert "".join(m.get("thinking", "") for m in messages) == "Hm." and "".join(m["content"] for m in messages) == "I look."
            calls = [call for m in messages for call in m.get("tool_calls", [])]
            assert [call["function"] for call in calls] == [{"name": "weather", "arguments": {"place": place}} for place in ("Oslo", 'Zürich "B"')]


def test_a_call_and_its_result_reach_the_model(server):
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look_it_up", "arguments": {"at_what": "snow"}}}]}
    n = lambda messages: ask(server, messages=messages, stream=False, options={"num_predict": 1}).json()["prompt_eval_count"]
    assert n([*USER, call, {"role": "tool", "tool_name": "look_it_up", "content": "It is white."}]) > n([*USER, call]) > n(USER)
    opened = ask(server, messages=[*USER, {"role": "assistant", "content": "7 + 5 ="}], stream=False, options=GREEDY).json()
    assert opened["message"]["content"].strip() == "12.", "an assistant's message at the end is continued"


def test_what_there_is(server):
    assert server.get("/api/version").json()["version"].count(".") == 2
    (model,) = server.get("/api/tags").json()["models"]
    assert model["name"] == model["model"] == "demo:latest" and model["size"] > 1e6 and len(model["digest"]) == 64
    assert model["details"]["format"] == "gguf" and model["details"]["quantization_level"] == "Q8_0" and model["details"]["parameter_size"].endswith("M")
    (loaded,) = server.get("/api/ps").json()["models"]
    assert loaded["digest"] == model["digest"] and loaded["context_length"] == server.get("/v1/models").json()["data"][0]["max_model_len"]
    facts = server.post("/api/show", {"model": "demo"}).json()
    assert {"completion", "tools"} <= set(facts["capabilities"]) and "embedding" not in facts["capabilities"] and "{%" in facts["template"]
    arch = facts["model_info"]["general.architecture"]
    assert facts["model_info"][f"{arch}.context_length"] > 0 and "num_ctx" in facts["parameters"]


def test_names_of_several_models(start):
    demo = SOURCE / "models" / "demo.gguf"
    server = start(demo, SOURCE / "tests" / "data" / "models" / "qwen3.gguf", "--models-max", 1, "--access-log", "none")
    assert [m["name"] for m in server.get("/api/tags").json()["models"]] == ["demo:latest", "qwen3:latest"]
    for name in ("demo", "demo:latest"):
        assert ask(server, model=name, stream=False, options=GREEDY).json()["message"]["content"] == ANSWER
    refused(ask(server, model="llama3"), "there is no model 'llama3'", 404)
    refused(server.post("/api/show", {"model": "llama3"}), "llama3", 404)
    assert server.post("/api/show", {"name": "demo"}).json()["modelfile"] == "FROM demo", "as older clients say it"
    assert server.post("/v1/completions", {"model": "demo:latest", "prompt": "x", "max_tokens": 1}).status == 200
    assert lines(server.post("/api/pull", {"model": "qwen3"}))[-1] == {"status": "success"}
    assert [m["name"] for m in server.get("/api/ps").json()["models"]] == ["qwen3:latest"], "pulled is loaded, and there is room for one"
    assert server.post("/api/pull", {"model": "qwen3:latest", "stream": False}).json() == {"status": "success"}


def test_pull_fetches_nothing(server):
    refused(server.post("/api/pull", {"model": "llama3"}), "not found", 404)
    refused(server.post("/api/pull", {}), "model is missing")


def until(condition):
    deadline = time.monotonic() + 30 * SLOW
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_keep_alive(start):
    """0 unloads the model after the answer, and the next request reloads it. The answers are the same."""
    server = start("--access-log", "none")
    n_loaded = lambda: len(server.get("/api/ps").json()["models"])
    assert ask(server, stream=False, options=GREEDY, keep_alive=0).json()["message"]["content"] == ANSWER
    assert until(lambda: n_loaded() == 0)
    assert server.post("/api/generate", {"model": "demo"}).json()["done_reason"] == "load" and n_loaded() == 1
    assert server.post("/api/chat", {"model": "demo", "messages": [], "keep_alive": "10m"}).json()["done_reason"] == "load"
    (loaded,) = server.get("/api/ps").json()["models"]
    assert not loaded["expires_at"].startswith("21"), "not in a hundred years"
    assert server.post("/api/generate", {"model": "demo", "keep_alive": -1}).json()["done_reason"] == "load"
    assert server.get("/api/ps").json()["models"][0]["expires_at"].startswith("21")
    assert server.post("/api/generate", {"model": "demo", "keep_alive": "0s"}).json()["done_reason"] == "unload"
    assert until(lambda: n_loaded() == 0)
    pinned = start("--pin", "demo", "--access-log", "none")
    pinned.post("/api/generate", {"model": "demo", "keep_alive": 0})
    time.sleep(1.2)
    assert len(pinned.get("/api/ps").json()["models"]) == 1, "the operator's word counts"


def test_vectors(start):
    server = start(SOURCE / "tests" / "data" / "encoders" / "bert.gguf", "--access-log", "none")
    want = [one["embedding"] for one in server.post("/v1/embeddings", {"input": ["one", "two"]}).json()["data"]]
    got = server.post("/api/embed", {"model": "bert", "input": ["one", "two"]}).json()
    assert got["embeddings"] == want and got["prompt_eval_count"] > 2
    assert server.post("/api/embed", {"model": "bert", "input": "one"}).json()["embeddings"] == want[:1]
    assert server.post("/api/embeddings", {"model": "bert", "prompt": "one"}).json() == {"embedding": want[0]}
    long = "word " * 5000
    assert server.post("/api/embed", {"input": long}).status == 200, "cut, as Ollama does"
    refused(server.post("/api/embed", {"input": long, "truncate": False}), "at most")
    refused(server.post("/api/embed", {}), "input is missing")
    refused(server.post("/api/embeddings", {}), "prompt is missing")
    refused(server.post("/api/chat", {"messages": USER}), "embeds")
    assert server.post("/api/show", {"model": "bert"}).json()["capabilities"] == ["embedding"]


def test_a_stream_whose_client_is_silent_stays_json(start):
    """The server's pings are spaces before a line."""
    server = start("--sse-ping-interval", 1, "--max-seqs", 1, "--access-log", "none")
    body = json.dumps({"messages": USER, "options": GREEDY | {"num_predict": 300}}).encode()
    with server.connect() as sock:
        sock.sendall(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        sock.shutdown(socket.SHUT_WR)  # the server then sends a space at once
        got = b""
        while piece := sock.recv(65536):
            got += piece
    head, _, chunks = got.partition(b"\r\n\r\n")
    text = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        text, chunks = text + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    assert b"application/x-ndjson" in head and json.loads(text.splitlines()[-1])["done"]
    assert "".join(json.loads(line)["message"]["content"] for line in text.splitlines()) == ANSWER
