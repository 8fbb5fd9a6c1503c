"""The programs of python/examples run, and do what they say."""
import json
import subprocess
import sys

import pytest

from conftest import DATA

EXAMPLES = DATA.parents[1] / "python" / "examples"


def run(name, *arguments, text):
    done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chat():
    said = run("chat.py", text="Tell me a story about a fox.\nTell me another one.\n")
    counts = [line for line in said.splitlines() if line.startswith("[") and line.endswith("cached]")]
    assert len(counts) == 2 and counts[0].endswith(", 0 of the prompt cached]") and int(counts[1].split()[2]) > 20


def test_extract(model):
    texts = ["My name is Clara and I am 30 years old.", "My name is Bob and I am 41 years old."]
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
              "required": ["name", "age"], "additionalProperties": False}
    people = [json.loads(line) for line in run("extract.py", text="\n".join(texts)).splitlines()]
    assert people == [model.chat(text, schema=schema, temperature=0, max_tokens=100).parsed for text in texts] and people[0]["name"] == "Clara"


def test_search():
    facts = json.loads((DATA / "rankers" / "bert.json").read_text())
    lines = [line for line in facts["documents"] if line and "\n" not in line]
    said = run("search.py", DATA / "encoders" / "bert", DATA / "rankers" / "bert", facts["query"], text="\n".join(lines)).splitlines()
    scores = [float(line.split()[0]) for line in said]
    assert len(said) == len(lines) and scores == sorted(scores, reverse=True)
    best = max((score, text) for score, text in zip(facts["scores"], facts["documents"]) if text in lines)
    assert said[0].split("  ", 1)[1] == best[1] and scores[0] == pytest.approx(best[0], abs=0.02)
