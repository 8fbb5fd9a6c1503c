"""Answers with a schema, a regular expression, a choice or a grammar. They follow the constraint exactly, or the
request is refused. A constraint is never ignored."""
import json
import re

import pytest

from conftest import running

USER = {"messages": [{"role": "user", "content": "What is your name?"}], "max_tokens": 300}
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12}, "age": {"type": "integer", "minimum": 3, "maximum": 120},
                         "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "minItems": 1, "maxItems": 2}}}


def check(text):
    """Checks SCHEMA with separate code."""
    got = json.loads(text)
    assert list(got) == ["name", "age", "tags"] and 1 <= len(got["name"]) <= 12
    assert got["age"] % 1 == 0 and 3 <= got["age"] <= 120
    assert 1 <= len(got["tags"]) <= 2 and set(got["tags"]) <= {"a", "bc"}


FORMATS = [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
           {"structured_outputs": {"json": SCHEMA}}, {"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"json_schema": SCHEMA}]


@pytest.mark.parametrize("fields", FORMATS)
def test_every_answer_follows_the_schema(server, draw, fields):
    """At several temperatures, for each of n choices, and streamed."""
    for temperature in (0, 1, 2):
        body = USER | fields | {"temperature": temperature, "seed": draw.randrange(1 << 31), "n": 2}
        reply = server.post("/v1/chat/completions", body).json()
        for choice in reply["choices"]:
            assert choice["finish_reason"] == "stop"
            check(choice["message"]["content"])
    events = server.post("/v1/chat/completions", USER | fields | {"stream": True, "temperature": 1}).events()
    check("".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]))


def test_the_other_apis(server):
    check(server.post("/v1/completions", {"prompt": "My name", "max_tokens": 300} | FORMATS[0]).json()["choices"][0]["text"])
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA}
    reply = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 300, "text": {"format": form}}).json()
    check(reply["output"][-1]["content"][0]["text"])
    assert reply["text"]["format"]["type"] == "json_schema"
    for fields in ({"output_format": form}, {"output_config": {"format": form}}):
        check(server.post("/v1/messages", USER | fields).json()["content"][-1]["text"])


@pytest.mark.parametrize("fields, pattern", [
    ({"structured_outputs": {"regex": "[a-c]{3}-[0-9]+!"}}, "[a-c]{3}-[0-9]+!"), ({"guided_regex": "(yes|no)\\.?"}, "(yes|no)\\.?"),
    ({"structured_outputs": {"choice": ["a.b", "c|d", "(e"]}}, r"a\.b|c\|d|\(e"), ({"guided_choice": ["one", "two"]}, "one|two"),
    ({"grammar": 'root ::= "x" [0-9] "y"'}, "x[0-9]y"), ({"guided_grammar": 'start: "p" ("q" | "r")'}, "p(q|r)"),
    ({"structured_outputs": {"grammar": 'root ::= ("ab")+ "."'}, "temperature": 2}, r"(ab)+\."), ({"response_format": {"type": "json_object"}}, r"(?s)\s*\{.*\}\s*"),
])
def test_texts(server, fields, pattern):
    for seed in range(3):
        choice = server.post("/v1/chat/completions", USER | {"seed": seed} | fields).json()["choices"][0]
        if choice["finish_reason"] == "length":
            continue  # the model continued, which is allowed
        assert re.fullmatch(pattern, choice["message"]["content"]), choice
    assert server.post("/v1/chat/completions", USER | fields | {"max_tokens": 1}).json()["choices"][0]["finish_reason"] in ("length", "stop")


def test_the_end_comes_where_the_text_is_whole(server):
    """Also if the model would continue after the end, and with stop strings, biases and log-probabilities."""
    body = USER | {"guided_regex": "abc", "ignore_eos": True, "logprobs": True, "top_logprobs": 2}
    choice = server.post("/v1/chat/completions", body).json()["choices"][0]
    assert choice["message"]["content"] == "abc" and choice["finish_reason"] == "stop"
    assert "".join(t["token"] for t in choice["logprobs"]["content"]) == "abc"
    assert server.post("/v1/chat/completions", USER | {"guided_regex": "abc", "stop": ["c"]}).json()["choices"][0]["message"]["content"] == "ab"


