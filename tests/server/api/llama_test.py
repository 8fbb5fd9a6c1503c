"""llama-server's own routes: completions in its form, infill, slots, loading and unloading of models. Its samplers on
every route."""
import json
import time

import pytest
from conftest import SLOW, SOURCE

STAGES = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
GREEDY = {"temperature": 0}


def events(reply):
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("text/event-stream"), reply.body
    blocks = [block for block in reply.body.decode().split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: {") for block in blocks), "no [DONE]"
    return [json.loads(block[6:]) for block in blocks]


def test_completion(server):
    openai = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "return_token_ids": True} | GREEDY).json()
    for path in ("/completion", "/completions"):
        got = server.post(path, {"prompt": "Once upon a time", "n_predict": 12, "return_tokens": True} | GREEDY).json()
        assert got["content"] == openai["choices"][0]["text"] and got["tokens"] == openai["choices"][0]["token_ids"]
    assert got["stop"] and got["stop_type"] == "limit" and got["tokens_predicted"] == 12 and got["tokens_evaluated"] == openai["usage"]["prompt_tokens"]
    assert got["tokens_cached"] == got["tokens_evaluated"] + 12 and got["index"] == 0 and not got["truncated"] and "Once upon a time" in got["prompt"]
    assert got["timings"]["predicted_n"] == 12 and got["generation_settings"]["samplers"] == STAGES and got["generation_settings"]["temperature"] == 0
    word = server.post("/completion", {"prompt": "Once upon a time", "n_predict": 50, "stop": [got["content"].split()[2]]} | GREEDY).json()
    assert word["stop_type"] == "word" and word["stopping_word"] == got["content"].split()[2] and word["tokens"] == []
    chat = server.post("/apply-template", {"messages": [{"role": "user", "content": "What is 7 + 5?"}]}).json()["prompt"]
    eos = server.post("/completion", {"prompt": chat} | GREEDY).json()
    assert eos["content"] == "7 + 5 = 12." and eos["stop_type"] == "eos" and eos["stopping_word"] == ""


def test_streamed_completion(server):
    whole = server.post("/completion", {"prompt": "Once upon a time", "n_predict": 12, "return_tokens": True, "n_probs": 2} | GREEDY).json()
    *pieces, last = events(server.post("/completion", {"prompt": "Once upon a time", "n_predict": 12, "stream": True, "n_probs": 2, "return_tokens": True,
                                                        "timings_per_token": True, "return_progress": True} | GREEDY))
    progress, pieces = [p for p in pieces if "prompt_progress" in p], [p for p in pieces if "prompt_progress" not in p]
    assert progress and "".join(p["content"] for p in pieces) == whole["content"] and sum((p["tokens"] for p in pieces), []) == whole["tokens"]
    assert not any(p["stop"] for p in pieces) and pieces[-1]["timings"]["predicted_n"] >= 11 and pieces[-1]["tokens_predicted"] == 12
    assert last["stop"] and last["content"] == "" and last["stop_type"] == "limit" and last["timings"]["predicted_n"] == 12
    streamed = sum((p["completion_probabilities"] for p in pieces), [])
    assert streamed == whole["completion_probabilities"] and [one["id"] for one in streamed] == whole["tokens"]
    assert all(one["top_logprobs"][0]["id"] == one["id"] and len(one["top_logprobs"]) == 2 for one in streamed)


def test_prompts_of_texts_and_tokens(server):
    ids = lambda text, **more: server.post("/tokenize", {"content": text} | more).json()["tokens"]
    said = lambda prompt: server.post("/completion", {"prompt": prompt, "n_predict": 8} | GREEDY).json()
    whole = said("Once upon a time")
    assert said(ids("Once upon a time", add_special=True))["content"] == whole["content"]
    assert said(["Once", *ids(" upon"), *ids(" a time")])["content"] == whole["content"]
    many = said(["Once upon a time", ids("Once upon a time", add_special=True)])
    assert [one["index"] for one in many] == [0, 1] and [one["content"] for one in many] == [whole["content"]] * 2
    for bad in ([], "", [[]], 5, [1.5], [-1], {"a": 1}, [None]):
        assert server.post("/completion", {"prompt": bad}).error(400)["param"].startswith("prompt")


