"""Recordings in the requests of each API, on a tiny model with ears (tests/data/ears). The oracle is transformers: tokens
and logits of the model's goldens.json."""
import json
import math
import sys

import pytest
from conftest import SOURCE, running

sys.path.insert(0, str(SOURCE / "tests/server"))
from drawn import base64_of  # noqa: E402
from sounds import wav  # noqa: E402

MODEL = SOURCE / "tests/data/ears/voxtral"
# The parts of the messages, one after another, as the goldens' texts have them.
TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
            "{% if c.type == 'audio' %}[BEGIN_AUDIO][AUDIO]{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
AUDIO_TOKEN = 260


def recording(data):
    return {"type": "input_audio", "input_audio": {"data": base64_of(data), "format": "wav"}}


NOISE = wav(3000)


@pytest.fixture(scope="module")
def hearing():
    with running("--chat-template", TEMPLATE, "--kv-type", "f32", "--image-count", 3, "--audio-max-seconds", 2, MODEL) as made:
        yield made


def chat(server, content, **fields):
    return server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 1} | fields)


def test_tokens_and_logits_are_those_of_transformers():
    """A request cannot write the control tokens of the goldens' texts, so the template is the text."""
    for prompt in json.loads((MODEL / "goldens.json").read_text())["prompts"]:
        with running("--chat-template", prompt["text"] + "{# the messages are not shown #}", "--kv-type", "f32", MODEL) as made:
            content = [recording(wav(n, seed)) for n, seed in prompt["sounds"]]
            body = {"messages": [{"role": "user", "content": content}]}
            assert made.post("/tokenize", body).json()["tokens"] == prompt["tokens"]
            assert prompt["logit_rows"][-1] == len(prompt["tokens"]) - 1
            logits = prompt["logits"][-1]
            normal = math.log(sum(math.exp(v) for v in logits))
            reply = chat(made, content, temperature=0, logprobs=True, top_logprobs=5)
            assert reply.status == 200, reply.body
            best = sorted(logits, reverse=True)[:5]
            for top, expected in zip(reply.json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"], best):
                assert top["logprob"] == pytest.approx(expected - normal, abs=0.1)


def test_all_apis_make_the_same_prompt(hearing):
    data = base64_of(NOISE)
    both = [recording(NOISE), {"type": "text", "text": "what?"}]
    usage = chat(hearing, both).json()["usage"]
    n = usage["prompt_tokens"]
    tokens = hearing.post("/tokenize", {"messages": [{"role": "user", "content": both}]}).json()["tokens"]
    assert n == len(tokens) and usage["prompt_tokens_details"]["audio_tokens"] == tokens.count(AUDIO_TOKEN) == 6
    url = {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + data}}
    assert chat(hearing, [url, {"type": "text", "text": "what?"}]).json()["usage"]["prompt_tokens"] == n
    given = [{"role": "user", "content": [recording(NOISE), {"type": "input_text", "text": "what?"}]}]
    assert hearing.post("/v1/responses", {"input": given, "max_output_tokens": 1}).json()["usage"]["input_tokens"] == n
    options = {"stream": False, "options": {"num_predict": 1}}
    asked = {"messages": [{"role": "user", "content": "what?", "images": [data]}]}
    assert hearing.post("/api/chat", options | asked).json()["prompt_eval_count"] == n
    assert hearing.post("/api/generate", options | {"prompt": "what?", "images": [data]}).json()["prompt_eval_count"] == n


def test_the_second_turn_encodes_nothing_and_finds_its_prefix(hearing):
    content = [recording(wav(20000, 9)), {"type": "text", "text": "one"}]
    first = chat(hearing, content).json()["usage"]
    encoded = hearing.metric("images_encoded_total")
    again = chat(hearing, content + [{"type": "text", "text": "two"}]).json()["usage"]
    assert hearing.metric("images_encoded_total") == encoded
    assert again["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] // 16 * 16 > 0
    # Another recording of the same length has the same tokens, but shares nothing.
    other = chat(hearing, [recording(wav(20000, 10)), {"type": "text", "text": "one"}]).json()["usage"]
    assert other["prompt_tokens"] == first["prompt_tokens"] and other["prompt_tokens_details"]["cached_tokens"] < 16


def test_bad_recordings(hearing):
    def error(*content):
        return chat(hearing, list(content)).error(400)["message"]
    data = {"type": "input_audio", "input_audio": {"format": "wav", "data": "%%"}}
    where = "messages[0].content[0]"
    assert error(data) == f"{where} is not Base64"
    assert error({"type": "input_audio"}).startswith(f"{where}.input_audio must be an object")
    assert f"{where}: the audio is an unknown kind of file" in error(recording(b"what is this?"))
    assert f"{where}: the audio has no samples" in error(recording(wav(0)))
    assert f"{where}: the audio is longer than" in error(recording(wav(33000)))
    assert "has more than 3 images and recordings" in error(*[recording(wav(10))] * 4)
    for url, why in {"file:///etc/passwd": "which this server does not read", "https://example.org/a.wav": "which this server does not fetch",
                     "data:audio/wav,raw": "must be a data URL in Base64: data:audio/wav", "": "is empty"}.items():
        assert why in error({"type": "audio_url", "audio_url": {"url": url}})
    assert "images are not supported; this model reads text and recordings only" in error({"type": "image_url", "image_url": {"url": "data:,"}})
    wrong = {"messages": [{"role": "system", "content": [recording(NOISE)]}]}
    assert "recordings belong in messages of the role user or tool" in hearing.post("/v1/chat/completions", wrong).error(400)["message"]
    block = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    anthropic = {"max_tokens": 1, "messages": [{"role": "user", "content": [block]}]}
    assert "images are not supported by this model" in hearing.post("/v1/messages", anthropic).json()["error"]["message"]


def test_a_long_prompt_names_its_recordings():
    with running("--chat-template", TEMPLATE, "-c", 64, MODEL) as made:
        error = chat(made, [recording(wav(90000))]).error(400)
        assert error["code"] == "context_length_exceeded" and "of them for 1 recording)" in error["message"]


def test_the_model_says_that_it_hears(hearing):
    listed = hearing.get("/v1/models").json()["data"][0]
    assert listed["architecture"]["input_modalities"] == ["text", "audio"] and listed["recordings"]["max_seconds"] == 2
    assert hearing.get("/props").json()["modalities"] == {"vision": False, "audio": True}
    assert "audio" in hearing.post("/api/show", {"model": listed["id"]}).json()["capabilities"]


def test_a_model_of_text_refuses_recordings():
    with running("demo") as made:
        error = chat(made, [recording(NOISE)]).error(400)
        assert error["message"] == "messages[0].content[0]: recordings are not supported; this model reads text only"
