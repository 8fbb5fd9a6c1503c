"""Answers go on while their conversation is not on the page, and after a reload of the page or a lost connection."""
import contextlib
import json
import os
import re
import subprocess
import time
import urllib.request

import pytest
from browser import ANSWER, COUNT, DONE, answer, browser, change_settings, needs_browser, ready, shot, stored, texts

pytestmark = needs_browser

WORDS = " ".join(f"word{i}" for i in range(60))
N = len(WORDS)  # the model's tokens are bytes


@contextlib.contextmanager
def writer(*options):
    """The address of a server whose model writes WORDS, a token in 4 ms."""
    command = [os.environ["INGOT_FAKE_SERVER"], "--max-seqs", "4", "--ctx", "4096", "--writes", WORDS, "--step-us", "4000", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:  # the test may have failed
            process.terminate()
    assert process.returncode == 0


class Address(str):
    """Of a server whose answers wait in their middle while the file `hold` exists."""


@pytest.fixture
def slow_server(tmp_path):
    hold = tmp_path / "hold"
    with writer("--hold", hold) as url:
        address = Address(url)
        address.hold = hold
        yield address
        hold.unlink(missing_ok=True)


def wait_idle(url):
    deadline = time.monotonic() + 20
    while not re.search(r"^ingot:num_requests_running\{[^}]*\} 0$", urllib.request.urlopen(url + "/metrics").read().decode(), re.M):
        assert time.monotonic() < deadline, "the server still writes"
        time.sleep(0.05)


def begin(page, text):
    page.ask(text)
    page.wait(f"{ANSWER} && {ANSWER}.querySelector('.body').innerText.startsWith('word0')")


def open_new(page):
    page.key("O", 79, modifiers=2 | 8)
    page.wait(f"{COUNT} === 0")


def open_titled(page, title):
    page.js(f"[...document.querySelectorAll('#list .open')].find(b => b.title === {json.dumps(title)}).click()")
    page.wait(f"document.getElementById('title').innerText === {json.dumps(title)}")


def test_another_conversation_does_not_end_the_answer(slow_server, browser, shot):
    slow_server.hold.touch()
    page = ready(browser.page(slow_server))
    change_settings(page, max_tokens=str(N))
    begin(page, "First?")
    open_new(page)
    assert page.js("document.getElementById('send').getAttribute('aria-label')") == "Send", "this conversation has no answer"
    begin(page, "Second?")
    assert texts(page, "#list li.written .open") == ["Second?", "First?"], "the list says which are being written"
    names = page.js("[...document.querySelectorAll('#list .sign')].map(s => s.getAttribute('aria-label'))")
    assert names == ["An answer is being written in"] * 2
    shot(page, "two-answers")
    open_titled(page, "First?")
    page.wait(f"document.querySelector('.busy') && {ANSWER}.querySelector('.body').innerText.startsWith('word0')")
    slow_server.hold.unlink()
    page.wait(DONE)
    assert answer(page) == WORDS
    page.wait("document.querySelectorAll('#list li.written').length === 0")
    open_titled(page, "Second?")
    assert answer(page) == WORDS
    assert sorted(c["messages"][1]["content"] for c in stored(page)) == [WORDS, WORDS]
    assert page.complaints() == []


def test_a_reload_gets_the_answer_again(slow_server, browser):
    """Of the conversation on the page and of another."""
    slow_server.hold.touch()
    page = ready(browser.page(slow_server))
    change_settings(page, max_tokens=str(N))
    begin(page, "First?")
    open_new(page)
    begin(page, "Second?")
    page.reload()
    ready(page)
    page.wait("document.querySelectorAll('#list li.written').length === 2 && document.querySelector('.busy')")
    slow_server.hold.unlink()
    page.wait(f"{DONE} && document.querySelectorAll('#list li.written').length === 0")
    assert answer(page) == WORDS and "tokens" in texts(page, ".stats")[-1]
    open_titled(page, "First?")
    assert answer(page) == WORDS and "not finished" not in texts(page, ".stats")[-1]
    assert all("run" not in m for c in stored(page) for m in c["messages"])
    assert page.complaints() == []


def test_a_reload_goes_on_with_a_continued_answer(slow_server, browser):
    """What the message had before stays before what the server has kept."""
    page = ready(browser.page(slow_server))
    change_settings(page, max_tokens="20")
    page.ask("First?")
    page.wait(f"{DONE} && {ANSWER}.innerText.includes('cut at the token limit')")
    change_settings(page, max_tokens=str(N - 20))
    slow_server.hold.touch()
    page.press(".tools button", "Continue")
    page.wait(f"document.querySelector('.busy') && {ANSWER}.querySelector('.body').innerText.length > 60")
    page.reload()
    ready(page)
    slow_server.hold.unlink()
    page.wait(f"{DONE} && {ANSWER}.querySelector('.body').innerText.length >= {N}")
    assert answer(page) == WORDS
    assert page.complaints() == []


def test_a_connection_that_breaks_is_made_again(slow_server, browser):
    page = ready(browser.page(slow_server))
    change_settings(page, max_tokens=str(N))
    page.js("""(() => {  // the answer's stream breaks after some bytes
      const real = window.fetch;
      window.fetch = async (url, options) => {
        const response = await real(url, options);
        if (!url.endsWith('/chat/completions')) return response;
        let n = 0;
        const breaking = new TransformStream({transform(bytes, c) { (n += bytes.length) > 6000 ? c.error(new TypeError('network error')) : c.enqueue(bytes); }});
        return new Response(response.body.pipeThrough(breaking), {status: 200});
      };
    })()""")
    page.ask("First?")
    page.wait(f"{DONE} && {ANSWER}.querySelector('.body').innerText.length >= {N}")
    assert answer(page) == WORDS and not page.js("!!document.querySelector('.error')")
    assert page.js("performance.getEntriesByType('resource').filter(r => r.name.includes('/answers/')).length") == 1


def test_stopping_ends_the_answer_in_the_server(slow_server, browser):
    """Also if its conversation is deleted from the list."""
    page = ready(browser.page(slow_server))
    begin(page, "First?")
    page.key("Escape", 27)
    page.wait("!document.querySelector('.busy')")
    wait_idle(slow_server)
    begin(page, "Second?")
    open_new(page)
    page.click("#list .delete")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.press("dialog.ask button", "Delete")
    page.wait("document.querySelectorAll('#list li').length === 0")
    wait_idle(slow_server)
    assert stored(page) == [] and page.complaints() == []


def test_two_tabs(slow_server, browser):
    """The second tab shows what the first one writes, and does not write it too."""
    slow_server.hold.touch()
    page = ready(browser.page(slow_server))
    change_settings(page, max_tokens=str(N))
    begin(page, "First?")
    address = page.js("location.href")
    other = ready(browser.page(address, beside=page))
    other.wait(f"{COUNT} === 2 && document.querySelectorAll('#list li.written').length === 1")
    other.ask("Second?")
    other.wait("document.querySelector('.toast')?.innerText.includes('Another tab is writing')")
    slow_server.hold.unlink()
    page.wait(DONE)
    other.wait(f"{ANSWER}.querySelector('.body').innerText === {json.dumps(WORDS)} && document.querySelectorAll('#list li.written').length === 0")
    assert not [r for r in other.requests() if "/answers/" in r]
    page.click("#list .rename")
    page.wait("document.querySelector('dialog.ask[open] input')")
    page.type("Renamed over there")
    page.key("Enter", 13)
    other.wait("document.getElementById('title').innerText === 'Renamed over there'")
    page.click("#list .delete")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.press("dialog.ask button", "Delete")
    other.wait("document.querySelectorAll('#list li').length === 0")
    assert page.complaints() == other.complaints() == []