def test_biases_of_texts(server):
    first = server.post("/completion", {"prompt": "Once upon a time", "n_predict": 1, "return_tokens": True} | GREEDY).json()
    for bias in ([[first["tokens"][0], False]], [[first["content"], False]], [[first["tokens"][0], -100]], {str(first["tokens"][0]): -100}):
        other = server.post("/completion", {"prompt": "Once upon a time", "n_predict": 1, "return_tokens": True, "logit_bias": bias} | GREEDY).json()
        assert other["tokens"] != first["tokens"], bias
    for bad in ([[1]], [[1, 2, 3]], [5], [[-1, 1]], [[1, "x"]], [[1, 1000]], "x"):
        server.post("/completion", {"prompt": "x", "logit_bias": bad}).error(400, "logit_bias")


@pytest.mark.parametrize("field, value", [("n_predict", 0), ("n_predict", "x"), ("n_probs", 21), ("stream", 1), ("min_keep", 5), ("image_data", [{}]), ("lora", [{"id": 0}])])
def test_what_completion_refuses(server, field, value):
    server.post("/completion", {"prompt": "x", "n_predict": 1} | {field: value}).error(400, field)


def test_infill_needs_a_model_for_it(server, start):
    error = server.post("/infill", {"input_prefix": "a", "input_suffix": "b"}).error(400)
    assert "fill-in-the-middle" in error["message"]
    server.post("/infill", {"input_suffix": "b"}).error(400, "input_prefix")


def test_slots(start):
    server = start("--max-seqs", 3, "--access-log", "none")
    slots = server.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2] and not any(slot["is_processing"] for slot in slots) and server.get("/slots?fail_on_no_slot=1").status == 200
    assert server.get("/props").json()["total_slots"] == 3
    for action in ("save", "restore", "erase"):
        assert "--slot-save-path" in server.post(f"/slots/0?action={action}", {"filename": "x"}).error(501)["message"]


def test_the_cpu_has_16_slots(start):
    server = start("--access-log", "none")
    assert server.get("/props").json()["total_slots"] == len(server.get("/slots").json()) == 16
    assert any("16 sequences at once" in line for line in server.log)


def test_a_slot_is_saved_and_restored(start, tmp_path):
    """A restart of the server loses a conversation. Restoring its slot gives the same text with fewer computed
    tokens."""
    prompt = "Once upon a time there was a fox. " * 6
    ask = {"prompt": prompt, "n_predict": 20, "id_slot": 1, "temperature": 0}
    first = start("--slot-save-path", tmp_path, "--max-seqs", 3)
    text = first.post("/completion", ask).json()
    assert text["id_slot"] == 1 and text["timings"]["cache_n"] == 0
    saved = first.post("/slots/1?action=save", {"filename": "fox.slot"}).json()
    n = text["tokens_evaluated"] + text["tokens_predicted"] - 1
    assert saved["id_slot"] == 1 and saved["filename"] == "fox.slot" and saved["n_saved"] == n and saved["timings"]["save_ms"] >= 0
    assert saved["n_written"] == (tmp_path / "fox.slot").stat().st_size
    first.stop()

    second = start("--slot-save-path", tmp_path, "--max-seqs", 3)
    restored = second.post("/slots/0?action=restore", {"filename": "fox.slot"}).json()
    assert restored["n_restored"] == n and restored["n_read"] == saved["n_written"] and "restore_ms" in restored["timings"]
    again = second.post("/completion", ask | {"id_slot": 0}).json()
    assert again["content"] == text["content"] and again["id_slot"] == 0
    assert 0 < again["timings"]["prompt_n"] <= 16, "whole blocks of the prompt are found"
    # The next turn continues after the answer, in the slot that has its beginning.
    longer = second.post("/completion", {"prompt": prompt + text["content"] + " The end", "n_predict": 2, "temperature": 0}).json()
    assert longer["timings"]["cache_n"] >= n - 2 and longer["id_slot"] == 0
    assert second.request("POST", "/slots/0?action=erase", "").json()["n_erased"] > n
    assert second.post("/completion", ask).json()["timings"]["cache_n"] < 16


