"""The routes for recordings, with the tiny speech model, whose transcripts transformers wrote (test_model compares
them): the forms of answers, streams, other models beside, and forms that are wrong."""
import struct
import threading

import pytest
from conftest import SOURCE, form_body, running

DATA = SOURCE / "tests" / "data"
PATH = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def server():
    with running(DATA / "speech", "--audio-max-seconds", 20) as one:
        yield one


def wav(seconds=1.0, rate=16000):
    """The sound of tools/goldens/make_speech.py, as a file of floats."""
    samples, state = [], 1
    for i in range(int(seconds * rate)):
        state = (state * 1103515245 + 12345) % 2**31
        noise = (state >> 8) % 4096 / 4096 - 0.5
        samples.append((1 + i // 2400 % 5) / 16 * (noise + (0.25 if i // (20 + i // 4800 % 7 * 8) % 2 else -0.25)))
    data = struct.pack(f"<{len(samples)}f", *samples)
    form = struct.pack("<IHHIIHH", 16, 3, 1, rate, rate * 4, 4, 32)
    return (b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data))
            + data)


def send(server, path=PATH, **fields):
    fields = {"file": wav(), "language": "de"} | fields
    body, kind = form_body({name: value for name, value in fields.items() if value is not None})
    return server.request("POST", path, body, {"Content-Type": kind})


def test_the_formats_say_the_same(server):
    verbose = send(server, response_format="verbose_json").json()
    assert verbose["task"] == "transcribe" and verbose["language"] == "german" and verbose["duration"] == 1
    assert [s["id"] for s in verbose["segments"]] == list(range(len(verbose["segments"]))) and verbose["segments"]
    assert all(0 <= s["start"] <= s["end"] <= 1.6 for s in verbose["segments"])
    text = "".join(s["text"] for s in verbose["segments"]).strip(" \n\t\r")
    assert verbose["text"] == text
    assert send(server).json() == {"text": text}
    plain = send(server, response_format="text")
    assert plain.body.decode() == text + "\n" and plain.headers["Content-Type"].startswith("text/plain")
    srt, vtt = (send(server, response_format=name).body.decode() for name in ("srt", "vtt"))
    assert srt.startswith("1\n00:00:0") and vtt.startswith("WEBVTT\n\n00:00:0")
    assert srt.count(" --> ") == vtt.count(" --> ") == len(verbose["segments"])


def test_times_of_words(server):
    words = send(server, response_format="verbose_json", **{"timestamp_granularities[]": "word"}).json()
    plain = send(server, response_format="verbose_json").json()
    assert words["segments"] == plain["segments"] and "words" not in plain
    assert all(0 <= w["start"] <= w["end"] <= 1.2 and 0 <= w["probability"] <= 1 for w in words["words"]) and words["words"]
    assert "".join(w["word"] for w in words["words"]).replace(" ", "") == plain["text"].replace(" ", "").replace("\n", "")


def test_a_stream_adds_up_to_the_text(server):
    reply = send(server, stream="true")
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    events = reply.events()
    assert [e["type"] for e in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1) and len(events) > 1
    assert events[-1] == {"type": "transcript.text.done", "text": send(server).json()["text"]}
    assert "".join(e["delta"] for e in events[:-1]).rstrip(" \n\t\r") == events[-1]["text"]


def test_translations_and_the_server_of_whisper_cpp(server):
    translated = send(server, "/v1/audio/translations", response_format="verbose_json").json()
    assert translated["task"] == "translate"
    assert send(server, translate="true", path="/inference").json()["text"] == translated["text"]
    assert send(server, path="/inference", response_format="srt").body == send(server, response_format="srt").body
    found = send(server, path="/inference", language="auto", response_format="verbose_json").json()
    assert found["language"] in ("english", "chinese", "german")


def test_fields_of_openais_clients(server):
    whole = send(server).json()
    assert send(server, model="whisper-1", temperature="0", **{"timestamp_granularities[]": "segment"}).json() == whole
    hot = [send(server, temperature="1.5").json() for _ in range(2)]
    assert hot[0] == hot[1] != whole
    assert send(server, hotwords="bcd").json() == send(server, prompt="bcd").json() != whole


@pytest.mark.parametrize("fields, param, says", [
    ({"file": None}, "file", "missing"),
    ({"file": b""}, "file", "empty"),
    ({"file": b"<!DOCTYPE html><html>"}, "file", "web page"),
    ({"file": b"fLaC"}, "file", "damaged FLAC"),
    ({"response_format": "xml"}, "response_format", "must be json, text, srt, vtt or verbose_json"),
    ({"temperature": "warm"}, "temperature", "number from 0 to 2"),
    ({"temperature": "3"}, "temperature", "number from 0 to 2"),
    ({"language": "klingon"}, None, "does not know the language klingon"),
    ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "verbose_json"),
    ({"hotwords": "b" * 15}, None, "room for 15"),
    ({"stream": "perhaps"}, "stream", "true or false"),
    ({"stream": "true", "response_format": "srt"}, "stream", "json and text only"),
    ({"include": "logprobs"}, "include", "not supported"),
])
def test_wrong_fields_are_named(server, fields, param, says):
    error = send(server, **fields).error(400, param)
    assert says in error["message"], error


def test_long_recordings_are_refused(server):
    assert "longer than 20 seconds" in send(server, file=wav(21, rate=2000)).error(400, "file")["message"]


def test_bodies_that_are_no_form(server):
    body, kind = form_body({"file": wav()})
    for broken, at in ((body[:-40], kind), (b"", kind), (body, kind.replace("0f7e3b", "other")),
                       (body, "multipart/form-data")):
        server.request("POST", PATH, broken, {"Content-Type": at}).error(400)
    server.request("POST", PATH, "{}", {"Content-Type": "application/json"}).error(415)
    server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}).error(400, "model")


def test_requests_at_once_and_clients_that_leave(server):
    expected = send(server).json()
    got = []
    threads = [threading.Thread(target=lambda: got.append(send(server).json())) for _ in range(6)]
    for thread in threads:
        thread.start()
    body, kind = form_body({"file": wav(19), "language": "de"})
    connection = server.connection()
    connection.request("POST", PATH, body, {"Content-Type": kind})
    connection.close()
    for thread in threads:
        thread.join()
    assert got == [expected] * 6


def test_pages_of_a_speech_model(server):
    for path in ("/metrics", "/health", "/v1/models", "/props", "/slots", "/api/tags", "/api/ps"):
        assert server.get(path).status == 200, path
    model = server.get("/v1/models").json()["data"][0]
    assert model["architecture"] == {"input_modalities": ["audio"], "output_modalities": ["text"]}
    assert server.post("/tokenize", {"content": "ab"}).json()["tokens"]


def test_one_server_hears_and_writes():
    with running(DATA / "speech", SOURCE / "models" / "demo.gguf") as both:
        assert {m["id"] for m in both.get("/v1/models").json()["data"]} == {"speech", "demo"}
        text = send(both, model="whisper-1").json()["text"]
        assert text == send(both, model=None).json()["text"] == send(both, model="speech").json()["text"]
        assert both.chat(model="gpt-4o", max_tokens=3).status == 200
        assert "transcribes recordings" in both.chat(model="speech").error(400, "model")["message"]
        assert "needs a speech model" in send(both, model="demo").error(400, "model")["message"]
