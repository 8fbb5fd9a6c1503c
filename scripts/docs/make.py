#!/usr/bin/env python3
"""Writes the generated documents, or with --check reports which are out of date: scripts/docs/make.py PROGRAM
[--check].

`make docs` calls this script. tests/cli/docs_test.py checks that the documents are current.
"""
import pathlib
import sys

import charts
import cli
import completions
import errors
import http_api
import program_help

ROOT = pathlib.Path(__file__).resolve().parents[2]


def documents(program):
    """The text of each file, by its name."""
    commands, version = program_help.read_commands(program), program_help.read_version(program)
    yield "docs/cli.md", cli.markdown(commands, version)
    yield "docs/http.md", http_api.markdown(ROOT / "src" / "server" / "web" / "openapi.json")
    yield "docs/troubleshooting.md", errors.markdown(ROOT)
    yield from charts.documents(ROOT)
    yield "share/man/man1/ingot.1", cli.man(commands, version)
    yield "share/bash-completion/completions/ingot", completions.bash(commands)
    yield "share/zsh/site-functions/_ingot", completions.zsh(commands)
    yield "share/fish/vendor_completions.d/ingot.fish", completions.fish(commands)


def main(program, check):
    old = [(name, text) for name, text in documents(program) if not (ROOT / name).is_file() or (ROOT / name).read_text() != text]
    for name, text in old:
        print(f"{name} is not current: run `make docs`" if check else f"wrote {name}")
        if not check:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(text)
    return 1 if check and old else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], len(sys.argv) == 3))
