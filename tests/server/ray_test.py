"""deploy/ray_serve.py with the real Ray Serve: two replicas answer, one is killed, and no request is lost that had not
begun. Needs ray[serve]: in this Python, or in the one that INGOT_RAY_PYTHON names."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest
from conftest import SLOW, SOURCE

PYTHON = os.environ.get("INGOT_RAY_PYTHON", sys.executable)
HAS_RAY = subprocess.run([PYTHON, "-c", "import ray.serve, numpy"], capture_output=True).returncode == 0
pytestmark = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'ray[serve]', or name a Python that has it in INGOT_RAY_PYTHON")

MAX_SEQS = 2
DRIVER = """
import sys, ray
from ray import serve
import ray_serve
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(http_options={"port": int(sys.argv[1])})
serve.run(ray_serve.app({"model": sys.argv[2], "name": "small", "replicas": "2", "max_seqs": sys.argv[3], "n_threads": "1"}))
print("ready", flush=True)
sys.stdin.read()  # until the test is over
serve.shutdown()
ray.shutdown()
"""


class Fleet:
    def __init__(self, port, mark):
        self.port, self.mark = port, mark

    def post(self, path, body, read=True):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120 * SLOW)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return (response.status, response.read()) if read else response

    def replicas(self):
        """The processes of the replicas: those with the test's mark in their environment."""
        found = []
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and b"ServeReplica:default:Ingot" in (process / "cmdline").read_bytes() and self.mark.encode() in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return sorted(found)


@pytest.fixture(scope="module")
def fleet():
    mark = uuid.uuid4().hex
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = os.environ | {"PYTHONPATH": f"{SOURCE / 'deploy'}:{SOURCE / 'python'}", "INGOT_TEST_MARK": mark, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [PYTHON, "-c", DRIVER, str(port), str(SOURCE / "models/demo.gguf"), str(MAX_SEQS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            for line in process.stdout:
                if line.strip() == "ready":
                    break
            else:
                raise AssertionError(process.stderr.read()[-2000:])
            yield Fleet(port, mark)
        finally:
            process.stdin.close()
            try:
                process.wait(60 * SLOW)
            except subprocess.TimeoutExpired:
                process.kill()


QUESTION = {"messages": [{"role": "user", "content": "What is 7 + 5?"}], "temperature": 0}


def events_of(data):
    *events, last = data.decode().strip().split("\n\n")
    assert last == "data: [DONE]", last
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_answers(fleet):
    status, data = fleet.post("/v1/chat/completions", QUESTION)
    got = json.loads(data)
    assert status == 200 and got["model"] == "small" and got["choices"][0] == {"index": 0, "message": {"role": "assistant", "content": "7 + 5 = 12."}, "finish_reason": "stop"}
    events = events_of(fleet.post("/v1/chat/completions", QUESTION | {"stream": True, "stream_options": {"include_usage": True}})[1])
    assert "".join(c["delta"].get("content", "") for e in events for c in e["choices"]) == "7 + 5 = 12."
    assert events[-1]["usage"] == got["usage"] | {"prompt_tokens_details": events[-1]["usage"]["prompt_tokens_details"]} and events[-2]["choices"][0]["finish_reason"] == "stop"
    whole = json.loads(fleet.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "seed": 3})[1])["choices"][0]
    pieces = events_of(fleet.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "seed": 3, "stream": True})[1])
    assert "".join(c["text"] for e in pieces for c in e["choices"]) == whole["text"] and whole["finish_reason"] == "length"
    schema = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["sum"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    assert list(json.loads(json.loads(fleet.post("/v1/chat/completions", QUESTION | {"response_format": form})[1])["choices"][0]["message"]["content"])) == ["sum"]


@pytest.mark.parametrize("body, word", [
    (QUESTION | {"n": 2}, "n is not supported"), (QUESTION | {"temperature": -1}, "temperature"), (QUESTION | {"imagined": 1}, "imagined"), ({"messages": 5}, "messages"), ([1], "JSON object"),
    ({"prompt": {"a": 1}}, "prompt"), (QUESTION | {"response_format": {"type": "xml"}}, "response_format"), (QUESTION | {"response_format": 7}, "malformed"), ({}, "prompt"),
    (QUESTION | {"tool_choice": "required"}, "tool_choice"),
])
def test_refusals(fleet, body, word):
    status, data = fleet.post("/v1/chat/completions", body)
    assert status == 400 and word in json.loads(data)["error"]["message"], data


class Long(threading.Thread):
    """A long stream. begun: its first event has come."""

    def __init__(self, fleet, seed):
        super().__init__(daemon=True)
        self.fleet, self.begun, self.data = fleet, threading.Event(), b""
        self.body = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "seed": seed, "stream": True}

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            response = self.fleet.post("/v1/completions", self.body, read=False)
            while response.status == 200 and (piece := response.read1(65536)):
                self.data += piece
                self.begun.set()

    @property
    def is_whole(self):
        return self.data.endswith(b"data: [DONE]\n\n") and b'"finish_reason": "length"' in self.data


def n_begun(streams):
    return sum(s.begun.is_set() for s in streams)


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_replica_that_is_killed_loses_only_what_it_had_begun(fleet):
    replicas = fleet.replicas()
    assert len(replicas) == 2
    streams = [Long(fleet, i) for i in range(6 * MAX_SEQS)]
    for stream in streams:
        stream.start()
    wait_until(lambda: n_begun(streams) >= 2 * MAX_SEQS)
    os.kill(replicas[0], signal.SIGSTOP)  # from here on, this replica neither begins nor ends anything
    os.kill(replicas[0], signal.SIGKILL)
    begun = [s for s in streams if s.begun.is_set()]
    for stream in streams:
        stream.join(300 * SLOW)
    lost = [s for s in streams if not s.is_whole]
    assert len(lost) <= MAX_SEQS, "the others had not begun"
    assert lost and all(s in begun for s in lost), "a dead replica's requests end, and their clients see it"
    wait_until(lambda: len(fleet.replicas()) == 2 and replicas[0] not in fleet.replicas())
    again = [Long(fleet, i) for i in range(2 * MAX_SEQS)]
    for stream in again:
        stream.start()
    for stream in again:
        stream.join(300 * SLOW)
    assert all(s.is_whole for s in again), "Ray has started another replica"
    same = [next(s for s in streams if s.body["seed"] == t.body["seed"]) for t in again]
    text = lambda s: "".join(c["text"] for e in events_of(s.data) for c in e["choices"])
    assert all(text(s) == text(t) for s, t in zip(same, again) if s.is_whole), "every replica has the same model"
