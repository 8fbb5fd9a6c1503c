"""Speech models through the Python package and the C API, with the tiny model (test_model compares its transcripts)."""
import asyncio
import ctypes as c
import os
import pathlib
import sys

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
sys.path.insert(0, str(SOURCE / "python"))

import ingot  # noqa: E402
from ingot import _library as lib  # noqa: E402

DATA = SOURCE / "tests" / "data"
TONE = DATA / "audio" / "tone.flac"


@pytest.fixture(scope="module")
def model():
    with ingot.Model.load(DATA / "speech", n_threads=1) as one:
        yield one


def test_a_recording(model):
    assert repr(model).endswith("(speech)>")
    found = model.transcribe(TONE, language="de")
    assert found.language == "german" and found.duration == 0.3 and found.words == []
    assert "".join(s.text for s in found.segments).strip(" \n\t\r") == found.text == str(found) and found.text
    assert model.transcribe(TONE.read_bytes(), language="german") == found
    assert asyncio.run(model.atranscribe(TONE, language="de")) == found


def test_words_translation_and_temperature(model):
    found = model.transcribe(TONE, language="de", word_times=True)
    assert found.words and all(0 <= w.start <= w.end and 0 < w.probability <= 1 for w in found.words)
    assert model.transcribe(TONE, translate=True, language="de").text != found.text
    hot = [model.transcribe(TONE, language="de", temperature=1.5, seed=seed) for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2] and {s.temperature for one in hot for s in one.segments} == {1.5}


def test_hotwords_and_beams(model):
    found = model.transcribe(TONE, language="de")
    assert model.transcribe(TONE, language="de", hotwords="bcd") == model.transcribe(TONE, language="de", prompt="bcd") != found
    with pytest.raises(ingot.InvalidError, match="room for 15"):
        model.transcribe(TONE, language="de", hotwords="b" * 15)
    with pytest.raises(ingot.InvalidError, match="opened for 1 to 1"):
        model.transcribe(TONE, language="de", beams=2)
    with ingot.Model.load(DATA / "speech", n_threads=1, beams=3) as wide:
        greedy, beams = (wide.transcribe(TONE, language="de", beams=n, temperature=0) for n in (1, 3))
        assert "" != greedy.text != beams.text != "" and wide.transcribe(TONE, language="de", beams=3, temperature=0) == beams
    with pytest.raises(ingot.InvalidError, match="n_beams is 65"):
        ingot.Model.load(DATA / "speech", beams=65)


def test_what_is_refused(model):
    for audio, says in ((b"", "empty"), (b"<html>", "this program reads"), (b"fLaC", "damaged FLAC")):
        with pytest.raises(ingot.InvalidError, match=says):
            model.transcribe(audio)
    with pytest.raises(ingot.InvalidError, match="klingon"):
        model.transcribe(TONE, language="klingon")
    with pytest.raises(ingot.InvalidError, match="use transcribe"):
        model.embed("x")
    with ingot.Model.load(DATA / "encoders" / "bert") as other, pytest.raises(ingot.InvalidError, match="makes vectors"):
        other.transcribe(TONE)


def test_the_c_api():
    kind, handle = c.c_int(), c.c_void_p()
    path = str(DATA / "speech").encode()
    lib.call("kind_of", path, c.byref(kind))
    assert kind.value == lib.KIND_SPEECH == 3
    lib.call("speech_load", path, None, c.byref(handle))
    text, n = c.c_void_p(), c.c_size_t()
    with pytest.raises(ingot.InvalidError, match="bytes is NULL"):
        lib.call("transcribe", handle, None, 5, None, c.byref(text), c.byref(n))
    data = TONE.read_bytes()
    lib.call("transcribe", handle, data, len(data), None, c.byref(text), c.byref(n))
    assert c.string_at(text, n.value).startswith(b'{"task":"transcribe"')
    lib.call("speech_free", handle)
    lib.call("speech_free", None)
    with pytest.raises(ingot.InvalidError, match="no such file"):
        lib.call("speech_load", b"/nowhere", None, c.byref(handle))
