"""deploy/dynamo_worker.py with NVIDIA's Dynamo: two workers behind its frontend answer, one is killed, and the other goes
on. Needs ai-dynamo: in this Python, or in the one that INGOT_DYNAMO_PYTHON names."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import SLOW, SOURCE

PYTHON = os.environ.get("INGOT_DYNAMO_PYTHON", sys.executable)
HAS_DYNAMO = subprocess.run([PYTHON, "-c", "import dynamo.llm, dynamo.frontend, numpy"], capture_output=True).returncode == 0
pytestmark = pytest.mark.skipif(not HAS_DYNAMO, reason="ai-dynamo is not installed: pip install ai-dynamo, or name a Python that has it in INGOT_DYNAMO_PYTHON")
WORKER = SOURCE / "deploy/dynamo_worker.py"
QUESTION = {"model": "small", "messages": [{"role": "user", "content": "What is 7 + 5?"}], "temperature": 0}


class Fleet:
    def __init__(self, folder):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.env = os.environ | {"PYTHONPATH": str(SOURCE / "python"), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(folder)}
        self.workers = []

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "w")
        with log:
            return subprocess.Popen([PYTHON, *map(str, command)], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)

    def start_worker(self):
        number = len(self.workers)
        self.workers.append(self.start(f"worker{number}", WORKER, "--model", SOURCE / "models/demo.gguf", "--name", "small", "--n-threads", 1))

    def ask(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SLOW)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def post(self, path, body):
        response = self.ask(path, body)
        return response.status, response.read()

    def said(self, number):
        """How many requests the worker has completed, by its log."""
        return (self.folder / f"worker{number}.log").read_text().count("request completed")

    def wait_for(self, condition):
        deadline = time.monotonic() + 90 * SLOW
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            assert time.monotonic() < deadline, [path.read_text()[-1500:] for path in self.folder.glob("*.log")]
            time.sleep(0.2)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = Fleet(tmp_path_factory.mktemp("dynamo"))
    front = made.start("frontend", "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", made.port)
    try:
        for _ in range(2):
            made.start_worker()
        made.wait_for(lambda: made.post("/v1/chat/completions", QUESTION)[0] == 200 and made.said(0) and made.said(1))
        yield made
    finally:
        for process in [*made.workers, front]:
            process.kill()
            process.wait()


def events_of(data):
    return [json.loads(line[6:]) for line in data.decode().split("\n\n") if line.startswith("data: {")]


def test_answers(fleet):
    status, data = fleet.post("/v1/chat/completions", QUESTION)
    got = json.loads(data)
    assert status == 200 and got["choices"][0]["message"]["content"] == "7 + 5 = 12." and got["choices"][0]["finish_reason"] == "stop" and got["usage"]["completion_tokens"] > 4
    events = events_of(fleet.post("/v1/chat/completions", QUESTION | {"stream": True})[1])
    assert "".join(c["delta"].get("content") or "" for e in events for c in e["choices"]) == "7 + 5 = 12."
    got = json.loads(fleet.post("/v1/completions", {"model": "small", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})[1])
    assert got["choices"][0]["finish_reason"] == "length" and got["usage"]["completion_tokens"] == 8 and len(got["choices"][0]["text"]) > 8


@pytest.mark.parametrize("fields, word", [
    ({"n": 2, "temperature": 1}, "n is not supported"), ({"tool_choice": "none"}, "tool_choice"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}}, "nonsense")])
def test_refusals(fleet, fields, word):
    status, data = fleet.post("/v1/chat/completions", QUESTION | fields)
    assert status == 400 and word in data.decode(), data


def test_both_workers_answer_and_one_goes_on_alone(fleet):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        before = [fleet.said(0), fleet.said(1)]
        assert all(json.loads(data)["choices"][0]["message"]["content"] == "7 + 5 = 12." for _, data in pool.map(lambda _: fleet.post("/v1/chat/completions", QUESTION), range(16)))
        fleet.wait_for(lambda: fleet.said(0) > before[0] and fleet.said(1) > before[1])
    os.kill(fleet.workers[0].pid, signal.SIGKILL)
    fleet.workers[0].wait()
    fleet.wait_for(lambda: all(fleet.post("/v1/chat/completions", QUESTION)[0] == 200 for _ in range(4)))


def test_a_worker_that_is_stopped_ends_its_answers(fleet):
    fleet.start_worker()
    number = len(fleet.workers) - 1
    fleet.wait_for(lambda: fleet.post("/v1/chat/completions", QUESTION)[0] == 200 and fleet.said(number) > 0)
    fleet.workers[1].terminate()  # the new worker is the only one that is left
    assert fleet.workers[1].wait(60 * SLOW) == 0
    response = fleet.ask("/v1/completions", {"model": "small", "prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True})
    begin = response.read1(100)
    fleet.workers[number].terminate()
    events = events_of(begin + response.read())
    assert response.status == 200 and [c.get("finish_reason") for e in events for c in e["choices"]][-1] == "length"
    assert fleet.workers[number].wait(60 * SLOW) == 0
