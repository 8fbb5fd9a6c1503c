"""ingot transcribe, as users run it, with the tiny speech model (test_model compares its transcripts)."""
import json

import pytest

from conftest import DATA

MODEL = DATA / "speech"
TONE = DATA / "audio" / "tone.flac"


def test_text_and_subtitles(ingot, tmp_path):
    text = ingot("transcribe", "-m", MODEL, "-l", "de", TONE)
    assert text.stdout.strip() and "times real time; language de" in text.stderr
    found = json.loads(ingot("transcribe", "-m", MODEL, "-l", "german", "--json", TONE).stdout)
    assert found["language"] == "german" and found["duration"] == 0.3
    assert [s["text"].strip().replace("\n", " ") for s in found["segments"]] == text.stdout.splitlines()
    assert ingot("transcribe", "-m", MODEL, "-l", "de", "--srt", TONE).stdout.startswith("1\n00:00:00,")
    assert ingot("transcribe", "-m", MODEL, "-l", "de", "--vtt", TONE).stdout.startswith("WEBVTT\n\n00:00:00.")


def test_a_folder_of_files(ingot, tmp_path):
    other = tmp_path / "other.ogg"
    other.write_bytes((DATA / "audio" / "tone.ogg").read_bytes())
    out = tmp_path / "out" / "deep"
    ingot("transcribe", "-m", MODEL, "--translate", "--srt", "--vtt", "--json", "--txt", "-o", out, TONE, other)
    ends = ("json", "srt", "txt", "vtt")
    assert sorted(p.name for p in out.iterdir()) == [f"{name}.{end}" for name in ("other", "tone") for end in ends]
    assert json.loads((out / "other.json").read_text())["task"] == "translate"


def test_standard_input(ingot):
    whole = ingot("transcribe", "-m", MODEL, "-l", "de", TONE).stdout
    done = ingot("transcribe", "-m", MODEL, "-l", "de", "-", input=TONE.read_bytes(), text=False)
    assert done.stdout.decode() == whole


@pytest.mark.parametrize("arguments, code, says", [
    ([], 2, "FILE"),
    (["nowhere.wav"], 1, "nowhere.wav"),
    (["--srt", "--vtt", TONE], 2, "give -o DIR"),
    (["--json", TONE, TONE], 2, "give -o DIR"),
    (["-o", "/tmp", TONE, TONE], 2, "one by one"),
    (["--word-times", TONE], 2, "give --json too"),
    (["--hotwords", "b" * 15, TONE], 1, "the hotwords have 16 tokens, but the model has room for 15"),
    (["-l", "klingon", TONE], 1, "does not know the language klingon"),
    (["--max-seconds", "1e9", TONE], 2, "--max-seconds"),
    ([MODEL / "config.json"], 1, "this program reads WAV, FLAC"),
])
def test_faults(ingot, arguments, code, says):
    done = ingot("transcribe", "-m", MODEL, *arguments, ok=False)
    assert done.returncode == code and says in done.stderr, done.stderr


def test_the_other_files_are_read_although_one_is_broken(ingot, tmp_path):
    (tmp_path / "broken.wav").write_bytes(b"RIFF....WAVE")
    done = ingot("transcribe", "-m", MODEL, "-l", "de", tmp_path / "broken.wav", TONE, ok=False)
    assert done.returncode == 1 and "1 of 2 recordings" in done.stderr and "damaged WAV" in done.stderr
    assert done.stdout.startswith("==> ") and ingot("transcribe", "-m", MODEL, "-l", "de", TONE).stdout in done.stdout


def test_other_commands_know_speech_models(ingot):
    facts = json.loads(ingot("inspect", MODEL, "--json").stdout)
    assert facts["architecture"] == "whisper" and facts["languages"] == ["en", "zh", "de"] and facts["window_seconds"] == 0.6
    assert facts["decoder"]["vocabulary"] == 298 and "mel_bands: 8" in ingot("inspect", MODEL).stdout
    for command in (["run", "-p", "x", "-m"], ["chat"], ["embed", "-p", "x"], ["inspect", "--fit"]):
        done = ingot(*command, MODEL, ok=False)
        assert done.returncode == 1 and "use `ingot transcribe`" in done.stderr, done.stderr


def test_a_model_of_another_kind_is_named(ingot):
    done = ingot("transcribe", "-m", DATA / "models" / "qwen3.gguf", TONE, ok=False)
    assert done.returncode == 1 and "not one of whisper.cpp's files: it is a GGUF file" in done.stderr
