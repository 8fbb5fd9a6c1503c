"""Checks the pages: commands and flags exist, links and anchors have targets, lines fit."""
import os
import pathlib
import re
import shlex

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
PAGES = sorted([SOURCE / "README.md", SOURCE / "CHANGELOG.md", SOURCE / "CONTRIBUTING.md", *SOURCE.glob("docs/**/*.md"), SOURCE / "python" / "README.md"])
OTHERS = {"-ngl", "-fa", "-np", "-hf"}  # llama.cpp's, and the short name of --hf-repo


def reference():
    """The flags of each command, from docs/cli.md, which docs_test.py checks."""
    text = (SOURCE / "docs" / "cli.md").read_text()
    parts = re.split(r"^## (?:ingot )?(.*)\n", text, flags=re.M)
    flags = {name: set(re.findall(r"(?<![\w-])`(-{1,2}[\w-]+)`", body)) for name, body in zip(parts[1::2], parts[2::2])}
    return {name: known | flags["Options of the Hub"] | {"--help", "--help-all"} for name, known in flags.items()}


def commands(text):
    """Code lines that call ingot, each split into words."""
    blocks = re.findall(r"^```(?:sh|text)?\n(.*?)^```", text, re.S | re.M) + re.findall(r"(?:^|\n\n)((?: {4}[^\n]*\n?)+)", text)
    for line in "\n".join(blocks).splitlines():
        if found := re.match(r"\s*(?:\w+=\S* )*(?:build/)?ingot (.*)", line):
            code = re.split(r"\s+#|\s\|\s| > | < ", found[1])[0]
            try:
                yield shlex.split(code.rstrip("\\"))
            except ValueError:  # quotes that continue on the next line
                yield code.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(SOURCE).as_posix())
def test_commands_and_flags(page):
    known = reference()
    for words in commands(page.read_text()):
        if not words or words[0].startswith("-") or not words[0].isalpha() or words[0].isupper():
            continue
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        assert name in known, f"{page.name}: ingot {' '.join(words)}"
        flags = {re.split(r"=", word)[0] for word in words if re.match(r"--?[a-z]", word)}
        assert flags <= known[name] | OTHERS, f"{page.name}: ingot {' '.join(words)}"


def test_there_are_commands_to_check():
    assert sum(len(list(commands(page.read_text()))) for page in PAGES) > 60


def anchors(page):
    """The anchors that GitHub generates from headings."""
    found = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(SOURCE).as_posix())
def test_links(page):
    text = re.sub(r"^```.*?^```|^    .*$|`[^`\n]*`", "", page.read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(SOURCE).as_posix())
def test_lines_fit(page):
    """At most 120 characters, except tables on all pages but the first, and links and code that cannot be cut."""
    free = ("    ", "<", "![") if page == SOURCE / "README.md" else ("|", "    ", "<", "![")
    long = [line for line in page.read_text().splitlines() if len(line) > 120 and not line.startswith(free)]
    inside = re.findall(r"^```.*?^```", page.read_text(), re.S | re.M)
    assert not [line for line in long if not any(line in block for block in inside)]


def test_the_recording_is_small_and_real():
    """An SVG with the commands of its script. Its final picture needs no animation."""
    import xml.etree.ElementTree as xml

    data = (SOURCE / "docs" / "terminal.svg").read_bytes()
    assert len(data) < 300_000
    texts = [(e.get("opacity"), e.text) for e in xml.fromstring(data).iter("{http://www.w3.org/2000/svg}text")]
    typed = re.findall(r"^COMMANDS = (\[.*?\])$", (SOURCE / "scripts" / "docs" / "record.py").read_text(), re.S | re.M)
    for command in eval(typed[0]):
        assert ("1", "$ " + command) in texts
    assert any(opacity == "1" and text.startswith('{"name": "Clara", "age": 30') for opacity, text in texts)
