#!/usr/bin/env python3
"""Makes the goldens of tests/text/jinja/template_golden_test with jinja2 (pip install jinja2):

    python3 tools/template_goldens/make.py tests/data/templates

reads conversations.json and *.jinja there, and writes rendered.json (each template over each conversation) and snippets.json
(small templates, written by hand and random). null means that jinja2 refuses."""

import json
import pathlib
import sys

import hf_jinja
from random_snippets import Generator, comparable
from snippets import SNIPPETS, VARIABLES

SEED = 20240726
N_RANDOM = 500


def rendered(folder):
    conversations = json.loads((folder / "conversations.json").read_text())
    out = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_bytes().decode()
        out[path.name] = {c["name"]: hf_jinja.render(source, hf_jinja.chat_variables(c)) for c in conversations}
    return out


def snippets():
    cases = [(source, hf_jinja.render(source, VARIABLES)) for source in SNIPPETS]
    generator = Generator(SEED)
    n_errors = 0
    while len(cases) < len(SNIPPETS) + N_RANDOM:
        source = generator.template(2)
        text = hf_jinja.render(source, VARIABLES)
        if not comparable(source, text) or len(source) > 300 or len(text or "") > 400:
            continue
        if text is None and n_errors >= N_RANDOM // 5:
            continue
        n_errors += text is None
        cases.append((source, text))
    return cases


def main():
    folder = pathlib.Path(sys.argv[1])
    dump = lambda value: json.dumps(value, ensure_ascii=False, indent=0) + "\n"
    (folder / "rendered.json").write_text(dump(rendered(folder)))
    (folder / "snippets.json").write_text(dump({"variables": VARIABLES, "cases": snippets()}))


main()
