"""The protocol under the API: routes, keys, hosts, malformed requests, limits (groups H and D of the fault list)."""
import contextlib
import json
import os
import socket
import time

import pytest
from conftest import SLOW

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
    params = props["default_generation_settings"]["params"]
    assert all(len(str(value)) <= 6 for value in params.values()), params  # 0.8, not 0.800000011920929
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
    (POST.replace(b"application/json", b"application/x-www-form-urlencoded") + b"Content-Length: 3\r\n\r\na=b", 415), (b"GET /health?" + b"q" * 8192 + b" HTTP/1.1\r\n" + HEAD + b"\r\n", 414),
    (POST.replace(b"application/json", b"application/json; charset=utf-16") + b"Content-Length: 3\r\n\r\nabc", 415),
])
def test_malformed_requests_are_refused_and_the_connection_closed(server, request_bytes, status):
    begin = time.monotonic()
    answer = server.raw(request_bytes)
    assert status_of(answer) == status, answer[:300]
    assert b"Connection: close" in answer and answer.count(b"\r\nConnection: ") == 1
    assert "error" in body_of(answer)
    assert time.monotonic() - begin < 14 * SLOW  # raw() did not wait for silence
    assert server.get("/health").status == 200


def test_leniency(server):
    """Accepted: a long query, HTTP/1.0, no Content-Type, a request after a failed one."""
    assert status_of(server.raw(b"GET /health?" + b"q" * 8000 + b" HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n")) == 200
    old = server.raw(b"GET /health HTTP/1.0\r\n" + HEAD + b"\r\n")
    assert status_of(old) == 200 and b"Connection: close" in old
    body = json.dumps({"prompt": "hi", "max_tokens": 2, "stream": True}).encode()
    old = server.raw(b"POST /v1/completions HTTP/1.0\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert status_of(old) == 200 and b"chunked" not in old and old.endswith(b"data: [DONE]\n\n")
    c = server.connection()
    for _ in range(3):
        server.request("POST", "/v1/completions", b'{"prompt": 5}', {"Content-Type": "application/json"}, connection=c).error(400)
        assert server.request("POST", "/v1/completions", GOOD_BODY, connection=c).status == 200


def test_lengths_that_are_not_the_bodys(server):
    """If a body is longer than its length, the rest is not taken as a request. If it is shorter, the answer says that
    it was cut."""
    answer = server.raw(POST + b"Content-Length: %d\r\n\r\n" % len(GOOD_BODY) + GOOD_BODY + GOOD_BODY)
    first, second = answer.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 ") and second.startswith(b"400 ") and b"Connection: close" in second
    assert status_of(server.raw(POST + b"Connection: close\r\nContent-Length: 5\r\n\r\n" + GOOD_BODY)) == 400
    with server.connect() as sock:
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % (len(GOOD_BODY) + 9) + GOOD_BODY)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1000).startswith(b"HTTP/1.1 400 ")
    with server.connect() as sock:
        sock.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(GOOD_BODY), GOOD_BODY))  # no last chunk
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1000).startswith(b"HTTP/1.1 400 ")


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


def of_equal_hash(n_pairs):
    """2^n names with equal hashes for Java's hash and others that multiply by 31 or 33. Their first bytes are equal
    too."""
    return ["x" * 40 + "".join("AaBB"[2 * (i >> bit & 1):][:2] for bit in range(n_pairs)) for i in range(1 << n_pairs)]


COLLIDING = {name: 1 for name in of_equal_hash(17)}


@pytest.mark.parametrize("fields", [{"unknown": [0] * 1_000_000}, {"unknown": {str(i): 1 for i in range(300_000)}}, {"unknown": COLLIDING}, COLLIDING],
                         ids=["array", "names", "names of equal hash", "fields of equal hash"])
def test_large_bodies_take_linear_time(server, fields):
    begin = time.monotonic()
    assert server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1} | fields).status == 200
    assert time.monotonic() - begin < 10 * SLOW


@pytest.mark.parametrize("place", ["chat_template_kwargs", "logit_bias", "metadata", "message", "tool"])
def test_names_of_equal_hash_wherever_names_are_read(server, place):
    """Four times as many names take less than nine times as long, or almost no time. The best of a few tries counts,
    because the machine may be busy."""
    user = {"role": "user", "content": "hi"}

    def seconds(n_pairs):
        many = {name: 1 for name in of_equal_hash(n_pairs)}
        body = {"max_tokens": 1, "messages": [user | many] if place == "message" else [user]}
        if place == "tool":
            body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": many}}]
        elif place != "message":
            body[place] = many
        begin = time.monotonic()
        reply = server.post("/v1/chat/completions", body)
        assert reply.status in (200, 400), reply.body[:300]
        return time.monotonic() - begin

    few = seconds(13)
    assert any(seconds(15) < max(SLOW, 9 * few) for _ in range(4)), few


def test_a_text_of_nothing_but_noncharacters_takes_linear_time(server):
    """U+10FFFF, which is removed from texts (text/chat_encode.cc)."""
    begin = time.monotonic()
    reply = server.post("/v1/chat/completions", {"max_tokens": 1, "messages": [{"role": "user", "content": "hi" + "\U0010ffff" * 400_000}]})
    assert reply.status == 200 and time.monotonic() - begin < 10 * SLOW


# ---- deadlines ----

