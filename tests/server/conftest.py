"""A running `ingot serve` for the tests. INGOT names the program. Requests use http.client, so no other packages are
needed."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
SLOW = float(os.environ.get("INGOT_SLOW", 1))  # factor for time limits, for example under a sanitizer
END = signal.SIGINT if "INGOT_EMULATED" in os.environ else signal.SIGTERM  # Wine makes Ctrl-C of SIGINT, nothing of SIGTERM
SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture
def draw():
    print("seed", SEED)  # pytest shows it when a test fails
    return random.Random(SEED)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def events(self):
        """Returns the JSON of each event of a stream. Checks the stream's end."""
        lines = [l for l in self.body.decode().split("\n\n") if l and not l.startswith(":")]
        assert lines[-1] == "data: [DONE]", lines[-1:]
        assert all(l.startswith("data: ") for l in lines)
        return [json.loads(l[6:]) for l in lines[:-1]]

    def error(self, status, param=None):
        assert self.status == status, (self.status, self.body)
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"], error
        if param is not None:
            assert error["param"] == param, error
        return error


def form_body(fields):
    """(body, Content-Type) of a form in multipart/form-data; bytes are a file."""
    boundary = "0f7e3b"
    parts = []
    for name, value in fields.items():
        is_file = isinstance(value, bytes)
        head = f'Content-Disposition: form-data; name="{name}"' + ('; filename="talk.bin"' if is_file else "")
        parts += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), value if is_file else str(value).encode(), b"\r\n"]
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


class Server:
    """ingot serve on a free port. log: its standard error so far."""

    def __init__(self, *args, ready=True, env=None):
        port = [] if "--port" in args else ["--port", "0"]
        command = [os.environ["INGOT"], "serve", *port, *map(str, args)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=os.environ | (env or {}))
        self.log = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        line = self.wait_for(r"listening on (\S+);")
        self.url = line[1]
        self.unix = self.url[5:] if self.url.startswith("unix:") else None
        self.tls = self.url.startswith("https:")
        self.host, self.port = (None, None) if self.unix else self.url.split("://")[1].rsplit(":", 1)
        if ready:
            self.wait_for("server is ready")

    def read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def wait_for(self, pattern, timeout=60):
        deadline = time.monotonic() + timeout * SLOW
        while time.monotonic() < deadline:
            for line in list(self.log):
                if match := re.search(pattern, line):
                    return match
            if self.process.poll() is not None:
                self.thread.join()
                for line in self.log:
                    if match := re.search(pattern, line):
                        return match
                break
            time.sleep(0.005)
        raise AssertionError(f"no {pattern!r} in {self.log}")

    def connect(self, timeout=60):
        if self.unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout)
            sock.connect(self.unix)
            return sock
        return socket.create_connection((self.host.strip("[]"), int(self.port)), timeout=timeout)

    def connection(self):
        made = http.client.HTTPConnection("localhost" if self.unix else self.host.strip("[]"), self.port or 80, timeout=60 * SLOW)
        if self.unix:
            made.sock = self.connect()
        return made

    def request(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.connection()
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        c.request(method, path, body, headers)
        response = c.getresponse()
        reply = Reply(response.status, response.headers, response.read())
        if not connection:
            c.close()
        return reply

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.request("POST", path, body, **kwargs)

    def chat(self, text="What is 7 + 5?", **fields):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]} | fields)

    def raw(self, data, timeout=15):
        """Sends the bytes and returns all received bytes until the server closes or is silent."""
        with self.connect(timeout) as sock:
            sock.sendall(data)
            got = b""
            try:
                while piece := sock.recv(65536):
                    got += piece
            except (TimeoutError, ConnectionResetError):
                pass
            return got

    def metric(self, name, **labels):
        total = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            match = re.fullmatch(rf"ingot:{name}\{{([^}}]*)\}} (\S+)", line)
            if match and all(f'{k}="{v}"' in match[1] for k, v in labels.items()):
                total += float(match[2])
        return total

    def wait_idle(self, timeout=10):
        deadline = time.monotonic() + timeout * SLOW
        while time.monotonic() < deadline:
            if self.metric("num_requests_running") + self.metric("num_requests_waiting") == 0:
                return
            time.sleep(0.01)
        raise AssertionError("the engine still has work")

    def stop(self, how=END):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(60 * SLOW)
        self.thread.join(5)
        return code


@contextlib.contextmanager
def running(*args):
    """A server that logs no requests. Checks that it ends without errors."""
    made = Server("--access-log", "none", *args)
    try:
        yield made
    except BaseException:
        made.stop()  # the test failed; its server must not outlive it
        raise
    assert made.stop() == 0, made.log


@contextlib.contextmanager
def caller():
    """The address of a server whose model always thinks, speaks and calls twice."""
    calls = [json.dumps({"name": "weather", "arguments": {"place": place}}, ensure_ascii=False) for place in ("Oslo", 'Zürich "B"')]
    text = "<think>Hm.</think>I look." + "".join(f"<tool_call>{call}</tool_call>" for call in calls)
    command = [os.environ["INGOT_FAKE_SERVER"], "--max-seqs", "4", "--ctx", "4096", "--writes", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:  # the test may have failed
            process.terminate()
    assert process.returncode == 0


@pytest.fixture(scope="session")
def server():
    with running("--max-seqs", 8) as made:
        yield made


def golden_of(model):
    """The golden data that tools/ made for a model's file or folder."""
    return json.loads((model.parent / (model.name.removesuffix(".gguf") + ".json")).read_text())


@pytest.fixture
def start():
    """start(*args) -> Server, which is stopped at the end."""
    made = []

    def make(*args, **kwargs):
        made.append(Server(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def short_path():
    with tempfile.TemporaryDirectory() as folder:  # tmp_path can be too long for a socket
        yield pathlib.Path(folder)
