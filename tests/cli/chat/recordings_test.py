"""Recordings in `ingot run` and `ingot chat`, on the tiny model with ears of tests/data/ears."""
import json
import os
import subprocess
import sys

import pytest
from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "tests/server"))
from sounds import wav  # noqa: E402

MODEL = SOURCE / "tests/data/ears/voxtral"
GOLDEN = json.loads((MODEL / "goldens.json").read_text())["prompts"][0]


def ingot(*args, ok=True, input=b""):
    done = subprocess.run([os.environ["INGOT"], *map(str, args)], input=input, capture_output=True, timeout=500)
    assert not ok or done.returncode == 0, done.stderr
    done.stdout, done.stderr = done.stdout.decode(errors="replace"), done.stderr.decode()
    return done


@pytest.fixture
def noise(tmp_path):
    path = tmp_path / "noise.wav"
    path.write_bytes(wav(*GOLDEN["sounds"][0]))
    return path


def run(*args, **kwargs):
    """The golden's text is the template, because a prompt cannot write its control tokens."""
    return ingot("run", MODEL, "--chat-template", GOLDEN["text"] + "{# #}", "-n", "1", "--temp", "0", *args, **kwargs)


def test_the_prompt_is_that_of_transformers(noise):
    n = GOLDEN["tokens"].count(260)
    for args in ([], ["--mmproj", MODEL / "mmproj.gguf"]):
        report = json.loads(run("--audio", noise, "-p", "?", "--json", *args).stdout)
        assert report["prompt_tokens"] == len(GOLDEN["tokens"]) and report["audio_tokens"] == n
        logits = GOLDEN["logits"][-1]
        assert report["token_ids"] == [logits.index(max(logits))]
    assert f"1 recording took {n} tokens, encoded in" in run("--audio", "-", "-p", "?", input=noise.read_bytes()).stderr


def test_errors(noise, tmp_path):
    (tmp_path / "no.wav").write_bytes(b"what?")
    assert "recording 1: the audio is" in run("--audio", tmp_path / "no.wav", "-p", "?", ok=False).stderr
    assert "the model reads text and recordings: use one with a vision tower" in run("-i", noise, "-p", "?", ok=False).stderr
    assert "the model reads text only: use one with ears" in ingot("run", "demo", "--audio", noise, "-p", "?", ok=False).stderr
    assert "needs a chat template" in ingot("run", MODEL, "--raw", "--audio", noise, "-p", "?", ok=False).stderr
    assert "standard input is either" in run("--audio", "-", "-i", "-", "-p", "?", ok=False).stderr


def test_chat_adds_recordings_and_saves_them(noise, tmp_path):
    saved = tmp_path / "talk.json"
    typed = f"/audio {noise}\n/audio\nwhat?\n/tokens\n/save {saved}\n"
    done = ingot("chat", MODEL, "-n", "1", "--temp", "0", input=typed.encode())
    assert "The next question has 1 recording." in done.stdout + done.stderr
    assert "of them for 1 recording" in done.stdout + done.stderr
    content = json.loads(saved.read_text())[0]["content"]
    assert [part["type"] for part in content] == ["input_audio", "text"]
    again = ingot("chat", MODEL, "-n", "1", "--temp", "0", input=f"/load {saved}\n/tokens\n".encode())
    assert "of them for 1 recording" in again.stdout + again.stderr
