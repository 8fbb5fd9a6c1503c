"""One answer path: the command line, the C API and the server give the same parts for the same text of a model, in each
row of answer forms, free and held to a schema. The model of tests/copy_model.py writes the text of the last message."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests")]
sys.dont_write_bytecode = True
from copy_model import make_copy_model  # noqa: E402
from ingot import Model  # noqa: E402

spec = importlib.util.spec_from_file_location("server_rig", SOURCE / "tests" / "server" / "conftest.py")
rig = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rig)

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
JSON = '{"city": "Oslo"}'


def rows():
    """(name, marks of its templates, texts of the row) of each row that a template can choose."""
    text = (SOURCE / "src/text/calls/call_format.cc").read_text()
    marks = r'{((?:"(?:[^"\\]|\\.)*"(?:, )?)+)}'
    found = re.findall(r'\.name = "(\w+)",\s+\.template_marks = ' + marks, text) + re.findall(r'"(\w+)", ' + marks, text)
    return {name: [json.loads(m) for m in re.findall(r'"(?:[^"\\]|\\.)*"', list_)] for name, list_ in found}


ROWS = rows()
THINK = {
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "command_r7b": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "mistral_args": ("[THINK]", "[/THINK]"),
}
HARMONY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{}"


def texts(name):
    """Texts of a model, and what a reader sees: (text, reasoning, content)."""
    if name == "gpt_oss":
        return [(HARMONY.format(JSON), "Hm.", JSON), (HARMONY.format("Not JSON."), "Hm.", "Not JSON.")]
    begin, end = THINK.get(name, ("<think>", "</think>"))
    return [(f"{begin}Hm.{end}{JSON}", "Hm.", JSON), (JSON, "", JSON), ("Not JSON.", "", "Not JSON.")]


def by_program(path, text, *flags):
    done = subprocess.run([os.environ["INGOT"], "run", path, "--temp", "0", "--json", "-n", "200", "-p", text, *flags],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return said.get("reasoning", ""), said["text"]


def by_library(model, text, schema):
    said = model.chat(text, temperature=0.0, max_tokens=200, **({"schema": schema} if schema else {}))
    return said.reasoning, said.text


def by_server(server, text, schema):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 200}
    if schema:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": json.loads(schema)}}
    message = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    return message.get("reasoning_content", ""), message["content"]


def test_the_rows_are_found():
    assert len(ROWS) > 25 and "hermes" in ROWS and ROWS["gpt_oss"] == ["<|channel|>", "<|message|>"]


@pytest.mark.parametrize("name", ROWS)
def test_three_paths_give_the_same(name, tmp_path):
    path = tmp_path / "copy.gguf"
    begin = THINK.get(name, ("<think>",))[0]
    make_copy_model(path, marks=" ".join([*ROWS[name], begin.strip()]))
    server = rig.Server(path, "-c", "4096")
    try:
        with Model.load(path, n_ctx=4096, n_threads=1) as model:
            for text, reasoning, content in texts(name):
                for schema in (None, SCHEMA):
                    flags = ["--json-schema", schema] if schema else []
                    seen = [by_program(path, text, *flags), by_library(model, text, schema), by_server(server, text, schema)]
                    assert seen[0] == seen[1] == seen[2], (text, schema)
                    if schema is None or content == JSON:
                        assert seen[0] == (reasoning, content), (text, schema)
                    else:
                        assert "Not" not in seen[0][1], seen[0]
    finally:
        server.stop()
