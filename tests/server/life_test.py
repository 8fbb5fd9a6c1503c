"""The server's life cycle: signals, queues, changing files, other kinds of sockets, logs and figures (groups D, F and P
of the fault list)."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from conftest import SLOW, SOURCE

HEAD = b"Host: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\n"


def streams(server, n, max_tokens):
    """n streams, each on a thread; returns (threads, results)."""
    results = [None] * n

    def one(i):
        with contextlib.suppress(http.client.HTTPException, OSError):  # streams that are cut have no result
            results[i] = server.post("/v1/completions", {"prompt": "Once", "ignore_eos": True, "max_tokens": max_tokens, "stream": True, "seed": i})

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    return threads, results


def test_sigterm_lets_streams_end(start):
    server = start("--max-seqs", 8, "--access-log", "none")
    server.chat(max_tokens=1)
    threads, results = streams(server, 12, 200)
    while server.metric("num_requests_running") < 4:
        pass
    server.process.send_signal(15)
    server.wait_for("shutting down")
    assert server.get("/health").status == 503
    server.chat(max_tokens=1).error(503)
    for thread in threads:
        thread.join()
    taken = [result for result in results if result and result.status == 200]  # some may have arrived after the signal
    assert len(taken) >= 4
    for result in taken:
        events = result.events()  # with [DONE]
        assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert server.process.wait(15 * SLOW) == 0  # otherwise it would wait for 30 s


def test_the_drain_has_an_end_and_a_second_signal_is_at_once(start):
    server = start("--shutdown-timeout", 0, "--access-log", "none")
    threads, results = streams(server, 2, 1500)
    while server.metric("num_requests_running") < 2:
        pass
    begin = time.monotonic()
    assert server.stop() == 0 and time.monotonic() - begin < 10 * SLOW
    for thread in threads:
        thread.join()
    for result in results:
        assert b'"error"' in result.body and b"[DONE]" not in result.body
    again = start("--access-log", "none")
    threads, _ = streams(again, 2, 1500)
    while again.metric("num_requests_running") < 2:
        pass
    again.process.send_signal(2)
    again.wait_for("shutting down")
    again.process.send_signal(2)
    assert again.process.wait(10 * SLOW) == 130
    for thread in threads:
        thread.join()


def test_a_model_file_that_is_written_to_makes_the_server_unhealthy(start, tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes((SOURCE / "models" / "demo.gguf").read_bytes())
    server = start(model, "--access-log", "none")
    replacement = tmp_path / "new.gguf"
    replacement.write_bytes(model.read_bytes())
    replacement.rename(model)  # a new file: the running server keeps the old one
    assert server.chat(max_tokens=4).status == 200
    time.sleep(1.2)
    assert server.get("/health").status == 200
    changed = start(model, "--access-log", "none")
    with model.open("r+b") as file:
        file.seek(-1000, 2)
        file.write(b"\0" * 10)
    deadline = time.monotonic() + 30 * SLOW
    while changed.get("/health").status == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    changed.chat(max_tokens=4).error(503)
    assert changed.get("/health").status == 503
    changed.wait_for("was changed or truncated while in use")
    assert server.get("/health").status == 200
    assert changed.stop() == 0


def test_idle_servers_end_at_once_and_come_back_on_their_port(start):
    server = start("--access-log", "none")
    c = server.connection()
    server.get("/health", connection=c)
    begin = time.monotonic()
    assert server.stop() == 0 and time.monotonic() - begin < 15 * SLOW  # not when it has idled for 60 s, nor after the 30 s of a drain
    again = start("--port", server.port, "--access-log", "none")
    assert again.port == server.port and again.get("/health").status == 200


def test_sigterm_while_the_model_loads():
    for _ in range(5):
        process = subprocess.Popen([os.environ["INGOT"], "serve", "--port", "0"], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        try:
            assert "loading the model" in process.stderr.readline()
            time.sleep(random.uniform(0, 0.03))  # sometimes just after the answer
            process.send_signal(15)
            assert process.wait(20 * SLOW) == 0
        finally:
            process.kill()
            process.stderr.close()


def test_a_full_queue_is_429(start):
    server = start("--max-seqs", 1, "--queue", 2, "--access-log", "none")
    threads, results = streams(server, 3, 600)
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
    hostile = "%n%s\r\n\x1b[31m\u202e{}"
    assert server.post("/v1/chat/completions", {"messages": [{"role": hostile, "content": "hi"}], "model": hostile, "user": hostile}).status in (200, 400)
    server.post("/v1/completions", {"prompt": "hi", hostile: 1, "stop": [hostile], "logit_bias": {hostile: 1}}).error(400)
    for target in (b"/%25n%25s", b"/%0d%0aGET", b"/v1/models/%1b%5b31m", b"/%c2%9b31m"):
        server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %n\x1b\r\nUser-Agent: %s\x1b[31m\r\nConnection: close\r\n\r\n")
    assert server.stop() == 0
    assert not any(set(map(ord, line)) & {*range(32), *range(127, 160)} for line in server.log), server.log
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    chat = next(l for l in lines if l["path"] == "/v1/chat/completions")
    assert chat["status"] == 200 and chat["completion_tokens"] == 3 and chat["prompt_tokens"] > 3 and chat["ms"] > 0 and chat["bytes_out"] > 100
    text = path.read_text()
    assert "secret" not in text and any(l["status"] == 400 for l in lines)
    assert not set(map(ord, text)) & ({*range(32), *range(127, 160), 0x202e} - {10})


def status(url, method="GET", **headers):
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize("args", [["--host", "127.0.0.1"], ["--host", "unix"]])
def test_metrics_on_a_port_of_their_own(start, short_path, args):
    """With keys, /metrics requires a key, but the port for Prometheus does not."""
    args = [arg if arg != "unix" else f"unix:{short_path}/s" for arg in args]
    server = start("--api-key", "sesame", "--metrics-port", 0, "--access-log", "none", *args)
    server.get("/metrics").error(401)
    url = server.wait_for(r"(http://127.0.0.1:\d+)/metrics needs no key")[1]
    assert server.get("/metrics", headers={"X-Api-Key": "sesame"}).status == 200
    code, text = status(url + "/metrics")
    assert code == 200 and b"ingot:num_requests_running" in text
    assert status(url + "/health") == (200, b'{"status":"ok"}')
    assert [status(url + path)[0] for path in ("/", "/v1/models", "/props", "/metrics/x")] == [404] * 4
    assert status(url + "/metrics", "POST")[0] == 405
    assert status(url + "/metrics", Host="evil.example")[0] == 403
    assert server.stop() == 0


def test_the_metrics_port_of_another_server(server):
    for args, code, word in [(["--port", "0", "--metrics-port", server.port], 1, "--metrics-port"), (["--port", server.port, "--metrics-port", server.port], 2, "--metrics-port")]:
        done = subprocess.run([os.environ["INGOT"], "serve", *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == code and word in done.stderr, done.stderr


def test_another_name_of_the_only_model_is_told_once(start):
    server = start("--access-log", "none", "--alias", "one,uno")
    for name in ("one", "uno", "", None):
        assert server.chat(max_tokens=1, model=name).status == 200
    for _ in range(2):
        assert server.chat(max_tokens=1, model="gpt-4\x1b").status == 200
    server.stop()
    told = [line for line in server.log if "names the model" in line]
    assert len(told) == 1 and "gpt-4" in told[0] and "\x1b" not in told[0]


@pytest.mark.parametrize("args, code, word", [
    (["--host", "0.0.0.0"], 1, "--api-key"), (["--host", "no.such.host.invalid"], 1, "no.such.host"), (["--port", "-1"], 2, "--port"), (["--port", "70000"], 2, "--port"),
    (["--max-seqs", "-1"], 2, "--max-seqs"), (["/nonexistent.gguf"], 1, "nonexistent"), (["--api-key-file", "/nonexistent"], 1, "nonexistent"), (["--api-key", ""], 2, "key"),
    (["--host", "unix:" + "x" * 200], 1, "Unix"), (["--no-such-flag"], 2, "--no-such-flag"),
])
def test_what_cannot_start_says_why(args, code, word):
    done = subprocess.run([os.environ["INGOT"], "serve", "--port", "0", *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (code, "") and word in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_mistakes_of_files_say_which(tmp_path):
    """A message of one line with the file and its fault, and exit code 1."""
    demo = SOURCE / "models" / "demo.gguf"
    (tmp_path / "empty.txt").write_text("# no key\n")
    (tmp_path / "text.gguf").write_text("not a model")
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken").write_text("")
    for name in ("a", "b"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem",
                        "-subj", "/CN=localhost"], check=True, capture_output=True)
    at = lambda name: str(tmp_path / name)
    for args, word in [(["--api-key-file", at("empty.txt")], "empty.txt"), (["--api-key-file", at("folder")], "folder"), ([at("text.gguf")], "text.gguf"), ([at("folder")], "folder"),
                       (["--ssl-cert-file", at("a.pem"), "--ssl-key-file", at("none.key")], "none.key"), (["--ssl-cert-file", at("a.pem"), "--ssl-key-file", at("b.key")], "b.key"),
                       (["--ssl-cert-file", at("text.gguf"), "--ssl-key-file", at("a.key")], "text.gguf"), (["--ssl-key-file", at("a.key")], "certificate"),
                       (["--host", "unix:" + at("none/s")[-90:]], "none/s"), (["--host", "unix:" + at("taken")], "taken"), (["--access-log", at("none/log")], "none/log"),
                       ([str(demo), str(demo)], "demo"), (["--pin", "nobody"], "nobody"), (["--models-memory", "1MiB"], "1.0 MiB")]:
        done = subprocess.run([os.environ["INGOT"], "serve", "--port", "0", *args], capture_output=True, text=True, timeout=60 * SLOW, stdin=subprocess.DEVNULL)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode in (1, 2) and word in last and len(last) < 600, (args, done.returncode, done.stderr)


def test_flags_take_one_value_each(start):
    demo = os.path.join(os.environ["INGOT_SOURCE"], "models", "demo.gguf")
    server = start("--access-log", "none", "--api-key", "a", "--api-key", "b", "--alias", "x,y", demo)
    assert server.get("/v1/models", headers={"X-Api-Key": demo}).status == 401
    (model,) = server.get("/v1/models", headers={"X-Api-Key": "b"}).json()["data"]
    assert model["id"] == "x" and model["aliases"] == ["x", "y"] and model["meta"]["size"] > 1e6


def test_a_port_in_use(server):
    done = subprocess.run([os.environ["INGOT"], "serve", "--port", server.port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and server.port in done.stderr


def test_names_of_clients_make_no_series(server):
    n_series = lambda: len(server.get("/metrics").body.splitlines())
    server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1})  # routes have series from their first request on
    n_series()
    before, c = n_series(), server.connection()
    for i in range(300):
        reply = server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, "model": f"m{i}", "user": f"u{i}", "cache_salt": str(i)}, headers={"X-Request-Id": f"r{i}"}, connection=c)
        assert reply.status == 200
    assert n_series() == before


def test_the_same_request_id_twice_is_two_requests(start):
    server = start("--deterministic", "--access-log", "none")  # else rounding depends on the rows of a step
    texts = ["Tell me a story about a fox.", "What is 7 + 5?", "Tell me a story about the sea."]
    alone = [server.chat(text, temperature=0, max_tokens=20).json()["choices"][0]["message"]["content"] for text in texts]
    got = [None] * 12

    def ask(i):
        reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": texts[i % 3]}], "temperature": 0, "max_tokens": 20, "stream": True},
                            headers={"X-Request-Id": "same"})
        assert reply.headers["X-Request-Id"] == "same"
        got[i] = "".join(c["delta"].get("content") or "" for e in reply.events() for c in e["choices"])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(got))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == alone * 4


def value_of(server, pattern):
    return sum(float(n) for n in re.findall(rf"^{pattern} (\S+)$", server.get("/metrics").body.decode(), re.M))


def test_requests_are_counted_by_route_and_status(start):
    server = start("--access-log", "none")
    counted = lambda handler, method, status: value_of(server, rf'http_requests_total\{{handler="{handler}",method="{method}",status="{status}"\}}')
    for _ in range(3):
        server.chat(max_tokens=3)
    server.chat(temperature="hot").error(400)
    server.get("/v1/chat/completions").error(405)
    for i in range(5):
        server.get(f"/nothing{i}").error(404)
    server.get("/v1/models/demo")
    server.get("/page.css")
    server.request("BREW", "/v1/models")
    assert counted("/v1/chat/completions", "POST", 200) == 3 and counted("/v1/chat/completions", "POST", 400) == 1 and counted("/v1/chat/completions", "GET", 405) == 1
    assert counted("other", "GET", 404) == 5 and counted("/v1/models/", "GET", 200) == 1 and counted("page", "GET", 200) == 1
    text = server.get("/metrics").body.decode()
    assert "nothing" not in text and "BREW" not in text, "clients make no series"
    name = r'http_request_duration_seconds_%s\{handler="/v1/chat/completions",method="POST"%s\}'
    assert value_of(server, name % ("count", "")) == value_of(server, name % ("bucket", r',le="\+Inf"')) == 4 and value_of(server, name % ("sum", "")) > 0


def test_the_process_and_its_build_are_in_the_metrics(start):
    server = start("--access-log", "none")
    pid, page = server.process.pid, os.sysconf("SC_PAGESIZE")
    text = server.get("/metrics").body.decode()
    value = lambda name: float(re.search(rf"^{name} (\S+)$", text, re.M)[1])
    mapped, resident = (int(n) * page for n in pathlib.Path(f"/proc/{pid}/statm").read_text().split()[:2])
    assert value("process_virtual_memory_bytes") == pytest.approx(mapped, rel=0.1) and value("process_resident_memory_bytes") == pytest.approx(resident, rel=0.2)
    assert abs(value("process_open_fds") - len(os.listdir(f"/proc/{pid}/fd"))) <= 2 and value("process_max_fds") >= 256
    assert 0 < value("process_cpu_seconds_total") < 60 and abs(value("process_start_time_seconds") - time.time()) < 60
    version = json.loads(subprocess.run([os.environ["INGOT"], "--version", "--json"], capture_output=True, text=True).stdout)
    assert f'ingot_build_info{{version="{version["version"]}",commit="{version["commit"]}",compiler="{version["compiler"]}"}} 1' in text


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
