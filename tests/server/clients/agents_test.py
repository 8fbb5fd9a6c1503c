"""Requests of coding agents and SDKs in their published forms, and the parts of the answer that they need: Claude Code
on /v1/messages, Codex on /v1/responses, Vercel's AI SDK on /v1/chat/completions. The tests use http.client, so they
need no other packages."""
import http.client
import json
import urllib.parse

import pytest
from conftest import SOURCE, Reply, caller, running

CASES = {case["name"]: case for case in json.loads((SOURCE / "tests/data/demo/expected.json").read_text())["chat"]}
FUNCTIONS = [tool["function"] for tool in CASES["tool call"]["tools"]]
ASK, RESULT, ANSWER = (
    "What is the weather in Oslo?",
    CASES["tool answer"]["messages"][-1]["content"],
    CASES["tool answer"]["text"],
)


# ---- Claude Code: a system prompt of blocks, tools, cache_control, thinking, metadata, and ?beta=true

CLAUDE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "x-app": "cli",
    "User-Agent": "claude-cli/2.1.37 (external, cli)",
    "x-api-key": "none",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "prompt-caching-scope-2026-01-05",
    "anthropic-dangerous-direct-browser-access": "true",
    "X-Stainless-Lang": "js",
    "X-Stainless-Retry-Count": "0",
}
MODEL = "claude-sonnet-4-5-20250929"
CACHED = {"cache_control": {"type": "ephemeral"}}


def claude_body(messages, nonce, **fields):
    system = [
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={nonce};"},
        {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude.", **CACHED},
        {"type": "text", "text": "You answer questions. " * 12, **CACHED},
    ]
    tools = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in FUNCTIONS]
    return {
        "model": MODEL,
        "max_tokens": 64,
        "temperature": 0,
        "system": system,
        "tools": tools,
        "messages": messages,
        "metadata": {"user_id": "user_0_account__session_0"},
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    } | fields


QUESTION = {"role": "user", "content": [{"type": "text", "text": ASK, **CACHED}]}


def next_turn(messages, said):
    """The messages of the request after an answer: the answer, and the result of each call or the next question."""
    calls = [block for block in said if block["type"] == "tool_use"]
    text = [{"type": "text", "text": RESULT}]
    results = [{"type": "tool_result", "tool_use_id": c["id"], "content": text, "is_error": False} for c in calls]
    follows = results or [{"type": "text", "text": "What is 7 + 5?"}]
    return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": follows}]


def claude(server, messages, nonce, path="/v1/messages", **fields):
    reply = server.post(f"{path}?beta=true", claude_body(messages, nonce, **fields), headers=CLAUDE_HEADERS)
    assert reply.status == 200, reply.body
    return reply


def n_prompt(usage):
    return usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_each_turn_of_claude_code_computes_its_own_tokens():
    """The billing header differs in each request. The prefix of the turn before must still be found in the cache."""
    with running("--alias", MODEL) as server:
        messages, before, answers = [QUESTION], None, []
        for nonce in ("fa690", "0b1c2", "77ed0"):
            got = claude(server, messages, nonce).json()
            usage = got["usage"]
            if before:  # only the token that ended the answer was not computed
                known = n_prompt(before) + before["output_tokens"] - 1
                assert usage["cache_read_input_tokens"] >= known, (before, usage)
                assert usage["input_tokens"] < 80, usage
            answers.append(got["content"])
            messages, before = next_turn(messages, got["content"]), usage
        assert all((block["name"], block["input"]) == ("get_weather", {"city": "Oslo"}) for block in answers[0])
        assert answers[1] == [{"type": "text", "text": ANSWER}] and "12" in answers[2][0]["text"]


def test_the_billing_header_is_kept_where_that_is_asked_for():
    count = lambda server, nonce: claude(server, [QUESTION], nonce, "/v1/messages/count_tokens").json()["input_tokens"]
    with running("--keep-billing-header") as kept, running() as server:
        assert count(server, "fa690") == count(server, "0") < min(count(kept, "fa690"), count(kept, "0"))
        claude(kept, [QUESTION], "fa690")
        assert claude(kept, [QUESTION], "0b1c2").json()["usage"]["cache_read_input_tokens"] < 64
        assert n_prompt(claude(server, [QUESTION], "0b1c2").json()["usage"]) == count(server, "1")


