"""The server's memory under requests that take a lot of it, in a process with a limit."""
import json
import resource
import time

from conftest import SLOW


def peak_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def now_bytes(server):
    with open(f"/proc/{server.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_many_small_values_and_large_answers(start):
    """12 MB of empty messages, and texts whose pieces would take gigabytes: 413 or 503, within the budget, and the server
    works afterwards."""
    budget = 256 << 20
    server = start("--access-log", "none", "--request-memory", "256MiB")
    right = server.chat(temperature=0).json()["choices"][0]["message"]["content"]
    before = peak_bytes(server)
    text = "a b c d " * 2_000_000
    for path, body in [("/v1/chat/completions", '{"messages":[' + "{}," * 4_194_304 + "{}]}"),
                       ("/tokenize", json.dumps({"content": text, "with_pieces": True, "return_token_strs": True})),
                       ("/detokenize", '{"tokens":[' + "9," * 4_000_000 + "9]}")]:
        reply = server.post(path, body, headers={"Content-Type": "application/json"})
        assert reply.status in (413, 503), (path, reply.status)
        assert reply.json()["error"]["code"] == "request_memory"
    assert server.post("/tokenize", {"content": text}).status in (200, 413, 503)
    assert peak_bytes(server) - before < 2 * budget, (before, peak_bytes(server))
    assert server.post("/tokenize", {"content": "a b c d " * 10_000, "with_pieces": True}).json()["count"] > 10_000
    assert server.chat(temperature=0).json()["choices"][0]["message"]["content"] == right
    assert server.stop() == 0


def test_a_process_with_little_memory_goes_on(start):
    """By default, the budget fits a limit of the process."""
    server = start("--access-log", "none", "-t", "2")
    right = server.chat(temperature=0).json()["choices"][0]["message"]["content"]
    with open(f"/proc/{server.process.pid}/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + (400 << 20)
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
    for _ in range(3):
        reply = server.post("/v1/chat/completions", '{"messages":[' + "{}," * 4_194_304 + "{}]}", headers={"Content-Type": "application/json"})
        assert reply.status in (400, 413, 503), reply.status
        assert server.chat(temperature=0).json()["choices"][0]["message"]["content"] == right
    assert server.stop() == 0


def test_memory_is_given_back(start):
    server = start("--access-log", "none", "--request-memory", "2GiB")
    server.chat(temperature=0)
    before = now_bytes(server)
    assert server.post("/tokenize", {"content": "a b c d " * 1_000_000, "with_pieces": True}).status == 200
    deadline = time.monotonic() + 30 * SLOW
    while now_bytes(server) > before + (48 << 20):
        assert time.monotonic() < deadline, (before, now_bytes(server))
        time.sleep(0.1)
    assert server.stop() == 0
