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
    floats = wav(2)[44:]  # Chromium plays PCM of 16 bits
    voice = [int(20000 * x) for x in struct.unpack(f"<{len(floats) // 4}f", floats)]
    samples = [3, -3] * 8000 + voice + [3, -3] * 12000  # between pauses, so that a turn ends
    pcm = struct.pack(f"<{len(samples)}h", *samples)
    form = struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
    sound.write_bytes(b"RIFF" + struct.pack("<I", 36 + len(pcm)) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(pcm)) + pcm)
    browser = Browser("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={sound}")
    with running(SOURCE / "models/demo.gguf", SOURCE / "tests/data/speech") as server:
        yield browser, server
    browser.close()


BOX = "document.getElementById('prompt').value"
STATE = "document.getElementById('microphone').dataset.state"


def test_speech_becomes_text_of_the_box(pages, shot):  # noqa: F811
    browser, server = pages
    page = ready(browser.page(server.url))
    assert page.js("[...document.getElementById('model').options].length") == 1, "a speech model writes no answers"
    page.js(f"{BOX} = 'Before.'")
    page.click("#microphone")
    page.wait(f"{STATE} === 'on'")
    page.wait(f"{BOX}.length > 'Before. '.length")  # while the microphone is on
    assert page.js(STATE) == "on"
    shot(page, "microphone_on")
    page.click("#microphone")
    page.wait(f"{STATE} === 'off'")
    assert page.js(BOX).startswith("Before. ")
    shot(page, "microphone_text")
    assert page.complaints() == []


# A session in the page's place of WebSocket: the test says what the server sends, and sees what the page sends.
FAKE = """(() => {
  window.sent = [];
  window.WebSocket = class extends EventTarget {
    static OPEN = 1;
    constructor(url, protocols) { super(); window.socket = this; this.url = url; this.protocols = protocols; this.readyState = 1; setTimeout(() => this.onopen()); }
    send(text) { window.sent.push(JSON.parse(text).type.split('.').at(-1)); }
    close() { this.onclose?.({reason: ''}); }
  };
  window.tell = (type, more) => window.socket.onmessage({data: JSON.stringify({type, ...more})});
  window.said = (what, item_id, text) => window.tell('conversation.item.input_audio_transcription.' + what, {item_id, delta: text, transcript: text});
})()"""


def test_partial_results_grow_and_edits_stay(pages):
    browser, server = pages
    page = ready(browser.page(server.url))
    page.js(FAKE)
    page.click("#microphone")
    page.wait(f"{STATE} === 'on'")
    assert page.js("String(socket.url)").endswith("/v1/realtime?intent=transcription") and page.js("socket.protocols[0]") == "realtime"
    page.wait("sent.length > 2")
    assert page.js("sent[0]") == "append"
    seen = []
    for step in ("said('delta', 'a', 'The har')", "said('delta', 'a', 'bor')", "said('completed', 'a', 'The harbor.')", "said('delta', 'b', 'It was')",
                 f"{BOX} += ', note:'", "said('delta', 'b', ' quiet')", "said('completed', 'b', 'It was quiet.')", "said('delta', 'c', 'Then')"):
        page.js(step)
        seen.append(page.js(BOX))
    assert seen == ["The har", "The harbor", "The harbor.", "The harbor. It was", "The harbor. It was, note:", "The harbor. It was, note: quiet",
                    "The harbor. It was, note: quiet", "The harbor. It was, note: quiet Then"]
    page.click("#microphone")
    page.wait(f"{STATE} === 'busy'")
    assert page.js("sent.slice(-2).join()") == "commit,clear"
    page.js("said('completed', 'c', 'Then not.'); tell('input_audio_buffer.cleared')")
    page.wait(f"{STATE} === 'off'")
    assert page.js(BOX) == "The harbor. It was, note: quiet Then not."


def test_faults_of_a_session_are_shown(pages):
    browser, server = pages
    page = ready(browser.page(server.url))
    page.js(FAKE)
    page.click("#microphone")
    page.wait(f"{STATE} === 'on'")
    page.js("tell('error', {error: {message: 'no more'}})")
    page.wait(f"{STATE} === 'off'")
    assert "no more" in page.js("document.body.innerText")


def test_without_a_speech_model_there_is_no_button(pages):
    browser, _ = pages
    with running(SOURCE / "models/demo.gguf") as server:
        page = ready(browser.page(server.url))
        assert page.js("document.getElementById('microphone').hidden")