def test_slots_refuse(start, tmp_path):
    server = start("--slot-save-path", tmp_path)
    for name in ("", "../x", "a/b", "/etc/passwd", ".hidden", "a\\b", "a\0b", "x" * 256, "ä", None, 5):
        for action in ("save", "restore"):
            server.post(f"/slots/0?action={action}", {"filename": name}).error(400, "filename")
    for path in ("/slots/x?action=erase", "/slots/-1?action=erase", "/slots/999?action=erase", "/slots/0x?action=erase", "/slots/99999999999999999999?action=erase"):
        server.post(path, {}).error(400, "id_slot")
    for query in ("", "?action=", "?action=saved", "?xaction=save"):
        server.post("/slots/0" + query, {"filename": "x"}).error(400, "action")
    server.post("/slots/0?action=restore", {"filename": "nosuch"}).error(400)
    server.post("/completion", {"prompt": "Once upon a time there was a small red fox who lived in the woods", "id_slot": 0, "n_predict": 4})
    assert server.post("/slots/0?action=save", {"filename": "good"}).status == 200
    bytes_ = (tmp_path / "good").read_bytes()
    for i, bad in enumerate((b"", bytes_[:100], bytes_[:-1], bytes_ + b"x", bytes_[:200] + b"?" + bytes_[201:], b"GGUF" + bytes(100))):
        (tmp_path / f"bad{i}").write_bytes(bad)
        server.post("/slots/0?action=restore", {"filename": f"bad{i}"}).error(400)
    (tmp_path / "folder").mkdir()
    server.post("/slots/0?action=restore", {"filename": "folder"}).error(400)
    server.stop()
    other = start("--slot-save-path", tmp_path, "--kv-type", "f32")
    assert "another layout" in other.post("/slots/0?action=restore", {"filename": "good"}).error(400, "filename")["message"]
    other.stop()
    third = start(SOURCE / "tests/data/models/llama.gguf", "--slot-save-path", tmp_path)
    assert "another model" in third.post("/slots/0?action=restore", {"filename": "good"}).error(400, "filename")["message"]


def test_version_and_ping(server):
    assert server.get("/version").json()["version"].count(".") == 2
    assert server.get("/ping").status == server.post("/ping", {}).status == 200


def test_models_are_loaded_and_unloaded(start):
    demo = SOURCE / "models" / "demo.gguf"
    server = start(demo, SOURCE / "tests" / "data" / "models" / "qwen3.gguf", "--pin", "qwen3", "--access-log", "none")
    states = lambda: {model["id"]: model["status"]["value"] for model in server.get("/models").json()["data"]}
    assert states() == {"demo": "loaded", "qwen3": "loaded"}
    assert server.post("/models/unload", {"model": "demo"}).json() == {"success": True} and states()["demo"] == "unloaded"
    server.post("/models/unload", {"model": "demo"}).error(400, "model")
    assert "pinned" in server.post("/models/unload", {"model": "qwen3"}).error(409, "model")["message"]
    assert server.post("/models/load", {"model": "demo"}).json() == {"success": True} and states()["demo"] == "loaded"
    assert server.chat(model="demo", temperature=0).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."
    server.post("/models/unload", {"model": "nobody"}).error(404, "model")
    server.post("/models/load", {}).error(400, "model")


# ---- samplers ----

def said(server, **fields):
    return server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 24, "ignore_eos": True, "seed": 5} | fields).json()["choices"][0]["text"]


def test_samplers_change_the_text(server):
    """Each sampler changes the text, and gives the same text for the same seed, with and without drafts."""
    plain = said(server)
    for fields in ({"xtc_probability": 1.0, "xtc_threshold": 0.05}, {"top_n_sigma": 0.3},
                   {"mirostat": 2, "mirostat_tau": 1.0}, {"dynatemp_range": 0.8, "temperature": 0.9}, {"samplers": ["temperature"], "temperature": 2.0}):
        other = said(server, **fields)
        assert other != plain and other == said(server, **fields), fields
        assert other == said(server, speculate="ngram", **fields), fields
    assert said(server, samplers=STAGES) == plain, "the default order by its names"
    assert said(server, temperature=1.2, top_k=0, samplers=["top_k"]) == said(server, temperature=1, top_k=0, top_p=1, min_p=0), "stages left out are off"


