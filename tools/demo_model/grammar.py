"""A tiny text grammar, used to generate every document.

  {a|b|c}   one of the alternatives, which may nest
  [slot]    a value bound for this document, else a fresh draw from the word list of that name
  [a slot]  the same with its indefinite article ("a fox", "an owl"); [A slot] at the start of a sentence
  [^slot]   the same with a capital first letter; [,slot] with a small one

Templates are parsed once and stored, since a corpus expands each template many thousand times.
"""

import functools
import re

_VOWEL_SOUND = re.compile(r"(?!one |one-|uni|use|euro|Euro|ukulele)[aeiouAEIOU]|hour|honest|x-ray|8|11\b|18\b")


def article(noun):
    return ("an " if _VOWEL_SOUND.match(noun) else "a ") + noun


def capital(text):
    return text[:1].upper() + text[1:]


def _parse(text, pos, stop):
    """Parses up to a character of `stop`; returns ([piece], position of the stop). A piece is a str, a list
    (alternatives, each a list of pieces) or a tuple (slot, how)."""
    out, start = [], pos
    while pos < len(text) and text[pos] not in stop:
        if text[pos] == "{":
            out.append(text[start:pos])
            options = []
            while True:
                piece, pos = _parse(text, pos + 1, "|}")
                options.append(piece)
                if pos >= len(text):
                    raise ValueError(f"unclosed brace in template: {text!r}")
                if text[pos] == "}":
                    break
            out.append(options)
            start = pos = pos + 1
        elif text[pos] == "[":
            out.append(text[start:pos])
            end = text.index("]", pos)
            slot, how = text[pos + 1 : end], ""
            if slot[:2] in ("a ", "A "):
                slot, how = slot[2:], slot[0]
            elif slot[0] in "^,":
                slot, how = slot[1:], slot[0]
            out.append((slot, how))
            start = pos = end + 1
        else:
            pos += 1
    out.append(text[start:pos])
    return [p for p in out if p != ""], pos


@functools.lru_cache(maxsize=None)
def parse(text):
    return _parse(text, 0, "")[0]


class Grammar:
    """`lists` maps a slot name to its possible values, which are templates themselves."""

    def __init__(self, lists):
        self.lists = lists

    def expand(self, rng, template, bound=None):
        out = []
        self._expand(rng, parse(template), bound or {}, out)
        return "".join(out)

    def _expand(self, rng, pieces, bound, out):
        for piece in pieces:
            if isinstance(piece, str):
                out.append(piece)
            elif isinstance(piece, list):
                self._expand(rng, piece[int(rng.random() * len(piece))], bound, out)
            else:
                out.append(self._slot(rng, piece, bound))

    def _slot(self, rng, piece, bound):
        slot, how = piece
        value = bound.get(slot)
        if value is None:
            value = rng.choice(self.lists[slot])
        if "[" in value or "{" in value:
            value = self.expand(rng, value, bound)
        if how == "^":
            return capital(value)
        if how == ",":
            return value[:1].lower() + value[1:]
        if how:
            value = article(value)
            return capital(value) if how == "A" else value
        return value


def read_lists(path):
    """Reads `name: a | b | c` entries; an indented line continues the entry above; # starts a comment line."""
    lists, name = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line[0].isspace():
            name, line = line.split(":", 1)
            lists[name] = []
        lists[name] += [v.strip() for v in split_options(line) if v.strip()]
    return lists


def split_options(text):
    """Splits a template at its top-level bars, so that `{a|b} c | d` has two parts."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if c == "|" and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in parts + [text[start:]]]


def read_sections(path):
    """Reads a file of `== name` sections into [(name, [line])]; # starts a comment line."""
    sections = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("== "):
            sections.append((line[3:].strip(), []))
        elif sections:
            sections[-1][1].append(line.rstrip())
    return sections
