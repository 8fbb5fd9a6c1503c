"""bench: the files of random_speech.py, and speech_beside_text.py."""
import json
import os
import pathlib
import random
import subprocess
import sys
import wave

import pytest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
INGOT = os.environ["INGOT"]
sys.path.insert(0, str(ROOT / "bench"))
import random_speech

SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture
def model(monkeypatch, tmp_path):
    """A file of a model with tiny matrices."""
    print("seed", SEED)
    random.seed(SEED)
    monkeypatch.setitem(random_speech.SHAPES, "tiny", (80, 32, 2, 1, 1, 51865))
    path = tmp_path / "ggml-tiny.bin"
    random_speech.write_model("tiny", path)
    return path


def test_the_sound_is_taken_for_a_voice_and_written(model, tmp_path):
    sound = tmp_path / "sound.wav"
    random_speech.write_sound(40, sound)
    with wave.open(str(sound)) as file:
        assert (file.getnframes(), file.getframerate(), file.getnchannels()) == (40 * 16000, 16000, 1)
    # The words of a random model tell nothing: some models write none at all. But no window is skipped if all of the sound is a voice.
    command = [INGOT, "transcribe", "-m", model, "--no-fallback", "--no-times", "--beams", "1", "--json", sound]
    with_detector, without = (subprocess.run(command + more, capture_output=True, text=True) for more in ([], ["--no-vad"]))
    assert with_detector.returncode == 0, with_detector.stderr
    assert json.loads(with_detector.stdout) == json.loads(without.stdout)


def test_gaps_of_text_beside_speech(model):
    command = [sys.executable, ROOT / "bench" / "speech_beside_text.py", "demo", model, "--seconds", "40", "--requests", "2", "--prompt", "8",
               "--tokens", "8", "--rounds", "1"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = [line.split(" | ") for line in run.stdout.splitlines() if line.startswith("| ")]
    assert rows[0][:2] == ["| run", "gap p50 ms"] and rows[1][0] == "| text alone" and len(rows[1]) == 7
    assert "the recording: " in run.stdout.splitlines()[-1]


def test_a_failed_server_is_reported(tmp_path):
    command = [sys.executable, ROOT / "bench" / "speech_beside_text.py", "demo", tmp_path / "none.bin", "--seconds", "1"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode != 0 and "the server did not start" in run.stderr and "none.bin" in run.stderr
