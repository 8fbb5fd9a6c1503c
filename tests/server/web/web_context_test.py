"""The model's context on the page: the meter, the turns that are left out when it is full, and answers that fill it."""
import contextlib
import os
import subprocess

import pytest
from browser import ANSWER, COUNT, DONE, RECORD, answer, browser, change_settings, needs_browser, ready, shot, texts

pytestmark = needs_browser

N_CTX = 1200
TEXT = "An answer of some length, whose bytes are its tokens. " * 40


@pytest.fixture(scope="module")
def small():
    """The address of a server whose tokens are bytes and whose context has 1200 of them."""
    command = [os.environ["INGOT_FAKE_SERVER"], "--max-seqs", "4", "--ctx", str(N_CTX), "--writes", TEXT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:  # the test may have failed
            process.terminate()
    assert process.returncode == 0


def ask(page, text):
    n = page.js(COUNT)
    page.ask(text)
    page.wait(f"{COUNT} === {n + 2} && {DONE}")


def meter(page):
    return page.js("document.querySelector('#context').hidden ? null : document.querySelector('#context .count').innerText")


def tokens_of(messages):
    """ChatML's bytes, with two control tokens a message: the model's vocabulary is bytes."""
    return len("".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n")


def test_the_meter_shows_what_the_server_counted(small, browser):
    page = ready(browser.page(small))
    change_settings(page, max_tokens="50")
    assert meter(page) is None
    ask(page, "First question?")
    n = tokens_of([{"role": "user", "content": "First question?"}]) + 50
    assert meter(page) == f"{n:,} of {N_CTX:,} tokens"
    assert page.js("document.getElementById('context').getAttribute('aria-valuenow')") == str(round(100 * n / N_CTX))
    page.reload()
    ready(page)
    page.wait("!document.getElementById('context').hidden")
    assert meter(page) == f"{n:,} of {N_CTX:,} tokens"
    page.key("O", 79, modifiers=2 | 8)
    page.wait(f"{COUNT} === 0")
    assert meter(page) is None and page.complaints() == []


def test_the_oldest_turns_are_left_out(small, browser, shot):
    """Every request fits, the system prompt and the newest turns stay, and a line says what the model no longer sees."""
    page = ready(browser.page(small))
    change_settings(page, max_tokens="60", system="Be brief.")
    page.js(RECORD)
    for i in range(14):
        ask(page, f"This is the question with the number {i}.")
    assert page.js("document.querySelectorAll('.error').length") == 0
    seen = []
    for i, sent in enumerate(page.js("asked")):
        messages = sent["messages"]
        assert messages[0] == {"role": "system", "content": "Be brief."} and messages[-1]["content"].endswith(f"number {i}.")
        assert messages[1]["role"] == "user", "whole turns are left out"
        assert tokens_of(messages) + 60 <= N_CTX
        seen.append(len(messages) // 2)
    assert seen[:2] == [1, 2] and seen[-1] < 14
    begins = [i + 1 - n for i, n in enumerate(seen)]
    assert begins == sorted(begins) and len(set(begins)) < 6, "the same beginning serves several questions, for the cache"
    left_out = begins[-1]
    assert texts(page, ".omitted") == [f"The context is full: the model no longer sees the {left_out} turns above."]
    assert page.js("document.querySelector('.omitted').nextSibling.querySelector('.body').innerText") == f"This is the question with the number {left_out}."
    shot(page, "left-out")
    page.reload()
    ready(page)
    page.wait("document.querySelectorAll('.omitted').length === 1")
    assert page.complaints() == []


def test_an_answer_that_fills_the_context_makes_room_for_its_end(small, browser):
    page = ready(browser.page(small))
    change_settings(page, max_tokens="60")
    ask(page, "A first question that will be left out.")
    change_settings(page, max_tokens="")
    ask(page, "The second.")
    page.wait(f"{ANSWER}.innerText.includes('cut at the token limit')")
    assert "Continue" in texts(page, ".tools button")
    n = len(answer(page))
    page.press(".tools button", "Continue")
    page.wait(f"{DONE} && {ANSWER}.querySelector('.body').innerText.length > {n}")
    assert not page.js("!!document.querySelector('.error')") and texts(page, ".omitted") == ["The context is full: the model no longer sees the turn above."]
    # Now the answer's own turn fills the context alone: going on can only fail, so it is not offered.
    page.wait(f"{ANSWER}.innerText.includes('cut, because the context is full')")
    assert "Continue" not in texts(page, ".tools button")
    page.reload()
    ready(page)
    page.wait(f"{ANSWER}.innerText.includes('cut, because the context is full')")
    assert "Continue" not in texts(page, ".tools button")
    ask(page, "And a next question?")
    assert not page.js("!!document.querySelector('.error')"), "it is no dead end"
    assert page.complaints() == []


def test_a_question_that_is_too_long_alone(small, browser):
    page = ready(browser.page(small))
    page.ask("x" * 1300)
    page.wait("document.querySelector('.message .error')")
    message = page.js("document.querySelector('.message .error').innerText")
    n = tokens_of([{"role": "user", "content": "x" * 1300}])
    assert f"has {n:,} tokens" in message and f"only {N_CTX:,}" in message and "Shorten" in message
    assert "Continue" not in texts(page, ".tools button")
    change_settings(page, max_tokens="20")
    ask(page, "A short one?")
    assert texts(page, ".message:last-child .error") == [] and page.complaints() == []
