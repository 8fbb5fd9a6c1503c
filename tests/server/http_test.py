"""The protocol under the API: routes, keys, hosts, malformed requests, limits (groups H and D of the fault list)."""
import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest
from conftest import SLOW, SOURCE

HEAD = b"Host: localhost\r\n"


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:80]
    return int(answer[9:12])


def body_of(answer):
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])


# ---- routes ----

def test_health_models_and_props(server):
    assert server.get("/health").json() == {"status": "ok"} == server.get("/v1/health").json()
    (model,) = server.get("/v1/models").json()["data"]
    assert model["object"] == "model" and model["max_model_len"] == model["meta"]["n_ctx"] > 0 and model["meta"]["n_params"] > 1e6
    assert server.get(f"/v1/models/{model['id']}").json() == model
    server.get("/v1/models/none").error(404)
    props = server.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == model["max_model_len"] and "messages" in props["chat_template"]


def test_routes_that_are_not(server):
    server.get("/nothing").error(404)
    reply = server.get("/v1/chat/completions")
    reply.error(405)
    assert reply.headers["Allow"] == "POST"
    server.request("BREW", "/health").error(501)
    server.request("DELETE", "/health").error(405)
    for path in ("/v1/../health", "/%2e%2e/health", "//health", "/v1//models", "/health%00", "/./health", "/v1/models/..", "/health\\"):
        assert status_of(server.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())) == 404, path
    assert status_of(server.raw(b"GET http://localhost/health HTTP/1.1\r\n" + HEAD + b"\r\n")) == 400
    assert status_of(server.raw(b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n")) == 400


def test_head_has_no_body_and_pipelined_requests_come_in_order(server):
    answer = server.raw(b"HEAD /health HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n")
    assert status_of(answer) == 200 and answer.endswith(b"\r\n\r\n") and b"Content-Length: 15" in answer
    many = b"".join(f"GET {'/health' if i % 2 else '/nothing'} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r{i}\r\n\r\n".encode() for i in (1, 3, 5, 7))
    answer = server.raw(many + b"GET /health HTTP/1.1\r\n" + HEAD + b"X-Request-Id: last\r\nConnection: close\r\n\r\n")
    ids = [line.split(b": ")[1] for line in answer.split(b"\r\n") if line.startswith(b"X-Request-Id")]
    assert ids == [b"r1", b"r3", b"r5", b"r7", b"last"]


def test_request_ids(server):
    assert server.get("/health", headers={"X-Request-Id": "mine-1"}).headers["X-Request-Id"] == "mine-1"
    for bad in ("a b", "x" * 200, "a\x7fb", "<script>"):
        given = server.raw(f"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-Id: {bad}\r\n\r\n".encode())
        assert bad.encode() not in given


# ---- malformed requests ----

GOOD_BODY = json.dumps({"prompt": "hi", "max_tokens": 1}).encode()
POST = b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\n"


@pytest.mark.parametrize("request_bytes, status", [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 50, 400), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 501), (b"\r\n" * 1000, 400), (b"GET /health\r\n\r\n", 400),
    (b"GET  /health HTTP/1.1\r\n" + HEAD + b"\r\n", 400), (b"GET /health HTTP/2.0\r\n" + HEAD + b"\r\n", 505), (b"G(T /health HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"GET /health HTTP/1.1\n" + b"Host: localhost\n\n", 400), (b"GET /health HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nHost: a\x00b\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n" + HEAD + HEAD + b"\r\n", 400), (b"GET /health HTTP/1.1\r\nHost: a/b?c\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    (b"GET /health HTTP/1.1\r\n" + HEAD + b"X: a\r\n b\r\n\r\n", 400), (b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n" + HEAD + b"\r\n", 414),
    (b"GET /health HTTP/1.1\r\n" + HEAD + b"X: " + b"a" * 65536 + b"\r\n\r\n", 431), (b"GET /health HTTP/1.1\r\n" + HEAD + b"X: a\r\n" * 120 + b"\r\n", 431),
    (POST + b"\r\n" + GOOD_BODY, 411), (POST + b"Content-Length: -1\r\n\r\n" + GOOD_BODY, 400), (POST + b"Content-Length: +5\r\n\r\n" + GOOD_BODY, 400),
    (POST + b"Content-Length: 0x10\r\n\r\n" + GOOD_BODY, 400), (POST + b"Content-Length: 5, 5\r\n\r\n" + GOOD_BODY, 400), (POST + b"Content-Length:\r\n\r\n" + GOOD_BODY, 400),
    (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n" + GOOD_BODY, 400), (POST + b"Content-Length: 18446744073709551616\r\n\r\n", 413),
    (POST + b"Content-Length: 99999999999\r\n\r\n", 413), (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400), (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400), (POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab\r\n0\r\n\r\n", 413), (POST + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 200000 + b"\r\nab\r\n0\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", 400), (POST + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415),
    (POST + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc", 415), (POST.replace(b"application/json", b"text/plain") + b"Content-Length: 3\r\n\r\nabc", 415),
    (POST.replace(b"application/json", b"application/json; charset=utf-16") + b"Content-Length: 3\r\n\r\nabc", 415),
])
def test_malformed_requests_are_refused_and_the_connection_closed(server, request_bytes, status):
    begin = time.monotonic()
    answer = server.raw(request_bytes)
    assert status_of(answer) == status, answer[:300]
    assert b"Connection: close" in answer and answer.count(b"\r\nConnection: ") == 1
    assert "error" in body_of(answer)
    assert time.monotonic() - begin < 5 * SLOW
    assert server.get("/health").status == 200


def test_chunked_bodies(server):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(GOOD_BODY[i:i + 6]), GOOD_BODY[i:i + 6]) for i in range(0, len(GOOD_BODY), 6))
    answer = server.raw(POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n")
    assert status_of(answer) == 200
    padded = json.dumps({"prompt": "hi", "max_tokens": 1, "pad": "x" * 3_000_000}).encode()
    chunks = b"".join(b"6\r\n%s\r\n" % padded[i:i + 6] for i in range(0, len(padded) // 6 * 6, 6))
    tail = padded[len(padded) // 6 * 6:]
    chunks += b"%x\r\n%s\r\n" % (len(tail), tail) if tail else b""
    begin = time.monotonic()
    assert status_of(server.raw(POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")) == 200
    assert time.monotonic() - begin < 20 * SLOW


def test_bodies_over_the_limit(start):
    server = start("--max-body-bytes", 2000, "--access-log", "none")
    fit = json.dumps({"prompt": "hi", "max_tokens": 1, "pad": ""}).encode()
    for n, status in ((2000, 200), (2001, 413)):
        body = fit.replace(b'"pad": ""', b'"pad": "%s"' % (b"x" * (n - len(fit))))
        assert len(body) == n
        assert status_of(server.raw(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % n + body)) == status
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (n, body)
        assert status_of(server.raw(POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)) == status


def test_expect_100_continue(server):
    with server.connect() as sock:
        sock.sendall(POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(GOOD_BODY))
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        sock.sendall(GOOD_BODY)
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
    assert status_of(server.raw(POST + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")) == 413


@pytest.mark.parametrize("body", [b"", b"  ", b"{", b"nul", b"[]", b'"x"', b"5", b"null", b'{"a":1}x', b'{"a":1}{"b":2}', b"\xef\xbb\xbf{}", b'{"a":1e999}', b'{"a":' + b"9" * 400 + b"}",
                                  b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"a":"\xff"}', b'{"a":"\x01"}', b'{"a":1,}', b"{'a':1}", b"{\"a\":01}",
                                  b"[" * 65 + b"]" * 65, b"[" * 3000, b"[" * 1_000_000, b'{"a":' * 100_000, b'{"prompt":"a\x00b"}', b'\xff\xfe{\x00}\x00'])
def test_bodies_that_are_not_json(server, body):
    error = server.request("POST", "/v1/completions", body, {"Content-Type": "application/json"}).error(400)
    assert error["type"] == "invalid_request_error" and len(error["message"]) < 2000


def test_every_prefix_of_a_body(server):
    c = server.connection()
    for i in range(len(GOOD_BODY)):
        server.request("POST", "/v1/completions", GOOD_BODY[:i], {"Content-Type": "application/json"}, connection=c).error(400)


def test_depth_64_is_taken(server):
    deep = json.loads("[" * 62 + "]" * 62)
    assert server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, "unknown": deep}).status == 200


def test_large_bodies_take_linear_time(server):
    for field in ([0] * 1_000_000, {str(i): 1 for i in range(300_000)}):
        begin = time.monotonic()
        assert server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, "unknown": field}).status == 200
        assert time.monotonic() - begin < 10 * SLOW


# ---- deadlines ----

def test_slow_clients_are_let_go(start):
    server = start("--header-timeout", 1, "--body-timeout", 1, "--idle-timeout", 2, "--access-log", "none")
    begin = time.monotonic()
    slow = [server.connect() for _ in range(50)]
    for sock in slow:
        sock.sendall(b"GET /health HT")
    half = server.connect()
    half.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    idle = server.connect()
    assert server.chat(max_tokens=2).status == 200
    for sock in slow:
        assert sock.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert half.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert idle.recv(1000) == b""
    assert time.monotonic() - begin < 10 * SLOW
    for sock in [*slow, half, idle]:
        sock.close()


def test_too_many_connections(start):
    server = start("--max-connections", 20, "--access-log", "none")
    held = [server.connect() for _ in range(20)]
    for sock in held:
        sock.sendall(b"G")
    time.sleep(0.2)
    with server.connect() as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 503 ")
    for sock in held:
        sock.close()
    deadline = time.monotonic() + 5 * SLOW
    while time.monotonic() < deadline:
        try:
            if server.get("/health").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("no room again")


# ---- keys, hosts, origins ----

def test_keys(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsesame  # one\r\nother-key\r\n")
    server = start("--api-key", "first", "--api-key-file", keys, "--access-log", "none")
    ask = lambda path, *headers: status_of(server.raw(b"GET %s HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n%s\r\n" % (path.encode(), b"".join(h.encode() + b"\r\n" for h in headers))))
    routes = ["/v1/models", "/metrics", "/props", "/nothing", "/v1/chat/completions", "/tokenize"]
    for path in routes:
        bad = [(), ("Authorization: Bearer wrong",), ("Authorization: Bearer firs",), ("Authorization: Bearer firstt",), ("Authorization: first",), ("X-Api-Key:",),
               ("Authorization: Bearer first", "Authorization: Bearer wrong"), ("Authorization: Basic first",), ("Authorization: Bearer " + "x" * 4000,)]
        assert [ask(path, *headers) for headers in bad] == [401] * len(bad)
    for good in ("Authorization: Bearer first", "Authorization: bearer sesame", "X-Api-Key: other-key"):
        assert ask("/v1/models", good) == 200
    assert ask("/health") == ask("/") == 200
    keys.write_text("new-key\n")
    deadline = time.monotonic() + 5 * SLOW
    while ask("/v1/models", "X-Api-Key: new-key") != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ask("/v1/models", "X-Api-Key: new-key") == 200 and ask("/v1/models", "X-Api-Key: sesame") == 401
    keys.write_text("")
    time.sleep(1)
    assert ask("/v1/models", "X-Api-Key: new-key") == 200, "a key file that has become bad keeps the keys"
    assert not any("sesame" in line or "first" in line for line in server.log)


def test_origins(server, start):
    reply = lambda s, origin, method="GET": s.request(method, "/v1/models", headers={"Origin": origin})
    assert reply(server, "https://evil.example").status == 403
    own = reply(server, "http://localhost:3000")
    assert own.headers["Access-Control-Allow-Origin"] == "http://localhost:3000" and "Access-Control-Allow-Credentials" not in own.headers
    assert reply(server, "http://localhost.evil.example").status == 403
    assert reply(server, "http://localhost:3000", "OPTIONS").status == 204
    listed = start("--cors-origins", "https://app.example", "--access-log", "none")
    assert reply(listed, "https://app.example").headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert reply(listed, "https://app.example.evil").status == 403


# ---- disconnects ----

@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_is_cancelled(server, stream):
    body = json.dumps({"prompt": "Once", "ignore_eos": True, "max_tokens": 400, "stream": stream}).encode()
    aborted = server.metric("request_success_total", finished_reason="abort")
    for wait in (0, 0.01, 0.05):
        with server.connect() as sock:
            sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(wait)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset
    server.wait_idle()
    with server.connect() as sock:
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.05)
    server.wait_idle()
    assert server.metric("request_success_total", finished_reason="abort") > aborted
    assert server.metric("kv_cache_usage_perc") == 0


def test_a_client_that_closes_its_side_only_still_reads(server):
    body = json.dumps({"prompt": "Once", "ignore_eos": True, "max_tokens": 50, "stream": True}).encode()
    with server.connect() as sock:
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while piece := sock.recv(65536):
            got += piece
    assert got.rstrip().endswith(b"0") and b"data: [DONE]" in got


def test_a_reader_that_stops_holds_up_nobody(server):
    body = json.dumps({"prompt": "Once", "ignore_eos": True, "max_tokens": 400, "stream": True, "logprobs": 5}).encode()
    stalled = []
    for _ in range(4):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((server.host, int(server.port)))
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stalled.append(sock)
    assert [server.chat(temperature=0).json()["choices"][0]["message"]["content"] for _ in range(5)] == ["7 + 5 = 12."] * 5
    for sock in stalled:
        sock.close()
    server.wait_idle()


# ---- the server's life ----

def streams(server, n, max_tokens):
    """n streams, each on a thread; returns (threads, results)."""
    results = [None] * n

    def one(i):
        with contextlib.suppress(http.client.HTTPException, OSError):  # of those that are cut there is no result
            results[i] = server.post("/v1/completions", {"prompt": "Once", "ignore_eos": True, "max_tokens": max_tokens, "stream": True, "seed": i})

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    return threads, results


def test_sigterm_lets_streams_end(start):
    server = start("--max-seqs", 8, "--access-log", "none")
    server.chat(max_tokens=1)
    threads, results = streams(server, 12, 60)
    while server.metric("num_requests_running") < 4:
        pass
    server.process.send_signal(15)
    server.wait_for("shutting down")
    assert server.get("/health").status == 503
    server.chat(max_tokens=1).error(503)
    for thread in threads:
        thread.join()
    taken = [result for result in results if result.status == 200]  # some may have come after the signal
    assert len(taken) >= 4
    for result in taken:
        events = result.events()  # with [DONE]
        assert events[-1]["choices"][0]["finish_reason"] == "length"
    begin = time.monotonic()
    assert server.process.wait(10 * SLOW) == 0 and time.monotonic() - begin < 5 * SLOW


def test_the_drain_has_an_end_and_a_second_signal_is_at_once(start):
    server = start("--shutdown-timeout", 0, "--access-log", "none")
    threads, results = streams(server, 2, 400)
    while server.metric("num_requests_running") < 2:
        pass
    begin = time.monotonic()
    assert server.stop() == 0 and time.monotonic() - begin < 3 * SLOW
    for thread in threads:
        thread.join()
    for result in results:
        assert b'"error"' in result.body and b"[DONE]" not in result.body
    again = start("--access-log", "none")
    threads, _ = streams(again, 2, 500)
    while again.metric("num_requests_running") < 2:
        pass
    again.process.send_signal(2)
    again.wait_for("shutting down")
    again.process.send_signal(2)
    assert again.process.wait(2 * SLOW) == 130
    for thread in threads:
        thread.join()


def test_a_model_file_that_is_written_to_makes_the_server_unhealthy(start, tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes((SOURCE / "models" / "demo.gguf").read_bytes())
    server = start(model, "--access-log", "none")
    replacement = tmp_path / "new.gguf"
    replacement.write_bytes(model.read_bytes())
    replacement.rename(model)  # another file: what runs keeps the old one
    assert server.chat(max_tokens=4).status == 200
    time.sleep(1.2)
    assert server.get("/health").status == 200
    changed = start(model, "--access-log", "none")
    with model.open("r+b") as file:
        file.seek(-1000, 2)
        file.write(b"\0" * 10)
    deadline = time.monotonic() + 5 * SLOW
    while changed.get("/health").status == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    changed.chat(max_tokens=4).error(503)
    assert changed.get("/health").status == 503
    changed.wait_for("has been written to or cut while it was in use")
    assert server.get("/health").status == 200
    assert changed.stop() == 0


def test_idle_servers_end_at_once_and_come_back_on_their_port(start):
    server = start("--access-log", "none")
    c = server.connection()
    server.get("/health", connection=c)
    begin = time.monotonic()
    assert server.stop() == 0 and time.monotonic() - begin < 1.5 * SLOW
    again = start("--port", server.port, "--access-log", "none")
    assert again.port == server.port and again.get("/health").status == 200


def test_a_full_queue_is_429(start):
    server = start("--max-seqs", 1, "--queue", 2, "--access-log", "none")
    threads, results = streams(server, 3, 300)
    while server.metric("num_requests_running") + server.metric("num_requests_waiting") < 3:
        pass
    reply = server.chat(max_tokens=1)
    assert reply.error(429)["code"] == "queue_full" and int(reply.headers["Retry-After"]) >= 1
    server.chat(n=2, max_tokens=1).error(429)
    for thread in threads:
        thread.join()
    assert server.chat(max_tokens=1).status == 200 and server.metric("requests_rejected_total") == 2


def test_unix_socket(start, short_path):
    path = short_path / "s"
    server = start("--host", f"unix:{path}", "--access-log", "none")
    assert server.chat(temperature=0).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."
    assert server.stop() == 0 and not path.exists()


def test_tls(start, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = start("--ssl-cert-file", cert, "--ssl-key-file", key, "--access-log", "none")
    assert server.tls
    context = ssl.create_default_context(cafile=cert)
    with context.wrap_socket(server.connect(), server_hostname="127.0.0.1") as sock:
        body = json.dumps({"prompt": "Once", "max_tokens": 30, "ignore_eos": True, "stream": True}).encode()
        sock.sendall(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        got = b""
        while piece := sock.recv(65536):
            got += piece
    assert got.count(b'"text"') >= 25 and b"data: [DONE]" in got
    assert b"HTTP/1.1" not in server.raw(b"GET /health HTTP/1.1\r\n" + HEAD + b"\r\n")
    assert subprocess.run([os.environ["INGOT"], "serve", "--ssl-cert-file", cert], capture_output=True).returncode == 1


def test_the_access_log_tells_everything_but_the_text(start, tmp_path):
    path = tmp_path / "access.log"
    server = start("--access-log", path)
    server.chat("A very secret question", max_tokens=3, seed=1)
    server.raw(b"GET /a\x1b HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert server.stop() == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    chat = next(l for l in lines if l["path"] == "/v1/chat/completions")
    assert chat["status"] == 200 and chat["completion_tokens"] == 3 and chat["prompt_tokens"] > 3 and chat["ms"] > 0 and chat["bytes_out"] > 100
    text = path.read_text()
    assert "secret" not in text and "\x1b" not in text and any(l["status"] == 400 for l in lines)


@pytest.mark.parametrize("args, code, word", [
    (["--host", "0.0.0.0"], 1, "--api-key"), (["--host", "no.such.host.invalid"], 1, "no.such.host"), (["--port", "-1"], 2, "--port"), (["--port", "70000"], 2, "--port"),
    (["--max-seqs", "0"], 2, "--max-seqs"), (["/nonexistent.gguf"], 1, "nonexistent"), (["--api-key-file", "/nonexistent"], 1, "nonexistent"), (["--api-key", ""], 2, "key"),
    (["--host", "unix:" + "x" * 200], 1, "Unix"), (["--no-such-flag"], 2, "--no-such-flag"),
])
def test_what_cannot_start_says_why(args, code, word):
    done = subprocess.run([os.environ["INGOT"], "serve", "--port", "0", *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (code, "") and word in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_flags_take_one_value_each(start):
    demo = os.path.join(os.environ["INGOT_SOURCE"], "models", "demo.gguf")
    server = start("--access-log", "none", "--api-key", "a", "--api-key", "b", "--alias", "x,y", demo)
    assert server.get("/v1/models", headers={"X-Api-Key": demo}).status == 401
    (model,) = server.get("/v1/models", headers={"X-Api-Key": "b"}).json()["data"]
    assert model["id"] == "x" and model["aliases"] == ["x", "y"] and model["meta"]["size"] > 1e6


def test_a_port_in_use(server):
    done = subprocess.run([os.environ["INGOT"], "serve", "--port", server.port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and server.port in done.stderr


def test_metrics_are_prometheus(server, start):
    server.chat(max_tokens=3)
    text = server.get("/metrics").body.decode()
    types = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types, "one TYPE line each"
            types[name] = kind
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            float(value)
            base = name.split("{")[0]
            assert base in types or base.rsplit("_", 1)[0] in types, line
    for name in ("e2e_request_latency_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds", "request_prompt_tokens"):
        assert types["ingot:" + name] == "histogram"
    assert server.metric("generation_tokens_total") >= 3
    counts = [float(l.rsplit(" ", 1)[1]) for l in text.splitlines() if l.startswith("ingot:e2e_request_latency_seconds_bucket")]
    assert counts == sorted(counts) and counts[-1] == server.metric("e2e_request_latency_seconds_count") >= 1
    assert "vllm:" not in text
    both = start("--metrics-compat", "vllm", "--access-log", "none").get("/metrics").body.decode()
    assert both.count("vllm:") == both.count("ingot:")