@pytest.mark.parametrize("fields, param, words", [
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"a": {"type": "strin"}}}}}},
     "response_format.json_schema.schema", ["type", "properties"]),
    ({"guided_json": {"$ref": "http://example.com/x"}}, "guided_json", ["$ref"]), ({"guided_json": "{"}, "guided_json", []),
    ({"guided_regex": "(a"}, "guided_regex", []), ({"guided_regex": "(a)\\1"}, "guided_regex", []), ({"grammar": "root ::= nothing"}, "grammar", ["nothing"]),
    ({"guided_choice": []}, "guided_choice", []), ({"guided_choice": ["a"], "guided_regex": "b"}, "guided_choice", ["only one"]),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", []), ({"structured_outputs": {"other": 1}}, "structured_outputs", []),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema", ["missing"]),
    ({"response_format": {"type": "yaml"}}, "response_format.type", ["json_object"]), ({"response_format": {}}, "response_format.type", []),
    ({"response_format": FORMATS[0]["response_format"], "grammar": 'root ::= "a"'}, "grammar", ["only one"]),
    ({"guided_json": {"enum": []}}, "guided_json", ["#", "enum"]), ({"guided_json": {"items": {"minItems": -1}}}, "guided_json", ["#/items", "minItems"]),
    ({"grammar": "root ::= " + "(" * 300}, "grammar", ["line 1, column 267"]), ({"grammar": 'root ::= "a"\nroot ::= "b"'}, "grammar", ["line 2, column 1"]),
])
def test_what_cannot_be_enforced_is_refused(server, fields, param, words):
    error = server.post("/v1/chat/completions", USER | fields).error(400, param)
    for word in words:
        assert word in error["message"]


def test_forced_text_takes_no_draws(server):
    """Names of members are forced. Forced tokens count like others, and the answer follows the schema. Requests for
    log-probabilities sample each token."""
    long = {"type": "object", "additionalProperties": False, "required": ["the_name_of_the_person", "the_age_of_the_person"],
            "properties": {"the_name_of_the_person": {"type": "string", "maxLength": 5}, "the_age_of_the_person": {"type": "boolean"}}}
    body = USER | {"json_schema": long, "n": 2, "temperature": 1}
    before = server.metric("forced_tokens_total")
    scored = server.post("/v1/chat/completions", body | {"logprobs": True}).json()
    assert server.metric("forced_tokens_total") == before
    for choice in scored["choices"]:
        assert all(token["logprob"] < 0 for token in choice["logprobs"]["content"] if token["token"].strip().isalpha())
    before_tokens = server.metric("generation_tokens_total")
    reply = server.post("/v1/chat/completions", body).json()
    forced = server.metric("forced_tokens_total") - before
    assert 4 <= forced <= server.metric("generation_tokens_total") - before_tokens == reply["usage"]["completion_tokens"]
    for choice in reply["choices"]:
        assert list(json.loads(choice["message"]["content"])) == long["required"] and choice["finish_reason"] == "stop"