def test_dry_and_its_breakers(server):
    """The repeated beginning of a story continues differently, unless its last word is a sequence breaker."""
    begin = "Once upon a time"
    prompt = begin + said(server, temperature=0) + " " + begin
    plain = said(server, prompt=prompt, temperature=0)
    dried = said(server, prompt=prompt, temperature=0, dry_multiplier=20)
    assert plain.startswith(",") and not dried.startswith(",")
    assert said(server, prompt=prompt, temperature=0, dry_multiplier=20, speculate="ngram") == dried
    assert said(server, prompt=prompt, temperature=0, dry_multiplier=20, dry_sequence_breakers=["time"]).startswith(",")
    assert said(server, prompt=prompt, temperature=0, dry_multiplier=20, dry_allowed_length=50) == plain


@pytest.mark.parametrize("field, value", [("samplers", ["top_q"]), ("samplers", "kt"), ("samplers", []), ("samplers", ["top_k", "top_k"]), ("mirostat", 1), ("mirostat", 3),
                                          ("dry_multiplier", -1), ("dry_base", 0.5), ("dry_allowed_length", 0), ("dry_sequence_breakers", [5]), ("top_n_sigma", 101), ("xtc_probability", 1.1),
                                          ("xtc_threshold", -0.1), ("dynatemp_range", "x"), ("mirostat_eta", 2)])
def test_samplers_out_of_range(server, field, value):
    for path, body in (("/v1/completions", {"prompt": "x"}), ("/completion", {"prompt": "x"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                       ("/v1/responses", {"input": "x"})):
        server.post(path, body | {field: value}).error(400, field)


def test_truncate_prompt_tokens(server):
    """vLLM's field: keeps the last tokens."""
    ids = server.post("/tokenize", {"prompt": "one two three four five six"}).json()["tokens"]
    cut = server.post("/v1/completions", {"prompt": ids, "truncate_prompt_tokens": 4, "max_tokens": 6} | GREEDY).json()
    assert cut["usage"]["prompt_tokens"] == 4 and cut["choices"][0]["text"] == server.post("/v1/completions", {"prompt": ids[-4:], "max_tokens": 6} | GREEDY).json()["choices"][0]["text"]
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    long = server.post("/v1/completions", {"prompt": [5] * (n_ctx + 100), "truncate_prompt_tokens": -1, "max_tokens": 9}).json()
    assert long["usage"] | {"x": 0} and long["usage"]["prompt_tokens"] == n_ctx - 1 and long["usage"]["completion_tokens"] == 1
    assert server.chat("hello " * 50, truncate_prompt_tokens=20, max_tokens=1).json()["usage"]["prompt_tokens"] == 20
    assert server.post("/completion", {"prompt": ids, "truncate_prompt_tokens": 3, "n_predict": 1}).json()["tokens_evaluated"] == 3
    assert server.post("/v1/responses", {"input": "hello " * 50, "truncate_prompt_tokens": 20, "max_output_tokens": 1}).json()["usage"]["input_tokens"] == 20
    for bad in (0, -2, "x"):
        server.post("/v1/completions", {"prompt": ids, "truncate_prompt_tokens": bad}).error(400, "truncate_prompt_tokens")
        server.post("/v1/responses", {"input": "x", "truncate_prompt_tokens": bad}).error(400, "truncate_prompt_tokens")
    refused = server.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "truncate_prompt_tokens": 5}).json()
    assert refused["type"] == "error" and "truncate_prompt_tokens is not supported on this route" in refused["error"]["message"]


# ---- limits of rate ----

def test_rate_limits(start):
    """Each key has its own limit. Cheap requests are not counted. rate_limit_test.cc tests the times."""
    server = start("--rate-limit", 3, "--api-key", "a", "--api-key", "b", "--access-log", "none")
    ask = lambda key: server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers={"X-Api-Key": key})
    assert [ask("a").status for _ in range(3)] == [200] * 3
    reply = ask("a")
    assert reply.error(429)["code"] == "rate_limit_exceeded" and 1 <= int(reply.headers["Retry-After"]) <= 20
    ollama = server.post("/api/chat", {"messages": []}, headers={"X-Api-Key": "a"})
    assert ollama.status == 429 and "requests a minute" in ollama.json()["error"]
    assert ask("b").status == 200
    assert [server.get(path, headers={"X-Api-Key": "a"}).status for path in ("/health", "/metrics", "/v1/models", "/props")] == [200] * 4
    assert ask("wrong").status == 401
    open_one = start("--rate-limit", 2, "--access-log", "none")
    post = lambda key: open_one.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers={"X-Api-Key": key}).status
    assert [post(key) for key in ("1", "2", "3")] == [200, 200, 429], "without keys to check, by address"
