"""The commands of curl on the pages, and the search of docs/embeddings.md, against servers of small models."""
import contextlib
import re
import shlex
import subprocess
import sys
import time

import pytest
from conftest import SOURCE, form_body, running

DATA = SOURCE / "tests" / "data"
TALK = DATA / "audio" / "tone.flac"
PAGES = ["http.md", "server.md", "embeddings.md", "fleets.md"]
ADDRESS = re.compile(r"http://127\.0\.0\.1:808[01](/\S*)$")


def commands():
    for page in PAGES:
        for line in (SOURCE / "docs" / page).read_text().splitlines():
            if line.startswith("    curl "):
                yield page, line.strip()


def request_of(line):
    """(method, path, headers, body) of a command of curl with -X, -H, -N, -d and -F."""
    words = iter(shlex.split(line)[1:])
    method, path, headers, body = None, None, {}, None
    form = {}
    for word in words:
        if word == "-F":
            name, value = next(words).split("=", 1)
            form[name] = TALK.read_bytes() if value.startswith("@") else value
        elif word == "-X":
            method = next(words)
        elif word == "-H":
            name, value = next(words).split(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words)
        elif word != "-N":
            path = ADDRESS.match(word)[1]
    if form:
        body, headers["Content-Type"] = form_body(form)
    return method or ("POST" if body else "GET"), path, headers, body


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("slots")
        start = lambda *args: stack.enter_context(running(*args))
        yield {"write": start(SOURCE / "models/demo.gguf", "--slot-save-path", folder), "embed": start(DATA / "encoders/bert"), "rank": start(DATA / "rankers/bert.gguf"),
               "speech": start(DATA / "speech")}


@pytest.mark.parametrize("page, line", commands(), ids=lambda value: value[:60])
def test_a_command_of_curl(servers, page, line):
    method, path, headers, body = request_of(line)
    kind = "speech" if "audio" in path or path == "/inference" else "embed" if "embed" in path else "rank" if "rerank" in path else "write"
    if path == "/infill":
        servers[kind].request(method, path, body, headers).error(400)  # the demo model has no tokens for it
        return
    if path == "/v1/realtime":
        servers["speech"].request(method, path, body, headers).error(426)  # curl opens no WebSocket
        return
    if path.startswith("/answers/"):
        name = path.rsplit("/", 1)[1]
        kept = {"X-Keep-Answer": name}
        assert servers[kind].post("/v1/completions", {"prompt": "Once", "max_tokens": 5}, headers=kept).status == 200
    if path.startswith("/slots/"):
        servers[kind].chat(max_tokens=5, id_slot=0)
    deadline = time.monotonic() + 20
    while (reply := servers[kind].request(method, path, body, headers)).status == 409 and time.monotonic() < deadline:
        time.sleep(0.05)  # the model still ends the last command's answer
    assert reply.status == 200, reply.body
    if path.startswith("/answers/"):
        servers[kind].request("DELETE", path)


def test_there_are_commands_for_every_page():
    assert {page for page, _ in commands()} == set(PAGES) and len(list(commands())) > 30


def test_the_search(servers):
    (code,) = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/embeddings.md").read_text(), re.S | re.M)
    done = subprocess.run([sys.executable, "-c", code.replace("http://127.0.0.1:8080", servers["embed"].url)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and lines[0] == "How fast is a fox?" and lines[3] == "What do I need to bake?"
    documents = eval(re.search(r"DOCUMENTS = (\[.*?\])\n", code)[1])
    assert all(line.strip() in documents for i, line in enumerate(lines) if i % 3), lines