def test_max_tokens_cuts_a_text_that_could_go_on(server):
    """At any place, in forced text and in strings, a cut answer is the beginning of the whole answer."""
    body = {"messages": USER["messages"], "json_schema": SCHEMA, "temperature": 0}
    whole = server.post("/v1/chat/completions", body | {"max_tokens": 300}).json()
    text, n = whole["choices"][0]["message"]["content"], whole["usage"]["completion_tokens"]
    check(text)
    for max_tokens in range(1, n):
        reply = server.post("/v1/chat/completions", body | {"max_tokens": max_tokens}).json()
        choice = reply["choices"][0]
        assert choice["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == max_tokens
        assert text.startswith(choice["message"]["content"].rstrip("\ufffd")) and len(choice["message"]["content"]) < len(text)


@pytest.mark.parametrize("fields", [{"guided_regex": "[^\\s\\S]"}, {"guided_json": False}, {"guided_grammar": 'root ::= "a" root'}])
def test_what_no_text_follows_is_refused(server, fields):
    [param] = fields
    server.post("/v1/chat/completions", USER | fields).error(400, param)
    assert server.post("/v1/chat/completions", USER | {"guided_regex": "ok"}).json()["choices"][0]["message"]["content"] == "ok"


def test_a_cut_answer_is_the_beginning_of_a_whole_one(server):
    """max_tokens inside of a JSON string."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 200}}, "required": ["text"], "additionalProperties": False}
    for n in (1, 5, 20):
        choice = server.post("/v1/chat/completions", USER | {"guided_json": schema, "max_tokens": n, "temperature": 1}).json()["choices"][0]
        text = choice["message"]["content"]
        assert choice["finish_reason"] == "length"
        assert re.fullmatch(r'\{( |\n[ ]*)?("(t(e(x(t("( )?(:( |\n[ ]*)?("([^"\\]|\\.)*\\?)?)?)?)?)?)?)?)?', text, re.S), text


def test_hostile_tools_are_answered(server):
    """For any tools, the status is 200 or 400, and the server keeps running."""
    tool = lambda **fields: {"type": "function", "function": {"name": "f"} | fields}
    for tools, status in (([tool(name="n" * 10240)], (200, 400)), ([tool(), tool()], (200, 400)), ([tool(parameters=None)], (200,)),
                          ([tool(parameters={"type": 5, "properties": []})], (200, 400)), ([tool(parameters={"properties": {"a": {"pattern": "("}}})], (200, 400)),
                          ([tool(parameters={"properties": {"a": {"type": ["x", {}]}}})], (200, 400)), ([{"type": "function"}], (200, 400)), ([None], (400,)),
                          ([tool()] * 1000, (400,))):
        assert server.post("/v1/chat/completions", USER | {"tools": tools, "max_tokens": 3}).status in status, tools[:2]
    server.post("/v1/chat/completions", USER | {"tools": [tool()], "tool_choice": "sometimes"}).error(400, "tool_choice")
    server.post("/v1/chat/completions", USER | {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}}).error(400, "tool_choice")
    assert server.chat(max_tokens=1).status == 200


def test_a_lenient_server_warns():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(x)\\1", "maxLength": 3}, "b": {"type": "boolean"}},
              "required": ["a", "b"], "additionalProperties": False}
    fields = {"guided_json": schema, "max_tokens": 200}
    with running("--lenient-schema", "--any-order") as lenient:
        for body in (lenient.post("/v1/chat/completions", USER | fields).json(), lenient.post("/v1/completions", fields | {"prompt": "Hi"}).json()):
            choice = body["choices"][0]
            got = json.loads(choice["message"]["content"] if "message" in choice else choice["text"])
            assert set(got) == {"a", "b"} and len(got["a"]) <= 3 and type(got["b"]) is bool
            assert len(body["warnings"]) == 1 and "#/properties/a" in body["warnings"][0] and "'pattern'" in body["warnings"][0]
        for path, body in (("/v1/chat/completions", USER), ("/v1/completions", {"prompt": "Hi"})):
            events = lenient.post(path, body | fields | {"stream": True}).events()
            assert [e["warnings"] for e in events if "warnings" in e] == [events[-1 if "warnings" in events[-1] else -2]["warnings"]]
        form = {"type": "json_schema", "name": "x", "schema": schema}
        assert "'pattern'" in lenient.post("/v1/responses", {"input": "Hi", "max_output_tokens": 200, "text": {"format": form}}).json()["warnings"][0]
        assert "'pattern'" in lenient.post("/v1/messages", USER | {"output_format": form}).json()["warnings"][0]
        assert "warnings" not in lenient.post("/v1/chat/completions", USER | {"guided_json": SCHEMA}).json()
        lenient.post("/v1/chat/completions", USER | {"guided_json": {"type": "strin"}}).error(400, "guided_json")
