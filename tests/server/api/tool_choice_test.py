"""Forced calls, strict tools and limited choices, in all three APIs. Forced tools are called, with arguments that
follow the tool's schema."""
import json

import pytest

USER = [{"role": "user", "content": "The weather in Oslo?"}]
PARAMETERS = {"type": "object", "additionalProperties": False, "required": ["place", "days"],
              "properties": {"place": {"type": "string", "minLength": 1, "maxLength": 8, "description": "a city"},
                             "days": {"type": "integer", "minimum": 1, "maximum": 9}, "unit": {"enum": ["C", "F"]}}}
NAMES = ["weather", "clock"]
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}, {"type": "function", "function": {"name": "clock"}}]


def check(name, arguments):
    """Checks the tools' schemas with separate code."""
    got = json.loads(arguments) if isinstance(arguments, str) else arguments
    if name == "clock":
        assert got == {}
        return
    assert name == "weather" and list(got)[:2] == ["place", "days"] and set(got) <= {"place", "days", "unit"}
    assert 1 <= len(got["place"]) <= 8 and got["days"] % 1 == 0 and 1 <= got["days"] <= 9 and got.get("unit", "C") in ("C", "F")


def flat(tools, parameters="parameters", **more):
    return [{"name": t["function"]["name"]} | more | ({parameters: t["function"]["parameters"]} if "parameters" in t["function"] else {}) for t in tools]


class Chat:
    force, one = "required", {"type": "function", "function": {"name": "weather"}}
    single = {"parallel_tool_calls": False}

    @staticmethod
    def body(**fields):
        return {"messages": USER, "tools": CHAT_TOOLS, "max_tokens": 400} | fields

    @staticmethod
    def calls(server, body):
        choice = server.post("/v1/chat/completions", body).json()["choices"][0]
        message = choice["message"]
        assert choice["finish_reason"] in ("tool_calls", "length")
        assert "tool_calls" not in message or choice["finish_reason"] == "tool_calls", "a whole answer has whole calls"
        streamed = {}
        for event in server.post("/v1/chat/completions", body | {"stream": True}).events():
            for call in event["choices"][0]["delta"].get("tool_calls", []) if event["choices"] else []:
                name, arguments = streamed.get(call["index"], ("", ""))
                streamed[call["index"]] = (name + call["function"].get("name", ""), arguments + call["function"]["arguments"])
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
        streamed = [streamed[i] for i in range(len(streamed))]
        is_cut = choice["finish_reason"] == "length"
        assert streamed[: len(calls)] == calls and len(streamed) == len(calls) + is_cut
        assert not is_cut or streamed[-1][1] in message["content"]
        return streamed, is_cut


class Responses:
    force, one = "required", {"type": "function", "name": "weather"}
    single = {"parallel_tool_calls": False}

    @staticmethod
    def body(**fields):
        return {"input": USER[0]["content"], "tools": flat(CHAT_TOOLS, type="function"), "max_output_tokens": fields.pop("max_tokens", 400)} | fields

    @staticmethod
    def calls(server, body):
        reply = server.post("/v1/responses", body).json()
        last = json.loads(server.post("/v1/responses", body | {"stream": True}).body.decode().rstrip().rsplit("data: ", 1)[1])["response"]
        whole, streamed = [[(i["name"], i["arguments"]) for i in r["output"] if i["type"] == "function_call"] for r in (reply, last)]
        is_cut = reply["status"] == "incomplete"
        assert streamed[: len(whole)] == whole and len(streamed) == len(whole) + is_cut and last["status"] == reply["status"]
        assert not is_cut or streamed[-1][1] in reply["output"][-1]["content"][0]["text"]
        return streamed, is_cut


class Messages:
    force, one = {"type": "any"}, {"type": "tool", "name": "weather"}
    single = {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}

    @staticmethod
    def body(**fields):
        return {"messages": USER, "tools": flat(CHAT_TOOLS, "input_schema"), "max_tokens": 400} | fields

    @staticmethod
    def calls(server, body):
        reply = server.post("/v1/messages", body).json()
        is_cut = reply["stop_reason"] == "max_tokens"
        whole = [(b["name"], b["input"]) for b in reply["content"] if b["type"] == "tool_use"]
        assert is_cut or reply["stop_reason"] == "tool_use" and len(whole) == len(reply["content"])
        streamed = []
        for part in server.post("/v1/messages", body | {"stream": True}).body.decode().split("\n\n"):
            event = json.loads(part.split("data: ", 1)[1]) if part else {}
            if event.get("type") == "content_block_start":
                streamed.append((event["content_block"]["name"], ""))
            elif event.get("type") == "content_block_delta":
                streamed[-1] = (streamed[-1][0], streamed[-1][1] + event["delta"]["partial_json"])
        assert [(name, json.loads(text)) for name, text in streamed[: len(whole)]] == whole and len(streamed) == len(whole) + is_cut
        assert not is_cut or streamed[-1][1] in reply["content"][-1]["text"]
        return whole + streamed[len(whole) :], is_cut


