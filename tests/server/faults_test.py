"""Calls that fail in the server (row 17 of the load table; F06, H03, P05, P08 of the fault list), by preloading
fail_calls.cc. At the start, each failing call gives a message and an exit code. Later, it ends at most one connection
or request."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import SLOW, Server

LIBRARY = os.environ.get("INGOT_FAIL_CALLS", "")
pytestmark = pytest.mark.skipif(not LIBRARY, reason="not with a sanitizer, which has its own memory")


def env(call, **fields):
    return {"LD_PRELOAD": LIBRARY, "FAIL_CALL": call} | {name: str(value) for name, value in fields.items()}


@pytest.mark.parametrize("call, most", [("socket", 3), ("epoll_create1", 3), ("eventfd", 3), ("pthread_create", 12)])
def test_each_call_of_the_start(call, most):
    for k in range(1, most + 1):
        process = subprocess.Popen([os.environ["INGOT"], "serve", "--port", "0", "--access-log", "none"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=os.environ | env(call, FAIL_AT=k, FAIL_ARMED=1))
        said = ""
        for line in process.stderr:
            said += line
            if "server is ready" in line:  # the server works without this call
                process.send_signal(signal.SIGTERM)
        code = process.wait(60 * SLOW)
        assert code in (0, 1) and said, (call, k, code, said)
        if code == 1:
            assert said.strip().splitlines()[-1].startswith("ingot: ") or "error" in said, said


def let_calls_fail(server, do):
    """Begins or ends the failures. A signal arrives some time after it was sent, so this waits for the answer to it."""
    server.process.send_signal(signal.SIGUSR2)
    server.wait_for("calls fail now" if do else "calls work again")


def test_no_descriptor_for_a_connection(start):
    server = start("--access-log", "none", env=env("accept", FAIL_EVERY=2))
    let_calls_fail(server, True)
    for _ in range(20):
        assert server.get("/health").status == 200
    let_calls_fail(server, False)
    assert server.chat(temperature=0).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."
    assert server.stop() == 0


def test_no_request_makes_it_connect_to_anyone(start):
    """No field with a URL makes the server connect (H35). Here a server that calls connect() would end at once."""
    server = start("--access-log", "none", env=env("connect", FAIL_EVERY=1, FAIL_ARMED=1))
    url = f"http://127.0.0.1:{server.port}/secret"
    user = lambda content: {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    schema = {"type": "object", "$ref": url, "properties": {"a": {"$ref": url}}}
    for path, body in [("/v1/chat/completions", user([{"type": "image_url", "image_url": {"url": url}}])), ("/v1/chat/completions", user(url)),
                       ("/v1/chat/completions", user("hi") | {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}, "url": url}], "metadata": {"url": url}}),
                       ("/v1/chat/completions", user("hi") | {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}, "chat_template_kwargs": {"url": url}}),
                       ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}, {"type": "input_file", "file_url": url}]}]}),
                       ("/v1/responses", {"input": url, "tools": [{"type": "mcp", "server_url": url}], "max_output_tokens": 2}),
                       ("/v1/messages", user([{"type": "image", "source": {"type": "url", "url": url}}])), ("/v1/embeddings", {"input": url}), ("/apply-template", user(url))]:
        assert server.post(path, body).status in (200, 400), (path, body)
    assert server.process.poll() is None and server.stop() == 0
    asked = subprocess.run([os.environ["INGOT"], "serve", "no/such"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW,
                           env=os.environ | env("connect", FAIL_EVERY=1, FAIL_ARMED=1) | {"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert asked.returncode == 99, "who asks for a model of the Hub has it connect, and that is seen"


@pytest.mark.parametrize("every", [20, 200])
def test_no_memory_for_a_request(start, every):
    """One in so many large allocations fails while eight clients send requests. Each answer is right, an error, or cut
    short. Afterwards, the server works as before."""
    server = start("--access-log", "none", "--max-seqs", 8, "--sse-ping-interval", 1, env=env("new", FAIL_EVERY=every))
    right = server.chat("Tell me a story.", temperature=0, max_tokens=30).json()["choices"][0]["message"]["content"]
    files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    counts = {"right": 0, "refused": 0, "cut": 0}
    wrong = []
    lock = threading.Lock()

    def ask(i):
        for k in range(10):
            kind = "cut"
            try:
                reply = server.chat("Tell me a story.", temperature=0, max_tokens=30, stream=(i + k) % 2 == 0)
                if reply.status != 200:
                    kind = "refused"
                elif (i + k) % 2:
                    kind = "right" if json.loads(reply.body)["choices"][0]["message"]["content"] == right else "wrong"
                elif b"[DONE]" in reply.body:
                    kind = "right" if "".join(c["delta"].get("content") or "" for e in reply.events() for c in e["choices"]) == right else "wrong"
            except Exception as error:  # a connection that ended
                if server.process.poll() is not None:
                    wrong.append(repr(error))
                    return
            with lock:
                if kind == "wrong":
                    wrong.append(reply.body)
                else:
                    counts[kind] += 1

    let_calls_fail(server, True)
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120 * SLOW)
    assert not any(thread.is_alive() for thread in threads), "an answer never ended"
    let_calls_fail(server, False)
    print(every, counts)
    assert server.process.poll() is None and not wrong, (server.log[-3:], wrong[:1])
    assert counts["refused"] + counts["cut"] > 0
    server.wait_idle()
    assert server.metric("kv_cache_usage_perc") == 0
    deadline = time.monotonic() + 30 * SLOW
    while len(os.listdir(f"/proc/{server.process.pid}/fd")) > files + 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert server.chat("Tell me a story.", temperature=0, max_tokens=30).json()["choices"][0]["message"]["content"] == right
    assert server.stop() == 0
