"""The lists of `ls`, `doctor` and `devices` fit the columns of the terminal. In a pipe, each row is one line."""
import os
import re
import subprocess

import pytest
from hub_rig import hub, run, seed  # noqa: F401 (fixtures)
from width_test import columns_of, on_terminal

pytestmark = pytest.mark.skipif("INGOT_EMULATED" in os.environ, reason="Wine has no such terminal")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = ["Qwen/Qwen3-0.6B-GGUF", "an-organisation/a-model-whose-name-is-longer-than-half-of-a-usual-terminal-GGUF", "狐狸/モデル"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home whose cache has some models with names of several lengths."""
    cache = tmp_path / "hub"
    for name in NAMES[:2]:
        folder = cache / ("models--" + name.replace("/", "--"))
        (folder / "snapshots" / COMMIT).mkdir(parents=True)
        (folder / "blobs").mkdir()
        (folder / "refs").mkdir()
        (folder / "refs/main").write_text(COMMIT)
        (folder / "blobs/x").write_bytes(b"GGUF" * 100)
        (folder / "snapshots" / COMMIT / "model-Q4_K_M.gguf").symlink_to("../../blobs/x")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def in_a_pipe(*args):
    return subprocess.run([os.environ["INGOT"], *args], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@pytest.mark.parametrize("width", [120, 80, 60, 30])
@pytest.mark.parametrize("args", [["ls"], ["doctor"], ["devices"]], ids=" ".join)
def test_no_line_is_wider_than_the_terminal(place, args, width):
    lines = on_terminal(args, width).splitlines()
    assert lines and max(map(columns_of, lines)) <= width, lines


def test_the_models_at_80_and_60_columns(place):
    wide = in_a_pipe("ls").splitlines()
    assert [line.split()[:3] for line in wide] == [["MODEL", "QUANT", "REVISION"], *([name, "Q4_K_M", "main"] for name in NAMES[:2])]
    for width in (80, 60):
        lines = on_terminal(["ls"], width).splitlines()
        assert len(lines) == 6 and lines[0] == "MODEL" and lines[1].split() == ["QUANT", "REVISION", "SIZE", "USED"]
        assert lines[2] == NAMES[0] and lines[3].startswith("  Q4_K_M") and "400 B" in lines[3] and lines[3].endswith("ago") or "just now" in lines[3]
        long = NAMES[1]
        assert lines[4] == (long if columns_of(long) <= width else long[: width - 1] + "…")


@pytest.mark.parametrize("args", [["doctor"], ["devices"]], ids=" ".join)
@pytest.mark.parametrize("width", [80, 60])
def test_texts_go_on_below_their_beginning(place, args, width):
    """Without its line breaks, a list is what a pipe gets, but for figures that change, such as free memory."""
    lines = on_terminal(args, width).splitlines()
    plain = in_a_pipe(*args)
    rows = [line for line in lines if not line.startswith(" ") or line.startswith("         ->")]
    assert len(rows) == len(plain.splitlines())
    letters = lambda text: re.sub(r"[\s\d]+", "", text)
    assert letters("".join(lines)) == letters(plain)
    more = [line for line in lines if line not in rows]
    indents = {len(line) - len(line.lstrip()) for line in more}
    assert indents <= ({9} if args == ["devices"] else {20, 12}), lines
