#!/usr/bin/env python3
"""Makes src/text/tokenizers/unicode_table.inc, the general category of every character, and
tests/data/tokenizers/unicode.json: the number of characters with each property, and where tokenizers splits texts with
characters that older Unicode versions lack.

    pip install tokenizers
    python3 tools/tokenizer_goldens/make_unicode.py .

Both come from the expressions of Hugging Face tokenizers (Oniguruma's), with which vocabularies were trained. The
committed files came from tokenizers 0.23.3 (Unicode 16). Takes two minutes.
"""
import json
import random
import sys
import unicodedata
from pathlib import Path

from make import PRETOKENIZERS, pretokenizer
from tokenizers import Regex, pre_tokenizers

SEED = 20261122
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
HAN = 1 << 5
SURROGATES = range(0xD800, 0xE000)
PROPERTIES = [r"\p{%s}" % p for p in ["L", "M", "N", "P", "S", "Z", "C", *CATEGORIES, "Han"]] + [
    r"\P{L}", r"\P{Nd}", r"[\P{L}]", r"[^\p{L}\p{N}]", r"[\p{M}\P{Nd}]", r"\s", r"\S", r"[\S]", r"[^\s]", r"\d", r"\D", r"[\d\p{L}]"]
CODE_POINTS = [c for c in range(0x110000) if c not in SURROGATES]
EVERYTHING = "".join(map(chr, CODE_POINTS))
WORDS_A_LINE = 12


def members(expression):
    """The code points that an expression for one character matches."""
    cut = pre_tokenizers.Split(Regex(f"(?:{expression})+"), "removed", invert=True)
    return [c for _, (begin, end) in cut.pre_tokenize_str(EVERYTHING) for c in CODE_POINTS[begin:end]]


def table_text():
    """Words of (first code point << 6 | is Han << 5 | index of the category), one at the start of each run of equal
    properties."""
    kinds = [CATEGORIES.index("Cn")] * 0x110000
    for i, category in enumerate(CATEGORIES):
        for c in members(r"\p{%s}" % category):
            kinds[c] = i
    for c in members(r"\p{Han}"):
        kinds[c] |= HAN
    for c in SURROGATES:  # no text contains them
        kinds[c] = kinds[SURROGATES.start - 1]
    words = [f"0x{c << 6 | kind:X}," for c, kind in enumerate(kinds) if c == 0 or kind != kinds[c - 1]]
    lines = ["// Made by tools/tokenizer_goldens/make_unicode.py: first code point << 6 | is Han << 5 | category, of",
             "// " + " ".join(CATEGORIES)]
    return "\n".join(lines + [" ".join(words[i:i + WORDS_A_LINE]) for i in range(0, len(words), WORDS_A_LINE)]) + "\n"


def new_texts(rng):
    """Texts that mix characters newer than this Python's Unicode with other characters."""
    known = {p: set(members(r"\p{%s}" % p)) for p in "LMNPS"}
    new = {p: sorted(c for c in known[p] if unicodedata.category(chr(c)) == "Cn") for p in "LMNPS"}
    assert len(new["L"]) > 9000, f"Python's Unicode {unicodedata.unidata_version} is too new"
    around = ["a", "Z", " ", "  ", "\n", "1", "22", ".", '"', "'s", "中", "é", "\u0301", "\u4dff", "\U0001F600", "x = y"]
    texts = ['\U00031433"xre', "a\U00031433 \U00031433b", "\ua7da\ua7dbA", "1\U00011F501", "x\u0897\u0897y", "\U0001171e\U0001171d"]
    everywhere = sorted(c for p in new for c in new[p])
    firsts = [c for i, c in enumerate(everywhere) if i == 0 or everywhere[i - 1] != c - 1]
    for i in range(0, len(firsts), 4):
        texts.append("".join(rng.choice(around) + chr(c) for c in firsts[i:i + 4]))
    for _ in range(150):
        parts = [chr(rng.choice(new[rng.choice("LLLMNPS")])) if rng.random() < 0.5 else rng.choice(around)
                 for _ in range(rng.randint(1, 14))]
        texts.append("".join(parts))
    return texts


def main():
    root = Path(sys.argv[1])
    (root / "src/text/tokenizers/unicode_table.inc").write_text(table_text())
    properties = {}
    for expression in PROPERTIES:
        code_points = members(expression)
        hashed = 2166136261  # FNV-1a over code points
        for c in code_points:
            hashed = (hashed ^ c) * 16777619 & 0xFFFFFFFF
        properties[expression] = [len(code_points), hashed]
    texts = new_texts(random.Random(SEED))
    pieces = {}
    for name, steps in PRETOKENIZERS.items():
        if "punctuation" in steps:  # not by an expression, but by the older Unicode table inside tokenizers
            continue
        reference = pretokenizer(name, byte_level=False)
        pieces[name] = [[end - begin for _, (begin, end) in reference.pre_tokenize_str(text)] for text in texts]
    golden = {"properties": properties, "texts": texts, "pieces": pieces}
    text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    (root / "tests/data/tokenizers/unicode.json").write_text(text + "\n")
    print(len(text), "bytes")


if __name__ == "__main__":
    main()
