"""The microphone of the page: the browser hears a file, and the tiny speech model writes something down."""
import struct
import sys

import pytest
from browser import Browser, needs_browser, ready, shot  # noqa: F401
from conftest import SOURCE, running

sys.path.insert(0, str(SOURCE / "tests/server/api"))
from speech_test import wav  # noqa: E402

pytestmark = needs_browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A server with both kinds of models, and a browser whose microphone plays a file."""
    sound = tmp_path_factory.mktemp("sound") / "speech.wav"
    floats = wav(3)[44:]  # Chromium plays PCM of 16 bits
    pcm = struct.pack(f"<{len(floats) // 4}h", *(int(20000 * x) for x in struct.unpack(f"<{len(floats) // 4}f", floats)))
    form = struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
    sound.write_bytes(b"RIFF" + struct.pack("<I", 36 + len(pcm)) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(pcm)) + pcm)
    browser = Browser("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={sound}")
    with running(SOURCE / "models/demo.gguf", SOURCE / "tests/data/speech") as server:
        yield browser, server
    browser.close()


def test_speech_becomes_text_of_the_box(pages, shot):  # noqa: F811
    browser, server = pages
    page = ready(browser.page(server.url))
    assert page.js("[...document.getElementById('model').options].length") == 1, "a speech model writes no answers"
    page.js("document.getElementById('prompt').value = 'Before.'")
    page.click("#microphone")
    page.wait("document.getElementById('microphone').dataset.state === 'on'")
    shot(page, "microphone_on")
    page.js("new Promise(done => setTimeout(done, 1500))")
    page.click("#microphone")
    page.wait("document.getElementById('microphone').dataset.state === 'off'")
    text = page.js("document.getElementById('prompt').value")
    assert text.startswith("Before. ") and len(text) > len("Before. ")
    shot(page, "microphone_text")
    assert page.complaints() == []


def test_without_a_speech_model_there_is_no_button(pages):
    browser, _ = pages
    with running(SOURCE / "models/demo.gguf") as server:
        page = ready(browser.page(server.url))
        assert page.js("document.getElementById('microphone').hidden")