@pytest.mark.parametrize(
    "system, same",
    [
        ("x-anthropic-billing-header: cc_version=2.1.37.0d9; cch=fa690;\nBe brief.", "Be brief."),
        ("x-anthropic-billing-header: cc_version=2; cch=1;Be brief = short.", "Be brief = short."),
        ("x-anthropic-billing-header: cch=1\nx=1;", "x=1;"),
        ("x-anthropic-billing-header: cch=1;", None),
        ("x-anthropic-billing-header:", None),
        ("Be brief.\nx-anthropic-billing-header: cch=1;", "Be brief.\nx-anthropic-billing-header: cch=1;"),
        ("x-anthropic-billing: cch=1;", "x-anthropic-billing: cch=1;"),
    ],
)
def test_what_of_a_system_prompt_is_the_header(server, system, same):
    """Only the header's line is removed, and only at the front. Token counts equal those of the prompt without the
    line."""
    count = lambda text: server.post(
        "/v1/messages/count_tokens",
        {"messages": [{"role": "user", "content": "Hi"}]} | ({"system": text} if text else {}),
    ).json()["input_tokens"]
    assert count(system) == count(same)


def test_claude_code_streams(server):
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    body = claude_body([QUESTION], "1")
    reply = claude(server, body["messages"], "1", stream=True, model="demo", tools=[*body["tools"], search])
    pairs = [event.split("\n") for event in reply.body.decode().split("\n\n") if event.startswith("event: ")]
    events = [json.loads(data[6:]) for _, data in pairs]
    assert [name[7:] for name, _ in pairs] == [e["type"] for e in events]
    kinds = [e["type"] for e in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert events[0]["message"]["usage"]["input_tokens"] > 100 and events[-2]["delta"]["stop_reason"] == "tool_use"
    assert "web_search" in events[-2]["warnings"][0]
    start, *_ = (e for e in events if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use")
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta" and e["index"] == start["index"]]
    parts = [delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta"]
    assert start["content_block"]["name"] == "get_weather" and json.loads("".join(parts)) == {"city": "Oslo"}


def test_a_system_message_between_turns(server):
    """Clients with the beta of that name send such messages."""
    turns = [
        {"role": "user", "content": "What is 7 + 5?"},
        {"role": "assistant", "content": "7 + 5 = 12."},
        {"role": "system", "content": [{"type": "text", "text": "Answer briefly."}]},
        {"role": "user", "content": "What is 2 + 2?"},
    ]
    got = server.post("/v1/messages", {"messages": turns, "max_tokens": 20, "temperature": 0})
    assert got.status == 200 and got.json()["content"][0]["text"], got.body


def test_edits_of_the_context_that_clear_something_are_refused(server):
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    got = server.post("/v1/messages", claude_body([QUESTION], "1", context_management=edits, model="demo"))
    assert got.status == 400 and "context_management" in got.json()["error"]["message"], got.body


# ---- Codex: instructions, input of items, tools of several types, store: false, include, prompt_cache_key

CODEX_TOOLS = [
    {
        "type": "function",
        "name": f["name"],
        "description": f["description"],
        "strict": False,
        "parameters": f["parameters"],
    }
    for f in FUNCTIONS
] + [
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edit files",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    },
    {"type": "local_shell"},
    {"type": "web_search", "external_web_access": False},
    {"type": "image_generation", "output_format": "png"},
]


def codex_message(role, text):
    return {
        "type": "message",
        "role": role,
        "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}],
    }


def codex(server, items, **fields):
    body = {
        "model": "demo",
        "instructions": "You are a coding agent running in the Codex CLI.",
        "input": items,
        "tools": CODEX_TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "temperature": 0,
    } | fields
    headers = {
        "Accept": "text/event-stream",
        "originator": "codex_cli_rs",
        "User-Agent": "codex_cli_rs/0.60.0",
        "session_id": "0199a213",
        "conversation_id": "0199a213",
    }
    reply = server.post("/v1/responses", body, headers=headers)
    assert reply.status == 200, reply.body
    events = []
    for block in reply.body.decode().split("\n\n"):
        if block.startswith("event: "):
            name, data = block.split("\n")
            events.append(json.loads(data[6:]))
            assert events[-1]["type"] == name[7:]
    return events


def test_codex(server):
    """The events of a stream that Codex reads: finished items, text deltas, and the usage at the end. The second
    request has these items as input."""
    items = [
        codex_message("developer", "<permissions>read-only</permissions>"),
        codex_message("user", "<environment_context><cwd>/tmp</cwd></environment_context>"),
        codex_message("user", ASK),
    ]
    events = codex(server, items)
    assert events[0]["type"] == "response.created" and events[-1]["type"] == "response.completed"
    (call,) = (
        e["item"] for e in events if e["type"] == "response.output_item.done" and e["item"]["type"] == "function_call"
    )
    assert call["name"] == "get_weather" and json.loads(call["arguments"]) == {"city": "Oslo"} and call["call_id"]
    done = events[-1]["response"]
    usage = done["usage"]
    assert (
        done["id"]
        and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        and usage["input_tokens_details"]["cached_tokens"] >= 0
    )
    assert usage["output_tokens_details"]["reasoning_tokens"] == 0
    warnings = " ".join(done["warnings"])
    assert all(
        f"'{kind}'" in warnings for kind in ("custom", "local_shell", "web_search", "image_generation")
    ), warnings
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "gAAAA"}
    call = {k: call[k] for k in ("type", "name", "arguments", "call_id")}
    for output in (RESULT, [{"type": "input_text", "text": RESULT}]):
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
        events = codex(server, [*items, thought, call, result])
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        (message,) = (e["item"] for e in events if e["type"] == "response.output_item.done")
        assert message["type"] == "message" and message["content"][0]["text"] == text == ANSWER
    assert events[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] > 100


def test_codex_with_an_output_schema(server):
    """The request of `codex exec --output-schema`."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}},
        "required": ["name"],
        "additionalProperties": False,
    }
    text = {"format": {"type": "json_schema", "strict": True, "schema": schema, "name": "codex_output_schema"}}
    events = codex(server, [codex_message("user", "Who are you?")], text=text, tools=[], max_output_tokens=100)
    assert set(json.loads(events[-1]["response"]["output"][-1]["content"][0]["text"])) == {"name"}


# ---- Vercel's AI SDK: "data: JSON" and an empty line, "data: [DONE]" last; chunks as @ai-sdk/openai-compatible
# requires


def check_chunk(chunk):
    """Checks the schema of a chunk: each member has the type that the SDK requires."""
    assert (
        isinstance(chunk["choices"], list)
        and chunk["object"] == "chat.completion.chunk"
        and isinstance(chunk["created"], int)
    )
    for choice in chunk["choices"]:
        assert choice["finish_reason"] in (None, "stop", "length", "tool_calls") and isinstance(choice["delta"], dict)
        delta = choice["delta"]
        assert delta.get("role") in (None, "assistant", "")
        assert all(
            delta.get(name) is None or isinstance(delta[name], str)
            for name in ("content", "reasoning_content", "reasoning")
        )
        for call in delta.get("tool_calls") or []:
            assert isinstance(call["index"], int) and (
                call.get("function", {}).get("arguments") is None or isinstance(call["function"]["arguments"], str)
            )
    usage = chunk.get("usage")
    assert usage is None or all(
        isinstance(usage[name], int) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )


class Calls:
    """Requests to a server, given only its address."""

    def __init__(self, url):
        self.address = urllib.parse.urlsplit(url).netloc

    def post(self, path, body):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())


def test_the_stream_of_the_ai_sdk(server):
    tools = [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather of a place",
                "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
            },
        }
    ]
    asked = {
        "model": "x",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": tools,
        "tool_choice": "auto",
        "max_tokens": 400,
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop_token_ids": [256],
    }
    with caller() as url:
        reply = Calls(url).post("/v1/chat/completions", asked)
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    lines = [line for line in reply.body.decode().split("\n\n") if line and not line.startswith(":")]
    assert lines.pop() == "data: [DONE]" and all(line.startswith("data: {") and "\n" not in line for line in lines)
    chunks = [json.loads(line[6:]) for line in lines]
    calls, texts, finish = {}, {"content": "", "reasoning_content": ""}, None
    for chunk in chunks:
        check_chunk(chunk)
        for choice in chunk["choices"]:
            for name in texts:
                texts[name] += choice["delta"].get(name) or ""
            for call in choice["delta"].get("tool_calls") or []:
                if call["index"] not in calls:  # the SDK fails if the first chunk of a call has no id or name
                    assert call["type"] == "function" and call["id"] and call["function"]["name"]
                    calls[call["index"]] = [call["function"]["name"], ""]
                calls[call["index"]][1] += call["function"].get("arguments") or ""
            finish = choice["finish_reason"] or finish
    assert (
        finish == "tool_calls"
        and texts == {"content": "I look.", "reasoning_content": "Hm."}
        and chunks[-1]["usage"]["completion_tokens"] > 10
    )
    assert [(name, json.loads(text)["place"]) for name, text in calls.values()] == [
        ("weather", "Oslo"),
        ("weather", 'Zürich "B"'),
    ]
    assert len({chunk["id"] for chunk in chunks}) == 1 and {chunk["model"] for chunk in chunks} == {"fake"}
