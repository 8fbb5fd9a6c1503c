"""Two servers behind HAProxy, as in docs/server.md. If a server is drained or killed, only the requests that it was
answering fail. Turns of one conversation go to one server, whose cache has them."""
import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import SLOW, SOURCE


@pytest.fixture
def haproxy(tmp_path):
    """haproxy(servers) -> the port of a proxy in front of them, with the configuration of docs/server.md."""
    if not shutil.which("haproxy"):
        pytest.skip("there is no haproxy")
    started = []

    def start(servers):
        text = (SOURCE / "docs" / "server.md").read_text()
        config = re.search(r"```haproxy\n(.*?)```", text, re.S)[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        lines = [f"  server r{i} {host}" for i, host in enumerate(servers)]
        config = re.sub(r"( +server \S+ \S+\n)+", "\n".join(lines) + "\n", config)
        config = config.replace("bind :80", f"bind 127.0.0.1:{port}")
        assert config.count("  server r") == len(servers) and f":{port}" in config
        file = tmp_path / "haproxy.cfg"
        file.write_text(config)
        checked = subprocess.run(["haproxy", "-c", "-f", file], capture_output=True, text=True)
        assert checked.returncode == 0 and "WARNING" not in checked.stderr, checked.stdout + checked.stderr
        started.append(subprocess.Popen(["haproxy", "-db", "-f", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + 30 * SLOW
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if ask(port, "GET", "/health")[0] == 200:
                    return port
            time.sleep(0.05)
        raise AssertionError("the proxy does not answer")

    yield start
    for process in started:
        process.kill()
        process.wait()


def ask(port, method, path, body=None):
    """Returns (status, body). Raises if the connection is cut."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60 * SLOW)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
    reply = connection.getresponse()
    return reply.status, reply.read()


def completion(prompt, n):
    return {"prompt": prompt, "max_tokens": n, "ignore_eos": True, "temperature": 0}


class Clients:
    """Threads that send short requests one after another until they are stopped."""

    def __init__(self, port, n):
        self.stop, self.replies, self.cut = False, [], []
        self.threads = [threading.Thread(target=self.work, args=(port, i)) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def work(self, port, i):
        turn = 0
        while not self.stop:
            turn += 1
            begun = time.monotonic()
            try:
                status, body = ask(port, "POST", "/v1/completions", completion(f"Client {i}, request {turn}:", 8))
                self.replies.append((begun, status, body))
            except (OSError, http.client.HTTPException) as error:
                self.cut.append((begun, time.monotonic(), error))

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()


def wait_until(done, what, timeout=60):
    deadline = time.monotonic() + timeout * SLOW
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def replicas(start):
    return [start("--access-log", "none", "--max-seqs", 4) for _ in range(2)]


def requests_of(server):
    return server.metric("request_success_total")


def test_a_drained_replica_loses_no_request(start, haproxy):
    servers = replicas(start)
    port = haproxy([f"127.0.0.1:{s.port}" for s in servers])
    clients = Clients(port, 4)
    wait_until(lambda: all(requests_of(s) > 3 for s in servers), "both servers work")
    connection = http.client.HTTPConnection("127.0.0.1", int(servers[0].port), timeout=60 * SLOW)
    connection.request("POST", "/v1/completions", json.dumps(completion("Once", 1500) | {"stream": True}), {"Content-Type": "application/json"})
    long = connection.getresponse()
    first = long.readline()  # the answer has begun
    servers[0].process.send_signal(signal.SIGTERM)
    assert first.startswith(b"data: ") and long.read().endswith(b"data: [DONE]\n\n"), "what was in flight has come to its end"
    assert servers[0].process.wait(60 * SLOW) == 0
    before = requests_of(servers[1])
    wait_until(lambda: requests_of(servers[1]) > before + 8, "the other server goes on")
    clients.end()
    assert clients.cut == [] and [reply for reply in clients.replies if reply[1] != 200] == []


def test_a_killed_replica_loses_only_what_it_was_writing(start, haproxy):
    servers = replicas(start)
    port = haproxy([f"127.0.0.1:{s.port}" for s in servers])
    clients = Clients(port, 4)
    wait_until(lambda: all(requests_of(s) > 3 for s in servers), "both servers work")
    killed = time.monotonic()
    servers[0].process.send_signal(signal.SIGKILL)
    before = requests_of(servers[1])
    wait_until(lambda: requests_of(servers[1]) > before + 20, "the other server goes on")
    clients.end()
    bad = [(begun, status) for begun, status, _ in clients.replies if status != 200] + [(begun, "cut") for begun, _, _ in clients.cut]
    assert len(bad) <= 4, bad  # one for each client
    assert all(begun < killed + 0.5 * SLOW for begun, _ in bad), "a later request goes to the server that lives"


def test_turns_of_a_conversation_go_to_one_replica(start, haproxy):
    servers = replicas(start)
    port = haproxy([f"127.0.0.1:{s.port}" for s in servers])
    for user in range(6):
        counts = [requests_of(s) for s in servers]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * SLOW)
        for turn in range(4):
            connection.request("POST", "/v1/completions", json.dumps(completion("Once", 2)), {"Content-Type": "application/json", "X-Session": f"user {user}"})
            assert connection.getresponse().read()
        more = [requests_of(s) - n for s, n in zip(servers, counts)]
        assert sorted(more) == [0, 4], more
