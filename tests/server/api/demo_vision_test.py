"""The built-in model demo-vision answers questions about pictures that its training never drew, in three APIs."""
import base64
import sys

import pytest
from conftest import SOURCE, running

sys.path.insert(0, str(SOURCE / "tests/server"))
from seen import PICTURES, check  # noqa: E402

GREEDY = {"temperature": 0, "max_tokens": 150}


@pytest.fixture(scope="module")
def seeing():
    with running("demo-vision") as made:
        yield made


def text_of(path):
    return base64.b64encode(path.read_bytes()).decode()


def test_openai(seeing):
    def ask(path, question):
        parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + text_of(path)}}, {"type": "text", "text": question}]
        reply = seeing.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]} | GREEDY)
        assert reply.status == 200, reply.body
        return reply.json()["choices"][0]["message"]["content"]
    check(ask)


def test_anthropic(seeing):
    def ask(path, question):
        source = {"type": "base64", "media_type": "image/png", "data": text_of(path)}
        parts = [{"type": "image", "source": source}, {"type": "text", "text": question}]
        reply = seeing.post("/v1/messages", {"model": "demo-vision", "messages": [{"role": "user", "content": parts}]} | GREEDY)
        assert reply.status == 200, reply.body
        return reply.json()["content"][0]["text"]
    check(ask)


def test_ollama(seeing):
    def ask(path, question):
        messages = [{"role": "user", "content": question, "images": [text_of(path)]}]
        reply = seeing.post("/api/chat", {"model": "demo-vision", "messages": messages, "stream": False,
                                          "options": {"temperature": 0, "num_predict": 150}})
        assert reply.status == 200, reply.body
        return reply.json()["message"]["content"]
    check(ask)


def test_the_model_says_how_boxes_are_scaled(seeing):
    model = seeing.get("/v1/models").json()["data"][0]
    assert model["id"] == "demo-vision" and model["images"]["boxes"] == {"unit": "thousandths"}


def test_it_knows_that_there_is_no_picture(seeing):
    reply = seeing.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "What do you see?"}]} | GREEDY)
    assert reply.json()["choices"][0]["message"]["content"].strip() == "I see no picture."


def test_a_conversation_goes_on_about_the_picture(seeing):
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + text_of(PICTURES / "00.png")}},
             {"type": "text", "text": "Count the shapes."}]
    messages = [{"role": "user", "content": parts}]
    first = seeing.post("/v1/chat/completions", {"messages": messages} | GREEDY).json()
    messages += [first["choices"][0]["message"], {"role": "user", "content": "What colour is the background?"}]
    second = seeing.post("/v1/chat/completions", {"messages": messages} | GREEDY).json()
    assert second["choices"][0]["message"]["content"].strip() == "White."
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 64, "the picture is cached"