APIS = [Chat, Responses, Messages]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_what_is_forced_is_called(server, draw, api, temperature):
    body = api.body(tool_choice=api.force, temperature=temperature, seed=draw.randrange(1 << 31))
    calls, is_cut = api.calls(server, body)
    assert calls
    for name, arguments in calls[:len(calls) - is_cut]:
        check(name, arguments)
    for fields in (api.single | {"tool_choice": api.force} if api is not Messages else api.single, {"tool_choice": api.one}):
        calls, is_cut = api.calls(server, body | fields)
        assert len(calls) == 1 and not is_cut
        check(*calls[0])
        assert "tool_choice" not in fields or fields["tool_choice"] != api.one or calls[0][0] == "weather"


@pytest.mark.parametrize("api", APIS)
def test_a_call_that_is_cut_is_a_prefix(server, api):
    calls, is_cut = api.calls(server, api.body(tool_choice=api.one, max_tokens=20, temperature=0))
    assert is_cut and len(calls) == 1 and calls[0][1].startswith("{")


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("nested", [True, False])
def test_allowed_tools(server, mode, nested):
    names = [{"type": "function", "function": {"name": "clock"}} if nested else {"type": "function", "name": "clock"}]
    allowed = {"mode": mode, "tools": names}
    choice = {"type": "allowed_tools", "allowed_tools": allowed} if nested else {"type": "allowed_tools"} | allowed
    shown = server.post("/v1/chat/completions", Chat.body(max_tokens=1)).json()["usage"]["prompt_tokens"]
    got = server.post("/v1/chat/completions", Chat.body(tool_choice=choice, parallel_tool_calls=False, temperature=1)).json()
    assert got["usage"]["prompt_tokens"] == shown, "all tools are in the prompt"
    calls = got["choices"][0]["message"].get("tool_calls", [])
    assert all(c["function"]["name"] == "clock" for c in calls) and (calls or mode == "auto")
    if mode == "required":
        check("clock", calls[0]["function"]["arguments"])


def test_strict_tools_hold_calls_and_leave_text_free(server):
    strict = [{"type": "function", "function": t["function"] | {"strict": True}} for t in CHAT_TOOLS]

    def message(tools, text):
        return server.post("/v1/chat/completions", Chat.body(temperature=0, tools=tools, messages=[{"role": "user", "content": text}])).json()["choices"][0]["message"]

    plain, held = (message(tools, "The weather in Oslo?")["tool_calls"][0]["function"] for tools in (CHAT_TOOLS, strict))
    assert "days" not in json.loads(plain["arguments"]), "this model does not keep to the schema by itself"
    check(held["name"], held["arguments"])
    assert message(strict, "What is 7 + 5?")["content"] == "7 + 5 = 12."


def test_content_by_a_schema_or_calls(server):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}},
                                                                          "required": ["a"], "additionalProperties": False}}}
    for seed in range(4):
        body = Chat.body(response_format=form, temperature=1, seed=seed, parallel_tool_calls=False)
        choice = server.post("/v1/chat/completions", body).json()["choices"][0]
        message = choice["message"]
        if choice["finish_reason"] == "stop":
            assert list(json.loads(message["content"])) == ["a"] and "tool_calls" not in message
        assert choice["finish_reason"] != "tool_calls" or message["content"] is None


def parameters(schema):
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


@pytest.mark.parametrize("fields, param, words", [
    ({"tools": parameters({"type": "object", "properties": {"a": {"type": "strin"}}})}, "tools[0].function.parameters", ["'type'", "#/properties/a"]),
    ({"tools": parameters({"type": "array"})}, "tools[0].function.parameters", ["type", "object"]),
    ({"tools": parameters({"properties": {"a": {"type": "string", "pattern": "(a"}}})}, "tools[0].function.parameters", ["pattern"]),
    ({"tools": parameters({"$ref": "http://example.com/x"})}, "tools[0].function.parameters", ["$ref"]),
    ({"tools": []}, "tool_choice", ["no tools"]), ({"tools": CHAT_TOOLS + CHAT_TOOLS[:1]}, "tools[2].function.name", ["weather"]),
    ({"tools": [{"type": "function", "function": {"name": "x" * 10_000}}]}, "tools[0].function.name", ["256"]),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", ["a b"]),
    ({"tool_choice": "always"}, "tool_choice", []), ({"tool_choice": {"type": "web_search"}}, "tool_choice.type", []),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", ["f"]), ({"tool_choice": {"type": "function"}}, "tool_choice.name", []),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", []),
    ({"tool_choice": {"type": "allowed_tools", "mode": "x", "tools": [{"name": "clock"}]}}, "tool_choice.mode", []),
    ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]}}, "tool_choice.tools", ["f"]),
])
def test_what_cannot_be_held_is_refused(server, fields, param, words):
    error = server.post("/v1/chat/completions", Chat.body(tool_choice="required") | fields).error(400, param)
    for word in words:
        assert word in error["message"]


def test_strict_tools_are_refused_by_name_in_the_other_apis(server):
    bad = {"type": "object", "properties": {"a": {"type": "strin"}}}
    asked = Responses.body(tools=[{"type": "function", "name": "f", "strict": True, "parameters": bad}])
    assert "strin" in server.post("/v1/responses", asked).error(400, "tools[0].parameters")["message"]
    asked = Messages.body(tools=[{"name": "f", "strict": True, "input_schema": bad}])
    error = server.post("/v1/messages", asked)
    assert error.status == 400 and "tools[0].input_schema" in error.json()["error"]["message"]
