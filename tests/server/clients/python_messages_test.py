"""The Python package checks messages as the HTTP server does: both accept drawn lists of messages, or both refuse them
in the same words."""

import os
import pathlib
import sys

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
from ingot import InvalidError, Model  # noqa: E402

CONTENTS = [
    "hi",
    "",
    None,
    3,
    {"a": 1},
    ["x"],
    [],
    [{"type": "text", "text": "hi"}],
    [{"type": "text"}],
    [{"text": "hi"}],
    [{"type": "image_url", "image_url": {"url": "x"}}],
    [{"type": "text", "text": 3}],
]
ROLES = ["user", "assistant", "system", "developer", "tool", "usr", "", 3, None]
CALLS = [None, [], "x", ["x"], [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]]


def message(draw):
    """Mostly a good one, with any of the faults."""
    if draw.random() < 0.05:
        return draw.choice(["x", 3, None, []])
    made = {"role": draw.choice(ROLES) if draw.random() < 0.2 else draw.choice(ROLES[:4])}
    if draw.random() < 0.9:
        made["content"] = draw.choice(CONTENTS) if draw.random() < 0.3 else "hi"
    for name, values, share in [
        ("tool_calls", CALLS, 0.2),
        ("reasoning_content", ["", "hm", None], 0.1),
        ("audio", [{}, None], 0.03),
        ("function_call", [{"name": "f"}, None], 0.03),
        ("name", ["Ann", None], 0.1),
    ]:
        if draw.random() < share:
            made[name] = draw.choice(values)
    if draw.random() < 0.05:
        del made["role"]
    return made


@pytest.fixture(scope="module")
def model():
    with Model.load(SOURCE / "models" / "demo.gguf", n_ctx=256, n_threads=1) as made:
        yield made


def test_both_say_the_same(server, model, draw):
    refused = 0
    for _ in range(300):
        messages = [message(draw) for _ in range(draw.randrange(1, 4))]
        reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
        try:
            model.chat(messages, max_tokens=1)
            said = None
        except InvalidError as error:
            said = str(error)
        if reply.status == 200:
            assert said is None, (messages, said)
        else:
            refused += 1
            assert said is not None and reply.status == 400, (messages, reply.body)
            assert said == reply.json()["error"]["message"], messages
    assert 50 < refused < 290
