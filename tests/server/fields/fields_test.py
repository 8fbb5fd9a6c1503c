"""Roles, contents and tools of OpenAI's and Anthropic's clients (tests/data/api/fields.json). On every route,
unsupported ones are refused by name, and supported ones reach the model. known_fields_test.cc tests the fields
themselves."""
import json

import pytest
from conftest import SOURCE

CLIENTS = json.loads((SOURCE / "tests/data/api/fields.json").read_text())
USER = {"role": "user", "content": "What is 7 + 5?"}
LOOK = {"name": "look_it_up", "description": "Looks.", "parameters": {"type": "object", "properties": {"at_what": {"type": "string"}}}}
CHAT = ["/v1/chat/completions", "/apply-template", "/tokenize"]
ALL = CHAT + ["/v1/messages", "/v1/messages/count_tokens"]


def body(path, messages, **more):
    return ({"messages": messages} if path != "/v1/responses" else {"input": messages}) | ({"max_tokens": 1} if path == "/v1/messages" else {}) | more


def refusal(server, path, request):
    reply = server.post(path, request)
    assert reply.status == 400, (path, request, reply.body)
    return reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ALL)
def test_each_message_has_a_role_and_content(server, path):
    for message, word in [({"role": "user"}, "messages[1].content is missing"), ({"role": "poet", "content": "x"}, "messages[1].role must be"),
                          ({"content": "x"}, "messages[1].role must be"), ({"role": "assistant"}, "messages[1].content is missing"),
                          ({"role": "assistant", "content": None}, "messages[1].content")]:
        assert word in refusal(server, path, body(path, [USER, message]))


def test_each_item_has_a_role_and_content(server):
    for item, word in [({"role": "user"}, "input[0].content is missing"), ({"role": "poet", "content": "x"}, "input[0].role must be")]:
        assert word in refusal(server, "/v1/responses", {"input": [item]})


def test_roles_of_the_clients(server):
    for role in CLIENTS["roles"]["/v1/chat/completions"]:
        request = body("/apply-template", [USER, {"role": role, "content": "abracadabra"}, USER])
        if role == "function":
            assert "messages[1].role must be system, developer, user, assistant or tool" in refusal(server, "/apply-template", request)
        else:
            assert "abracadabra" in server.post("/apply-template", request).json()["prompt"]
    for message in [{"role": "assistant", "content": "x", "audio": {"id": "a"}}, {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": ""}}]:
        assert "messages[0]." in refusal(server, "/v1/chat/completions", body("", [message]))
        assert server.post("/apply-template", body("", [message | {"audio": None, "function_call": None}, USER])).status == 200


@pytest.mark.parametrize("path, known", [("/v1/chat/completions", "function"), ("/v1/responses", "function"), ("/v1/messages", "custom")])
def test_tools_of_others_are_left_out(server, path, known):
    """The server would have to run tools such as web_search. Requests with these and other tools are answered. Requests
    with only these tools are refused."""
    assert len(CLIENTS["tools"][path]) >= 2
    for kind in CLIENTS["tools"][path]:
        tool = {"type": kind, "name": "look_it_up", "function": LOOK, "input_schema": LOOK["parameters"], "parameters": LOOK["parameters"]}
        own = {"type": known, "name": "own", "function": LOOK | {"name": "own"}, "input_schema": LOOK["parameters"], "parameters": LOOK["parameters"]}
        if kind != known:
            assert "the server would have to run" in refusal(server, path, body(path, [USER], tools=[tool]))
        request = body(path, [USER], tools=[tool, own]) | {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 1}
        reply = server.post(path, request)
        assert reply.status == 200
        left_out = f"tools[0] is left out: this server has no tools of the type '{kind}'"
        assert reply.json().get("warnings", []) == ([] if kind == known else [left_out])


def test_tools_without_a_function_are_refused(server):
    for tool in [{"type": "function"}, {"type": "function", "function": {}}, {"type": "function", "function": "f"}, {}]:
        for path in CHAT:
            assert "tools[0].function" in refusal(server, path, body(path, [USER], tools=[tool]))


def test_a_format_that_cannot_be_enforced_is_refused(server):
    schema = {"type": "json_schema", "schema": {"$ref": "http://example.com/far"}}
    assert "output_config.format.schema: " in refusal(server, "/v1/messages", body("/v1/messages", [USER], output_config={"format": schema}))
    assert "text.format.schema: " in refusal(server, "/v1/responses", {"input": "x", "text": {"format": schema}})
    assert "response_format.schema: " in refusal(server, "/v1/chat/completions", body("", [USER], response_format=schema))
    assert server.post("/v1/messages", body("/v1/messages", [USER], output_config={"effort": "low"}, thinking={"type": "adaptive"})).status == 200
    assert "thinking.type must be" in refusal(server, "/v1/messages", body("/v1/messages", [USER], thinking={"type": "always"}))


def test_what_is_passed_over_changes_nothing(server):
    plain = {"temperature": 0, "max_tokens": 8}
    ignored = {"store": True, "service_tier": "auto", "safety_identifier": "x", "prompt_cache_key": "x", "metadata": {"a": "b"}, "user": "u",
               "prediction": {"type": "content", "content": "x"}, "length_penalty": 0.5, "of_another_server": {"a": [1]}}
    said = lambda more: server.post("/v1/chat/completions", body("", [USER], **plain, **more)).json()["choices"][0]["message"]["content"]
    assert said(ignored) == said({})


def test_tools_calls_and_results_reach_the_model(server):
    """Also with a template that does not support them."""
    shown = lambda messages, **more: server.post("/apply-template", body("", messages, **more)).json()["prompt"]
    tools = [{"type": "function", "function": LOOK}]
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look_it_up", "arguments": '{"at_what": "snow"}'}}]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "It is white."}
    with_tools = shown([USER], tools=tools)
    assert "look_it_up" in with_tools and "at_what" in with_tools
    assert shown([USER], tools=tools, tool_choice="none") == shown([USER])
    for more in ({"tools": tools}, {}):
        text = shown([USER, call, result], **more)
        assert "look_it_up" in text and "snow" in text and "It is white." in text
    count = lambda **more: server.post("/v1/messages/count_tokens", body("", [USER], **more)).json()["input_tokens"]
    assert count(tools=[{"name": "look_it_up", "input_schema": LOOK["parameters"]}]) > count() + 10