def test_slow_clients_are_let_go(start):
    server = start("--header-timeout", 1, "--body-timeout", 1, "--idle-timeout", 2, "--access-log", "none")
    begin = time.monotonic()
    slow = [server.connect() for _ in range(50)]
    for sock in slow:
        sock.sendall(b"GET /health HT")
    half = server.connect()
    half.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    drip = server.connect()
    drip.sendall(POST + b"Content-Length: 100\r\n\r\n")
    idle = server.connect()
    assert server.chat(max_tokens=2).status == 200
    with contextlib.suppress(OSError):  # the server answers and then closes
        while time.monotonic() - begin < 4:
            drip.sendall(b" ")
            time.sleep(0.05)
    assert drip.recv(1000).startswith(b"HTTP/1.1 408 ")
    for sock in slow:
        assert sock.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert half.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert idle.recv(1000) == b""
    assert time.monotonic() - begin < 20 * SLOW  # otherwise idle connections would be kept for 60 s
    for sock in [*slow, half, drip, idle]:
        sock.close()


def test_many_short_connections_leave_nothing(server):
    files = lambda: len(os.listdir(f"/proc/{server.process.pid}/fd"))
    before = files()
    for i in range(3000):
        with server.connect() as sock:
            if i % 3 == 0:
                sock.sendall(b"GET /health HTTP/1.1\r\n" + HEAD * (i % 2))
    assert server.get("/health").status == 200  # accepted after all of them
    deadline = time.monotonic() + 30 * SLOW
    while files() > before + 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
    deadline = time.monotonic() + 30 * SLOW
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
    described = json.loads(server.raw(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").split(b"\r\n\r\n", 1)[1])["paths"]
    routes = [path.replace("{id}", "x").replace("{model}", "x") for path in described if path not in ("/health", "/v1/health")]
    assert len(routes) > 12 and not any("{" in path for path in routes)
    for path in [*routes, "/nothing", "/metrics/"]:
        bad = [(), ("Authorization: Bearer wrong",), ("Authorization: Bearer firs",), ("Authorization: Bearer firstt",), ("Authorization: first",), ("X-Api-Key:",),
               ("Authorization: Bearer first", "Authorization: Bearer wrong"), ("Authorization: Basic first",), ("Authorization: Bearer " + "x" * 4000,)]
        assert [ask(path, *headers) for headers in bad] == [401] * len(bad)
    for good in ("Authorization: Bearer first", "Authorization: bearer sesame", "X-Api-Key: other-key"):
        assert ask("/v1/models", good) == 200
    assert ask("/health") == ask("/") == 200
    for path, methods in described.items():  # with its own method too, before the body is read
        for method in methods:
            if path not in ("/health", "/v1/health"):
                for headers in ({}, {"X-Api-Key": "wrong"}):
                    assert server.request(method.upper(), path.replace("{id}", "x"), b"{" if method == "post" else None, {"Content-Type": "application/json", **headers}).status == 401
    assert status_of(server.raw(b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"X-Api-Key: " + b"x" * (1 << 20) + b"\r\n\r\n")) == 431
    keys.write_text("new-key\n")
    deadline = time.monotonic() + 30 * SLOW
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


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_closes_its_side_only_still_reads(server, stream, version):
    body = json.dumps({"prompt": "Once", "ignore_eos": True, "max_tokens": 300, "stream": stream, "temperature": 0}).encode()
    with server.connect() as sock:
        sock.sendall(POST.replace(b"1.1", version) + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while piece := sock.recv(65536):
            got += piece
    if stream:
        assert b"data: [DONE]" in got and got.count(b'"finish_reason":"length"') == 1
        return
    while got.startswith(b"HTTP/1.1 100 "):  # with these, the server finds out whether the client still reads
        assert version == b"1.1"
        got = got.split(b"\r\n\r\n", 1)[1]
    assert status_of(got) == 200 and body_of(got)["usage"]["completion_tokens"] == 300


def test_a_reader_that_never_reads_is_let_go(start):
    """After --write-timeout, a reader that never reads is disconnected and its request is cancelled. A reader of a few
    bytes at a time gets the whole answer."""
    server = start("--write-timeout", 1, "--max-seqs", 20, "--access-log", "none")
    body = json.dumps({"prompt": "Once", "ignore_eos": True, "max_tokens": 1500, "stream": True, "logprobs": 20, "n": 8}).encode()
    small = json.dumps({"prompt": "Once", "ignore_eos": True, "max_tokens": 200, "stream": True, "logprobs": 20, "n": 8, "seed": 1}).encode()

    def ask(bytes_):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60 * SLOW)
        sock.connect((server.host, int(server.port)))
        sock.sendall(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(bytes_) + bytes_)
        return sock

    never, slow = ask(body), ask(small)
    got = b""
    for _ in range(60):
        got += slow.recv(50)
        time.sleep(0.05)
    assert server.chat(temperature=0).json()["choices"][0]["message"]["content"] == "7 + 5 = 12."
    deadline = time.monotonic() + 60 * SLOW
    while server.metric("request_success_total", finished_reason="abort") < 1:
        assert time.monotonic() < deadline, "it is still waited for"
        time.sleep(0.1)
    assert server.metric("generation_tokens_total") < 8 * 1500, "what it does not read is not computed"
    while piece := slow.recv(65536):
        got += piece
    assert b"data: [DONE]" in got and got.count(b'"finish_reason":"length"') == 8
    with contextlib.suppress(OSError):
        rest = b""
        while piece := never.recv(65536):
            rest += piece
        assert b"[DONE]" not in rest
    for sock in (never, slow):
        sock.close()
    server.wait_idle()


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
