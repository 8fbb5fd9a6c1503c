"""Bytes that are not text, from files and standard input: each has tokens, and none is lost (rows T11 and T12 of the
bad inputs)."""
import re

import pytest

ILL_FORMED = [b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\xe2\x82", b"\xf0\x9f\x98", b"\xff\xfe\xfd", b"caf\xe9 au lait",
              b"\xe2\x82\xac\xe2\x82", b"\x00", b"a\x00b\x00", b"\x00" * 1000, b"\xef\xbb\xbfx\r\n\x00\x1b[31m\x7f"]


@pytest.fixture
def tokenize(ingot, models, tmp_path):
    """tokenize(bytes) -> the bytes of each token, the same from a file and from standard input."""

    def run(text):
        command = ["tokenize", models / "llama.gguf", "--no-special", "-f"]
        (tmp_path / "text").write_bytes(text)
        by_file = ingot(*command, tmp_path / "text", text=False, input=b"").stdout
        assert by_file == ingot(*command, "-", text=False, input=text).stdout
        printed = by_file.decode()  # it is UTF-8
        assert all(c == "\n" or c.isprintable() for c in printed)
        shown = [re.fullmatch(r" *\d+  (.*)", line)[1] for line in printed.splitlines()]
        return [re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), s.encode()) for s in shown]

    return run


@pytest.mark.parametrize("text", ILL_FORMED, ids=lambda t: t[:12].hex())
def test_every_byte_is_in_a_token(tokenize, text):
    assert b"".join(tokenize(text)) == text


def test_and_of_all_together(tokenize):
    text = b" ".join(ILL_FORMED)
    assert b"".join(tokenize(text)) == text
