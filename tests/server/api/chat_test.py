"""/v1/chat/completions and /v1/completions on the demo model: the behaviour that clients rely on, streamed and not."""
import concurrent.futures
import os
import subprocess

import numpy
import pytest
from conftest import running

STORY = "Tell me a story about a fox."


def events_text(events, index=0):
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"] if c["index"] == index)


def test_an_answer(server):
    got = server.chat(temperature=0).json()
    assert got["object"] == "chat.completion" and got["id"].startswith("chatcmpl-") and got["created"] > 1.7e9
    (choice,) = got["choices"]
    assert choice["message"] == {"role": "assistant", "content": "7 + 5 = 12."} and choice["finish_reason"] == "stop"
    usage = got["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] and usage["prompt_tokens_details"]["cached_tokens"] >= 0
    assert got["timings"]["predicted_n"] == usage["completion_tokens"]


def test_a_stream_keeps_the_rules(server):
    reply = server.chat(STORY, temperature=0, max_tokens=20, stream=True, stream_options={"include_usage": True})
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    *events, last = reply.events()
    assert len({e["id"] for e in events}) == 1 and all(e["object"] == "chat.completion.chunk" for e in events)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 20
    assert not any("usage" in e for e in events)
    deltas = [e["choices"][0]["delta"] for e in events]
    assert deltas[0] == {"role": "assistant", "content": None}
    assert all("role" not in d and d.get("content") != "" for d in deltas[1:])
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * (len(events) - 1) + ["length"]


def counts_of(usage):
    """The usage without the numbers of draft tokens, which depend on measured times."""
    return {name: value for name, value in usage.items() if name != "completion_tokens_details"}


def test_streamed_text_is_the_whole_text(server, draw):
    for _ in range(6):
        fields = {"seed": draw.randrange(1 << 40), "temperature": 1.3, "max_tokens": draw.randint(1, 60), "stop": draw.sample(["the", "a fox", " b", ".", "qq"], 2)}
        whole = server.chat(STORY, **fields).json()
        events = server.chat(STORY, **fields, stream=True, stream_options={"include_usage": True}).events()
        assert events_text(events) == whole["choices"][0]["message"]["content"], fields
        assert events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
        assert counts_of(events[-1]["usage"]) == counts_of(whole["usage"])


def test_the_seed_decides(server):
    said = [server.chat(STORY, seed=7, temperature=1.5, max_tokens=30).json()["choices"][0]["message"]["content"] for _ in range(2)]
    other = server.chat(STORY, seed=8, temperature=1.5, max_tokens=30).json()["choices"][0]["message"]["content"]
    assert said[0] == said[1] != other


def test_n_choices(server):
    got = server.chat(STORY, n=3, seed=7, temperature=1.5, max_tokens=12).json()
    texts = [c["message"]["content"] for c in got["choices"]]
    assert [c["index"] for c in got["choices"]] == [0, 1, 2] and len(set(texts)) == 3
    assert got["usage"]["completion_tokens"] == 36
    events = server.chat(STORY, n=3, seed=7, temperature=1.5, max_tokens=12, stream=True).events()
    assert [events_text(events, i) for i in range(3)] == texts
    finishes = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert finishes == ["length"] * 3


def test_choices_usage_and_tokens_in_one_stream(server):
    """Each chunk names its choice, each choice begins and ends once, and the total usage is sent once, last."""
    fields = {"n": 3, "seed": 9, "temperature": 1.5, "max_tokens": 15, "logprobs": True, "return_token_ids": True}
    whole = server.chat(STORY, **fields).json()
    *events, last = server.chat(STORY, **fields, stream=True, stream_options={"include_usage": True}).events()
    assert last["choices"] == [] and counts_of(last["usage"]) == counts_of(whole["usage"]) and not any("usage" in e for e in events)
    for i, choice in enumerate(whole["choices"]):
        own = [c for e in events for c in e["choices"] if c["index"] == i]
        assert [c["delta"].get("role") for c in own] == ["assistant"] + [None] * (len(own) - 1)
        assert [c["finish_reason"] for c in own] == [None] * (len(own) - 1) + [choice["finish_reason"]]
        assert events_text(events, i) == choice["message"]["content"]
        assert sum((c.get("token_ids") or [] for c in own), []) == choice["token_ids"]
    assert all(len(e["choices"]) == 1 for e in events)


def test_a_conversation_with_tools(server):
    """Null content next to calls, and a tool's answer. The tools are in the prompt unless the choice is none."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Oslo"}'}}
    messages = [{"role": "user", "content": "The weather in Oslo?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "Rain"}, {"role": "user", "content": [{"type": "text", "text": "Thanks"}]}]
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
    for stream in (False, True):
        assert server.post("/v1/chat/completions", {"messages": messages, "tools": [tool], "max_tokens": 3, "stream": stream}).status == 200
    prompt = lambda **fields: server.post("/apply-template", {"messages": messages, **fields}).json()["prompt"]
    assert "Rain" in prompt() and prompt(tools=[tool], tool_choice="none") == prompt()
    assert '"place"' in prompt(tools=[tool]) and prompt(tools=[tool], tool_choice="auto") == prompt(tools=[tool])


def test_the_call_format_is_the_templates_or_as_told(server):
    """Text after <seed:think> is reasoning only with --tool-parser seed_oss."""
    turns = [{"role": "user", "content": "What is 7 + 5?"}, {"role": "assistant", "content": "<seed:think>"}]
    body = {"messages": turns, "temperature": 0, "max_tokens": 8, "continue_final_message": True, "ignore_eos": True}
    plain = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    with running("--tool-parser", "seed_oss") as told:
        split = told.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    assert plain["content"].strip() and "reasoning" not in plain
    assert split["content"] == "" and split["reasoning"] == split["reasoning_content"] == plain["content"].lstrip()
    done = subprocess.run([os.environ["INGOT"], "serve", "--tool-parser", "nope"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "gpt_oss" in done.stderr
    assert "deepseek_v3_1" in subprocess.run([os.environ["INGOT"], "serve", "--help-all"], capture_output=True, text=True, timeout=60).stdout


def test_the_last_message_can_be_continued(server):
    asked = {"role": "user", "content": "What is 7 + 5?"}
    turns = [asked, {"role": "assistant", "content": "7 + 5 ="}]
    ask = lambda messages, **fields: server.post("/v1/chat/completions", {"messages": messages, "temperature": 0} | fields)
    assert ask(turns, continue_final_message=True, add_generation_prompt=False).json()["choices"][0]["message"]["content"] == " 12."
    prompt = lambda messages, **fields: server.post("/apply-template", {"messages": messages} | fields).json()["prompt"]
    assert prompt(turns, continue_final_message=True).endswith("7 + 5 =")
    assert prompt([asked]).startswith(prompt([asked], add_generation_prompt=False)) and len(prompt([asked])) > len(prompt([asked], add_generation_prompt=False))
    ask([asked], continue_final_message=True).error(400, "messages")
    ask(turns, continue_final_message=True, add_generation_prompt=True).error(400, "add_generation_prompt")
    echoed = dict(echo=True, continue_final_message=True)
    assert ask(turns, **echoed, n=2).json()["choices"][1]["message"]["content"] == "7 + 5 = 12."
    events = ask(turns, **echoed, n=2, stream=True).events()
    assert [events_text(events, i) for i in range(2)] == ["7 + 5 = 12."] * 2
    plain = ask([asked]).json()["choices"][0]["message"]["content"]
    assert ask([asked], echo=True).json()["choices"][0]["message"]["content"] == plain, "what an assistant has not said is not its own"
    parts = [asked, {"role": "assistant", "content": [{"type": "text", "text": "7 + 5 ="}]}]
    assert ask(parts, **echoed).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."


def test_a_prompt_may_stay_out_of_the_cache(server):
    fields = {"text": "Tell me of " + "a fox and " * 30, "max_tokens": 1}
    cached = lambda **more: server.chat(**fields, **more).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    server.chat(**fields)
    assert cached() >= 16 and cached(cache_prompt=True) >= 16 and cached(cache_prompt=False) == cached(cache_prompt=False) == 0


def test_stop_strings_never_show(server):
    full = server.chat(STORY, temperature=0, max_tokens=60).json()["choices"][0]["message"]["content"]
    for begin in range(5, 25, 4):
        stop = full[begin:begin + 5]
        got = server.chat(STORY, temperature=0, max_tokens=60, stop=stop).json()["choices"][0]
        assert got["message"]["content"] == full[:full.index(stop)] and got["finish_reason"] == "stop"
        kept = server.chat(STORY, temperature=0, max_tokens=60, stop=[stop], include_stop_str_in_output=True).json()["choices"][0]
        assert kept["message"]["content"] == full[:full.index(stop) + len(stop)]


def test_logprobs_are_the_text(server):
    got = server.chat(STORY, temperature=0, max_tokens=25, logprobs=True, top_logprobs=4).json()["choices"][0]
    tokens = got["logprobs"]["content"]
    assert bytes(b for t in tokens for b in t["bytes"]).decode() == got["message"]["content"]
    for token in tokens:
        assert len(token["top_logprobs"]) == 4 and token["logprob"] <= 0
        assert token["top_logprobs"][0]["logprob"] == pytest.approx(token["logprob"]), "greedy takes the likeliest"
        assert all(a["logprob"] >= b["logprob"] for a, b in zip(token["top_logprobs"], token["top_logprobs"][1:]))
    events = server.chat(STORY, temperature=0, max_tokens=25, logprobs=True, top_logprobs=4, stream=True).events()
    streamed = [t for e in events for c in e["choices"] if c.get("logprobs") for t in c["logprobs"]["content"]]
    assert [t["token"] for t in streamed] == [t["token"] for t in tokens]


def test_typed_parts_developer_role_and_unknown_fields(server):
    parts = [{"type": "text", "text": "What is 7 + 5?"}]
    got = server.post("/v1/chat/completions", {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}],
                                               "temperature": 0, "max_tokens": 5, "metadata": {"a": 1}, "store": True, "no_such_field": [1]})
    assert got.status == 200 and got.json()["choices"][0]["message"]["content"]


def test_logit_bias_and_stop_token_ids(server):
    plain = server.chat(temperature=0, return_token_ids=True).json()["choices"][0]
    first = plain["token_ids"][0]
    assert server.chat(temperature=0, logit_bias={str(first): -100}, return_token_ids=True).json()["choices"][0]["token_ids"][0] != first
    stopped = server.chat(temperature=0, stop_token_ids=[plain["token_ids"][2]], return_token_ids=True).json()["choices"][0]
    assert stopped["token_ids"] == plain["token_ids"][:2] and stopped["finish_reason"] == "stop"


def test_continuous_usage(server):
    events = server.chat(STORY, temperature=0, max_tokens=8, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}).events()
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 8
    events = complete(server, max_tokens=8, stream=True, stream_options={"continuous_usage_stats": True}).events()
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts) and counts[-1] == 8 and all(e["usage"]["prompt_tokens"] > 1 for e in events)


def test_progress_and_timings_of_a_stream(server):
    """A prompt of several steps reports its progress. A cached prompt begins at its cached tokens. Then each event
    reports the times so far."""
    n, salt = 6, {"cache_salt": "progress"}
    text = "The fox and the raven. " * 300
    fields = dict(temperature=0, max_tokens=n, stream=True, return_progress=True, timings_per_token=True, ignore_eos=True) | salt
    for again in (False, True):
        events = server.chat(text, **fields).events()
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None} and "prompt_progress" not in events[0]
        steps = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        assert events[1:1 + len(steps)] == [e for e in events if "prompt_progress" in e], "before any text"
        total, cached = steps[0]["total"], steps[0]["cache"]
        assert (cached > total - 32) if again else (cached == 0 and len(steps) >= 3)
        assert all(s["total"] == total and s["cache"] == cached for s in steps)
        done, times = [s["processed"] for s in steps], [s["time_ms"] for s in steps]
        assert done == sorted(done) and done[0] > cached and done[-1] == total and times == sorted(times) and times[0] > 0
        timings = [e["timings"] for e in events[1 + len(steps):]]
        assert timings and all(t["cache_n"] == cached and t["prompt_n"] == total - cached and t["prompt_ms"] >= times[-1] for t in timings)
        counts = [t["predicted_n"] for t in timings]
        assert counts == sorted(counts) and counts[0] >= 1 and counts[-1] == n and timings[-1]["predicted_ms"] > 0
    both = complete(server, [text, text + "x"], n=2, max_tokens=2, stream=True, return_progress=True, timings_per_token=True).events()
    for i in range(4):
        last = [e["prompt_progress"] for e in both if e["choices"][0]["index"] == i and "prompt_progress" in e][-1]
        assert last["processed"] == last["total"]
    assert "prompt_progress" not in server.chat(**{**fields, "stream": False}).json(), "a whole answer has nothing to say before it is there"
    for field in ("return_progress", "timings_per_token"):
        server.chat(**{field: 1}).error(400, field)


def test_a_conversation_computes_only_what_is_new(server):
    messages = [{"role": "system", "content": "You tell stories. " * 10}, {"role": "user", "content": STORY}]
    first = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 40, "temperature": 0}).json()
    messages += [first["choices"][0]["message"], {"role": "user", "content": "Go on."}]
    usage = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4}).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 16 > 30


# ---- completions ----

def complete(server, prompt="Once upon a time", **fields):
    return server.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 12} | fields)


def test_completions(server):
    got = complete(server).json()
    assert got["object"] == "text_completion" and got["choices"][0]["text"] and got["choices"][0]["logprobs"] is None
    ids = server.post("/tokenize", {"prompt": "Once upon a time"}).json()["tokens"]
    assert complete(server, ids).json()["choices"][0]["text"] == got["choices"][0]["text"], "token ids are the same prompt"
    events = complete(server, stream=True).events()
    assert "".join(c["text"] for e in events for c in e["choices"]) == got["choices"][0]["text"]


def test_several_prompts_echo_and_logprobs(server):
    one, two = (complete(server, p).json()["choices"][0]["text"] for p in ("Once upon a time", "The fox"))
    got = complete(server, ["Once upon a time", "The fox"], n=2, echo=True).json()["choices"]
    assert [c["index"] for c in got] == [0, 1, 2, 3]
    assert [c["text"] for c in got] == ["Once upon a time" + one] * 2 + ["The fox" + two] * 2
    probs = complete(server, logprobs=3).json()["choices"][0]
    assert "".join(probs["logprobs"]["tokens"]) == probs["text"]
    assert probs["logprobs"]["text_offset"] == [len("".join(probs["logprobs"]["tokens"][:i])) for i in range(12)]
    assert all(len(top) == 3 for top in probs["logprobs"]["top_logprobs"])


def test_echo_with_logprobs_scores_the_prompt(start, tmp_path):
    """Compared with `ingot logits`, in double. The same streamed, from the cache and with other requests. max_tokens
    may be 0. Deterministic, because long prompts may round their weights."""
    server = start("--max-seqs", 8, "--deterministic")
    text = "Once upon a time there was a fox. " * 12
    ids = server.post("/tokenize", {"prompt": text}).json()["tokens"]
    assert len(ids) > 70, "more than a step has rows of logits for"
    out = tmp_path / "logits.npy"
    subprocess.run([os.environ["INGOT"], "logits", "--deterministic", "--tokens", ",".join(map(str, ids)), "--all", "-o", out], check=True, timeout=600)
    rows = numpy.load(out).astype(numpy.float64)
    expected = rows - rows.max(axis=1, keepdims=True)
    expected -= numpy.log(numpy.exp(expected).sum(axis=1, keepdims=True))
    complete(server, ids)  # the prompt is in the cache now
    fields = dict(echo=True, logprobs=2, max_tokens=5, temperature=0)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        bodies = list(pool.map(lambda n: complete(server, text if n == 1 else ids, n=n, **fields).json(), [1, 2, 3]))
    for choice in [c for body in bodies for c in body["choices"]]:
        got = choice["logprobs"]
        assert "".join(got["tokens"]) == choice["text"] and choice["text"].startswith(text)
        assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None
        assert len(got["tokens"]) == len(ids) + 5
        own = numpy.array(got["token_logprobs"][1:len(ids)])
        assert abs(own - expected[numpy.arange(len(ids) - 1), ids[1:]]).max() < 2e-3
        best = numpy.array([max(top.values()) for top in got["top_logprobs"][1:]])
        assert abs(best[:len(ids) - 1] - expected[:-1].max(axis=1)).max() < 2e-3
        assert all(p == b for p, b in zip(got["token_logprobs"][len(ids):], best[len(ids) - 1:])), "a greedy answer's tokens are the likeliest"
    whole = bodies[0]["choices"][0]
    chunks = [c for e in complete(server, ids, stream=True, **fields).events() for c in e["choices"]]
    assert "".join(c["text"] for c in chunks) == whole["text"]
    for name in ("tokens", "text_offset"):
        assert sum((c["logprobs"][name] for c in chunks), []) == whole["logprobs"][name]
    for name, answer in (("completion", complete(server, ids, prompt_logprobs=2, n=2).json()),
                         ("chat", server.chat(text, prompt_logprobs=2, n=2, cache_salt="scores").json())):
        of_each = [c["prompt_logprobs"] for c in answer["choices"]] if name == "completion" else [answer["prompt_logprobs"]]
        assert all(one == of_each[0] for one in of_each) and of_each[0][0] is None
        assert len(of_each[0]) == answer["usage"]["prompt_tokens"]
        for position, rivals in enumerate(of_each[0][1:]):
            ranks = [r["rank"] for r in rivals.values()]
            assert sorted(r for r in ranks if r) == [1, 2] and len(ranks) <= 3
            if name == "chat":
                continue
            own = rivals[str(ids[position + 1])]
            assert abs(own["logprob"] - expected[position, ids[position + 1]]) < 2e-3
            likelier = (expected[position] > expected[position, ids[position + 1]] + 4e-3).sum()
            assert own["rank"] is None or likelier < own["rank"]
        if name == "completion":
            pieces = [of_each[0][i][str(ids[i])]["decoded_token"] for i in range(1, len(ids))]
            assert text.endswith("".join(pieces)) and len("".join(pieces)) > len(text) - 10
    nothing = complete(server, ids, **fields | {"max_tokens": 0}).json()
    assert nothing["choices"][0]["text"] == text and nothing["choices"][0]["finish_reason"] == "length"
    counts = {name: n for name, n in nothing["usage"].items() if not name.endswith("_details")}
    assert counts == {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)}
    assert len(nothing["choices"][0]["logprobs"]["tokens"]) == len(ids)
    complete(server, ids, max_tokens=0).error(400, "max_tokens")
    complete(server, [ids] * 20, n=128, **fields | {"logprobs": 20}).error(400, "logprobs")
    complete(server, [ids * 6] * 128, prompt_logprobs=20).error(400, "prompt_logprobs")
    complete(server, ids, prompt_logprobs=1, stream=True).error(400, "prompt_logprobs")


def test_text_offsets_are_characters(server, draw):
    alphabet = "ae \u00eb\u4e16\U0001f642\u0301"
    for _ in range(5):
        text = "".join(draw.choice(alphabet) for _ in range(draw.randint(1, 40)))
        pieces = server.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
        pieces = [bytes(t["piece"]) if isinstance(t["piece"], list) else t["piece"].encode() for t in pieces]
        assert b"".join(pieces).decode() == text
        starts = [len(b"".join(pieces[:i]).decode(errors="ignore")) for i in range(len(pieces))]  # ignored: a part of a character
        fields = {"echo": True, "logprobs": 0, "max_tokens": 3, "ignore_eos": True}
        whole = complete(server, text, **fields).json()["choices"][0]
        assert whole["text"].startswith(text) and whole["logprobs"]["text_offset"][:len(starts)] == starts
        assert whole["logprobs"]["text_offset"][len(starts)] == len(text)
        chunks = [c for e in complete(server, text, **fields, stream=True).events() for c in e["choices"]]
        assert sum((c["logprobs"]["text_offset"] for c in chunks), []) == whole["logprobs"]["text_offset"]


def test_min_tokens(server):
    plain = server.chat(temperature=0).json()
    n = plain["usage"]["completion_tokens"]
    assert plain["choices"][0]["finish_reason"] == "stop"
    longer = server.chat(temperature=0, min_tokens=n + 7, max_tokens=n + 20).json()
    assert longer["usage"]["completion_tokens"] >= n + 7
    assert longer["choices"][0]["message"]["content"].startswith(plain["choices"][0]["message"]["content"])
    stop = plain["choices"][0]["message"]["content"][2]
    assert server.chat(temperature=0, stop=stop).json()["usage"]["completion_tokens"] < n
    assert server.chat(temperature=0, stop=stop, min_tokens=n - 1, max_tokens=n + 20).json()["usage"]["completion_tokens"] >= n - 1
    server.chat(min_tokens=9, max_tokens=8).error(400, "min_tokens")
    server.chat(min_tokens=-1).error(400, "min_tokens")


def test_ignore_eos_writes_to_the_limit(server):
    got = server.chat(temperature=0, ignore_eos=True, max_tokens=40).json()
    assert got["usage"]["completion_tokens"] == 40 and got["choices"][0]["finish_reason"] == "length"


# ---- refusals that name the field ----

@pytest.mark.parametrize("fields, param", [
    ({"stop": ["a"] * 500_000}, "stop"), ({"stop": "x" * 1_000_000}, "stop"), ({"logit_bias": {str(i): 1 for i in range(100_000)}}, "logit_bias"),
    ({"stop_token_ids": [1] * 100_000}, "stop_token_ids"), ({"bad_words": ["a"] * 50_000}, "bad_words"), ({"n": 10**6}, "n"), ({"best_of": 10**6}, "best_of"),
    ({"prompt_logprobs": -1}, "prompt_logprobs"), ({"min_tokens": 2**31}, "min_tokens"),
    ({"temperature": -1}, "temperature"), ({"temperature": "hot"}, "temperature"), ({"top_p": 0}, "top_p"), ({"top_p": 2}, "top_p"),
    ({"n": 0}, "n"), ({"n": 16385}, "n"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_completion_tokens": 10**10}, "max_completion_tokens"), ({"stop": ""}, "stop"), ({"stop": ["a"] * 17}, "stop"), ({"stop": 5}, "stop"),
    ({"logit_bias": {"x": 1}}, "logit_bias"), ({"logit_bias": {"1": None}}, "logit_bias"), ({"logit_bias": [1]}, "logit_bias"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"), ({"top_logprobs": 3}, "top_logprobs"), ({"seed": 1.5}, "seed"),
    ({"stream": "true"}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": 3}, "stream_options"), ({"stop_token_ids": [10**9]}, "stop_token_ids"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema"), ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "text", "json_schema": {"strict": 7}}}, "response_format.json_schema.strict"), ({"prediction": {"type": "content"}}, "prediction.content"), ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"), ({"tools": {}}, "tools"), ({"chat_template": "x"}, "chat_template"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"), ({"grammar": "root ::= x"}, "grammar"), ({"user": 5}, "user"),
    ({"messages": []}, "messages"), ({"messages": None}, "messages"), ({"messages": "hi"}, "messages"), ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]}, "messages[0].content[0]"),
])
def test_a_bad_field_is_named(server, fields, param):
    error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]} | fields).error(400, param)
    assert error["type"] == "invalid_request_error"


def test_a_range_above_0_is_named_so(server):
    error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "top_p": 0}).error(400, "top_p")
    assert "must be above 0, and at most 1" in error["message"]


USER = {"role": "user", "content": "hi"}
FUNCTIONS = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(257)]


@pytest.mark.parametrize("path, field, at_limit, beyond", [
    ("chat/completions", "stop", ["qqq"] * 16, ["qqq"] * 17), ("chat/completions", "stop", "q" * 256, "q" * 257),
    ("chat/completions", "stop_token_ids", list(range(128)), list(range(129))), ("chat/completions", "logit_bias", {str(i): 0 for i in range(1024)}, {str(i): 0 for i in range(1025)}),
    ("chat/completions", "logit_bias", {"1": 100}, {"1": 1e6}), ("chat/completions", "logit_bias", {"1": -100}, {"1": -100.5}),
    ("chat/completions", "n", 20, 129), ("chat/completions", "temperature", 100, 100.5), ("chat/completions", "temperature", 0, -1e-9), ("chat/completions", "top_p", 1e-30, 0),
    ("chat/completions", "top_p", 1, 1.0001), ("chat/completions", "min_p", 1, 1.0001), ("chat/completions", "min_p", 0, -1e-9), ("chat/completions", "top_k", -1, -2),
    ("chat/completions", "repetition_penalty", 1e-3, 0), ("chat/completions", "repeat_penalty", 100, 101), ("chat/completions", "presence_penalty", 100, 1e9),
    ("chat/completions", "frequency_penalty", -100, -1e9), ("chat/completions", "max_tokens", 1, 0), ("chat/completions", "max_tokens", -1, -2), ("chat/completions", "seed", -1, 2**64),
    ("chat/completions", "seed", 2**63 - 1, 1e300), ("chat/completions", "priority", 100, 101),
    ("chat/completions", "tools", FUNCTIONS[:256], FUNCTIONS),
    ("tokenize", "messages", [USER] * 16384, [USER] * 16385), ("completions", "logprobs", 20, 21), ("completions", "logprobs", 0, -1), ("completions", "prompt", [[5]] * 20, [[5]] * 129),
    ("completions", "prompt", [0], [-1]), ("completions", "best_of", 1, 129), ("completions", "max_tokens", 5, 10**10),
])
def test_limits(server, path, field, at_limit, beyond):
    """At the limit and one beyond it. For choices and prompts, the length of the queue limits the number."""
    base = {"chat/completions": {"messages": [USER], "max_tokens": 1}, "completions": {"prompt": [5], "max_tokens": 1}, "tokenize": {}}[path]
    route = "/tokenize" if path == "tokenize" else f"/v1/{path}"
    taken = server.post(route, base | {field: at_limit})
    if field == "tools":  # more tools than fit in the context
        assert taken.status == 200 or taken.error(400)["code"] == "context_length_exceeded"
    else:
        assert taken.status == 200, taken.body[:500]
    refused = server.post(route, base | {field: beyond}).error(400)
    assert refused["param"].split("[")[0].split(".")[0] == field, refused


def test_knobs_of_other_engines_insides_do_nothing(server):
    plain = server.chat(temperature=0).json()["choices"]
    assert server.chat(temperature=0, n_discard=-1, n_keep=2**31, id_slot=-1, cache_id="../x", beam_width=10**6).json()["choices"] == plain


def test_too_long_a_prompt_says_both_numbers(server):
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    error = complete(server, [5] * (n_ctx + 7)).error(400, "prompt")
    assert error["code"] == "context_length_exceeded" and str(n_ctx) in error["message"] and str(n_ctx + 7) in error["message"]
    assert complete(server, [5] * (n_ctx - 1), max_tokens=1).status == 200
    assert complete(server, [5] * n_ctx, max_tokens=1).status == 400


@pytest.mark.parametrize("path, prompt, field", [("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, "max_completion_tokens"),
                                                 ("/v1/completions", {"prompt": "hi"}, "max_tokens"), ("/v1/responses", {"input": "hi"}, "max_output_tokens"),
                                                 ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}]}, "max_tokens")])
def test_max_tokens_are_cut_to_what_fits(server, path, prompt, field):
    """max_tokens is cut to the rest of the context after the prompt. The usage reports the cut."""
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    room = None
    for asked in (n_ctx, 2**31 - 1, -1):
        usage = server.post(path, prompt | {field: asked, "ignore_eos": True, "cache_prompt": False}).json()["usage"]
        made = usage.get("completion_tokens", usage.get("output_tokens"))
        assert made + usage.get("prompt_tokens", usage.get("input_tokens")) == n_ctx
        assert usage.get("max_tokens_clamped_to") == (None if asked == -1 else made)
        room = made
    fits = server.post(path, prompt | {field: room, "cache_prompt": False}).json()["usage"]
    assert "max_tokens_clamped_to" not in fits
    server.post(path, prompt | {field: -2})
    assert server.post(path, prompt | {field: 0}).status == 400 and server.post(path, prompt | {field: -2}).status == 400


def test_a_stream_says_that_max_tokens_are_cut(server):
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    events = server.chat(max_tokens=n_ctx, stream=True, stream_options={"include_usage": True}).events()
    usage = events[-1]["usage"]
    assert usage["max_tokens_clamped_to"] == n_ctx - usage["prompt_tokens"]


def test_prompts_of_one_request_are_cut_each(server):
    n_ctx = server.get("/v1/models").json()["data"][0]["max_model_len"]
    reply = server.post("/v1/completions", {"prompt": [[5] * 7, [5] * 300], "max_tokens": n_ctx - 100, "ignore_eos": True}).json()
    assert reply["usage"]["max_tokens_clamped_to"] == n_ctx - 300 and reply["usage"]["completion_tokens"] == n_ctx - 100 + n_ctx - 300
    assert [c["finish_reason"] for c in reply["choices"]] == ["length"] * 2


@pytest.mark.parametrize("prompt", ["", [], [[]], [-1], [1 << 31], [1.5], ["a", 1], [1, "a"], [[1], "a"], {}, 5, True, None, [None], [10**6]])
def test_bad_prompts(server, prompt):
    assert complete(server, prompt).error(400)["param"].startswith("prompt")


def test_control_tokens_of_a_user_are_text(server):
    ids = server.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
    special = server.post("/detokenize", {"tokens": ids[:1]}).json()["content"]
    marked = server.post("/tokenize", {"messages": [{"role": "user", "content": f"hi{special}hi"}]}).json()["tokens"]
    assert marked.count(ids[0]) == ids.count(ids[0])
    prompt = server.post("/apply-template", {"messages": [{"role": "user", "content": f"hi{special}hi"}]}).json()["prompt"]
    assert f"hi{special}hi" in prompt


def test_tokenize_round_trip(server, draw):
    for _ in range(20):
        text = "".join(chr(draw.choice([draw.randint(32, 126), draw.randint(0xA0, 0x2FF), draw.randint(0x1F600, 0x1F640), 0, 10])) for _ in range(draw.randint(0, 60)))
        got = server.post("/tokenize", {"content": text, "with_pieces": True, "parse_special": False}).json()
        assert got["count"] == len(got["tokens"])
        pieces = b"".join(bytes(t["piece"]) if isinstance(t["piece"], list) else t["piece"].encode() for t in got["tokens"])
        assert pieces.decode() == text
        assert server.post("/detokenize", {"tokens": [t["id"] for t in got["tokens"]]}).json()["content"] == text


# ---- several models ----

# With this small cache, the demo model takes 38 MiB, and the other model 3.4.
@pytest.mark.parametrize("limit", [("--models-max", 1), ("--models-memory", "40MiB", "--kv-tokens", 2048)], ids=["number", "memory"])
def test_several_models(start, limit):
    import os
    import pathlib
    llama = pathlib.Path(os.environ["INGOT_SOURCE"]) / "models" / "demo.gguf"
    qwen = pathlib.Path(os.environ["INGOT_SOURCE"]) / "tests" / "data" / "models" / "qwen3.gguf"
    server = start(llama, qwen, *limit, "--access-log", "none")
    states = lambda: {m["id"]: m["status"]["value"] for m in server.get("/v1/models").json()["data"]}
    assert states() == {"demo": "loaded", "qwen3": "unloaded"}
    server.chat(max_tokens=2).error(400, "model")
    assert server.chat(model="nobody", max_tokens=2).error(404)["code"] == "model_not_found"
    assert server.chat(model="demo", temperature=0).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."
    got = server.post("/v1/completions", {"model": "qwen3", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True}).json()
    assert got["model"] == "qwen3" and got["usage"]["completion_tokens"] == 4
    assert states() == {"demo": "unloaded", "qwen3": "loaded"}
    assert server.chat(model="demo", temperature=0).json()["model"] == "demo"
