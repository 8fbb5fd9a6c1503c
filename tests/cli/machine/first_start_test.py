"""`ingot` alone: at a terminal a menu, elsewhere the help."""

import os
import resource
import subprocess

import pytest
from fake_hub import FakeHub
from terminal_rig import Terminal


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home with nothing in it, and a Hub."""
    hub = FakeHub()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    hub.close()


def test_return_starts_a_chat_with_the_demo_model(place):
    terminal = Terminal()
    terminal.wait_for(b"1> ")
    terminal.type(b"\r")
    terminal.wait_for(b"This is: ingot chat")
    terminal.wait_for(b"> ")
    terminal.leave()


def test_other_answers_are_asked_again_and_q_leaves(place):
    terminal = Terminal()
    for answer in (b"9", b"chat", b"-1"):
        terminal.wait_for(b"1> ")
        terminal.type(answer + b"\r")
        terminal.wait_for(b"Type 1, 2, 3 or q.")
    terminal.type(b"q\r")
    terminal.ended()


def test_the_end_of_input_leaves(place):
    terminal = Terminal()
    terminal.wait_for(b"1> ")
    terminal.type(b"\x04")
    terminal.ended()


def test_the_list_has_models_with_size_and_licence(place):
    terminal = Terminal()
    terminal.wait_for(b"1> ")
    terminal.type(b"2\r")
    terminal.wait_for(b"the list has what fits")
    terminal.wait_for(b"Qwen/Qwen3-0.6B-GGUF:Q8_0")
    terminal.wait_for(b"about")  # the sizes of the list do not come from the Hub
    terminal.wait_for(b"Apache-2.0")
    terminal.wait_for(b"model> ")
    terminal.type(b"99\r")
    terminal.wait_for(b"There is no model 99.")
    terminal.type(b"q\r")
    terminal.ended()


def test_a_path_is_taken_as_it_is(place):
    terminal = Terminal()
    terminal.wait_for(b"1> ")
    terminal.type(b"2\r")
    terminal.wait_for(b"model> ")
    terminal.type(b"  /absent/model.gguf \r")
    terminal.wait_for(b"This is: ingot chat /absent/model.gguf")
    assert terminal.process.wait(timeout=60) == 1
    os.close(terminal.fd)


def test_offline_only_the_disks_models_are_offered(place, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    terminal = Terminal()
    terminal.wait_for(b"1> ")
    terminal.type(b"2\r")
    terminal.wait_for(b"nothing can be downloaded now")
    terminal.wait_for(b"model> ")
    assert b"Qwen" not in terminal.unread
    terminal.type(b"1\r")
    terminal.wait_for(b"There is no model 1.")
    terminal.type(b"q\r")
    terminal.ended()


def test_without_a_terminal_there_is_no_menu():
    done = subprocess.run([os.environ["INGOT"]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (
        done.returncode == 0 and done.stdout.startswith("ingot runs open language models, fast") and done.stderr == ""
    )


def test_only_models_that_fit_are_offered(place):
    """With 2.5 GB for the process, the smallest model of the list fits and the larger ones do not."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2_500_000_000, before[1]))
    try:
        terminal = Terminal()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    terminal.wait_for(b"1> ")
    terminal.type(b"2\r")
    terminal.wait_for(b"the list has what fits")
    terminal.wait_for(b"Qwen/Qwen3-0.6B-GGUF:Q8_0")
    terminal.type(b"2\r")  # the list has no second model
    terminal.wait_for(b"There is no model 2.")
    terminal.type(b"q\r")
    terminal.ended()
