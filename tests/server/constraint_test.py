"""Answers that follow a schema, a regular expression, a choice or a grammar: exactly, or the request is refused; never ignored."""
import json
import re

import pytest

USER = {"messages": [{"role": "user", "content": "What is your name?"}], "max_tokens": 300}
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12}, "age": {"type": "integer", "minimum": 3, "maximum": 120},
                         "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "minItems": 1, "maxItems": 2}}}


def check(text):
    """What SCHEMA says, by hand."""
    got = json.loads(text)
    assert list(got) == ["name", "age", "tags"] and 1 <= len(got["name"]) <= 12
    assert type(got["age"]) is int and 3 <= got["age"] <= 120
    assert 1 <= len(got["tags"]) <= 2 and set(got["tags"]) <= {"a", "bc"}


FORMATS = [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
           {"structured_outputs": {"json": SCHEMA}}, {"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"json_schema": SCHEMA}]


@pytest.mark.parametrize("fields", FORMATS)
def test_every_answer_follows_the_schema(server, draw, fields):
    """At any temperature, each of n choices, and streamed."""
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
            continue  # the model could go on, and did
        assert re.fullmatch(pattern, choice["message"]["content"]), choice
    assert server.post("/v1/chat/completions", USER | fields | {"max_tokens": 1}).json()["choices"][0]["finish_reason"] in ("length", "stop")


def test_the_end_comes_where_the_text_is_whole(server):
    """Also for who would go on behind an end, and with stop strings, biases and log-probabilities beside it."""
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
    ({"guided_choice": []}, "guided_choice", []), ({"guided_choice": ["a"], "guided_regex": "b"}, "guided_choice", ["one of them"]),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", []), ({"structured_outputs": {"other": 1}}, "structured_outputs", []),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema", ["missing"]),
])
def test_what_cannot_be_enforced_is_refused(server, fields, param, words):
    error = server.post("/v1/chat/completions", USER | fields).error(400, param)
    for word in words:
        assert word in error["message"]


def test_forced_text_takes_no_draws(server):
    """The names of members: counted as tokens like others, and the answer is one of the schema. Log-probabilities are of draws."""
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
    """Wherever it falls, in forced text and in strings: what there is begins the whole answer."""
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
